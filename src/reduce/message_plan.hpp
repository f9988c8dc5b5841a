// Which elements of which tensors travel as one message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/reduce/reduction_options.hpp>

#include "reduce/reductions.hpp"

namespace lockstep::detail {

/// Whether all tensors of a type travel as one message.
bool is_default(const Packing& packing);

/// Elements [first, first + count) of one tensor.
struct Run {
  std::size_t tensor;
  std::int64_t first;
  std::int64_t count;

  bool operator==(const Run&) const = default;
};

/// Each message as a list of runs. `counts` are the tensors' numbers of elements, all of `element_bytes` each. Every
/// element travels once, in order. Tensors without elements are in no message, and no message is empty. Pure, so all
/// ranks make the same plan.
std::vector<std::vector<Run>> plan_messages(const Packing& packing, std::span<const std::int64_t> counts,
                                            std::size_t element_bytes);

/// Elements [first, first + count) of the tensors one after the other, which lie in the tensors before `tensors`.
struct Bucket {
  std::int64_t first;
  std::int64_t count;
  std::size_t tensors;

  bool operator==(const Bucket&) const = default;
};

/// The same for tensors that lie one after the other in memory and are completed in about that order, so that a message
/// can leave while the next is being computed. A packing other than the default makes the messages of `plan_messages`.
/// The default makes messages of neighbouring whole tensors, of `enough_bytes` or more but for a small first one, which
/// leaves early, and the last.
std::vector<Bucket> plan_buckets(const Packing& packing, std::span<const std::int64_t> counts,
                                 std::size_t element_bytes, std::int64_t enough_bytes);

/// Small enough to leave early, and not too small for what a message costs.
constexpr std::int64_t early_bytes = 256 << 10;

}  // namespace lockstep::detail
