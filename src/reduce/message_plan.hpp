// Which elements of which tensors travel as one message.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/reduce/reduction_options.hpp>

namespace lockstep::detail {

/// Elements [first, first + count) of one of the tensors.
struct Run {
  std::size_t tensor;
  std::int64_t first;
  std::int64_t count;

  bool operator==(const Run&) const = default;
};

/// Each message as the runs that it is made of. `counts` are the tensors' numbers of elements, `element_bytes` is the
/// same for all. Every element travels once, in order; tensors without elements are in no message, and there is no
/// message without elements. Pure, so all ranks plan alike.
std::vector<std::vector<Run>> plan_messages(const Packing& packing, std::span<const std::int64_t> counts,
                                            std::size_t element_bytes);

}  // namespace lockstep::detail
