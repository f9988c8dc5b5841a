// How lockstep takes the values apart that collectives take: into leaves, into text, into bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/values/leaves.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// Calls `visit` with each part of a nest that has no parts: sequences by position, maps by key.
LOCKSTEP_PARTS_API void visit_leaves(AnyValue nest, const std::function<void(const Description&, void* leaf)>& visit);

/// All leaves of a Reducible. A number is a tensor of its carrier_t, on the host.
std::vector<Leaf> leaves_in(AnyValue nest);

/// Sets these leaves. InvalidArgument for a tensor in the place of a number that does not hold it.
void set_leaves(AnyValue nest, std::span<const Leaf> leaves);

/// " in [f32 f64]": how the leaves of a nest are arranged; empty for a nest of one leaf.
LOCKSTEP_PARTS_API std::string structure_of(AnyValue nest);

// Of a BroadcastableObject, as it travels.

/// What the ranks compare before they send: "text", "[Settings of 12 bytes]", "(int of 4 bytes, text)".
std::string layout_text(const Description& type);

void append_bytes(const Description& type, const void* value, std::vector<std::byte>& bytes);

/// Removes the bytes of a value at the front, and writes it to `value`, which is blank.
void take_bytes(const Description& type, void* value, std::span<const std::byte>& bytes);

}  // namespace lockstep::detail
