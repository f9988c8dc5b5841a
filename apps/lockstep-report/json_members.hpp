// Members of JSON objects that another version may have written: what is missing or of another type counts as nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/foreign_json.hpp"

namespace lockstep::report {

/// Null if `object` is none, or lacks `key`.
const OrderedJson* member(const OrderedJson& object, std::string_view key);

/// Empty unless it is a string.
std::string text_at(const OrderedJson& object, std::string_view key);

/// A string as it is, anything else as JSON; empty if it is null.
std::string shown(const OrderedJson& value);

/// The same of a member; empty if it is missing.
std::string shown_at(const OrderedJson& object, std::string_view key);

std::optional<std::int64_t> integer_at(const OrderedJson& object, std::string_view key);

/// 0 unless it is a positive number.
double seconds_at(const OrderedJson& object, std::string_view key);

/// `text` with U+FFFD in the place of every byte that is not UTF-8, so that a parser takes it.
std::string as_utf8(std::string_view text);

}  // namespace lockstep::report
