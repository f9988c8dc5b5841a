// Which elements of which tensors travel as one message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/reduce/reduction_options.hpp>

namespace lockstep::detail {

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

}  // namespace lockstep::detail
