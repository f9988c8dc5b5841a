#include "reduce/message_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "reduce/messages.hpp"
#include "reduce/reductions.hpp"

namespace lockstep::detail {
namespace {

using Messages = std::vector<std::vector<Run>>;

Messages plan(const detail::IntoPacks& packs, std::span<const std::int64_t> counts, std::size_t) {
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  Messages messages;
  std::size_t tensor = 0;
  std::int64_t taken = 0;  // of `tensor`
  for (int pack = 0; pack < packs.num_packs; ++pack) {
    const std::int64_t even = total / packs.num_packs;
    std::int64_t left = pack + 1 < packs.num_packs ? even : total - even * (packs.num_packs - 1);
    if (left == 0) continue;
    messages.emplace_back();
    while (left > 0) {
      const std::int64_t count = std::min(left, counts[tensor] - taken);
      if (count > 0) messages.back().push_back({tensor, taken, count});
      left -= count;
      taken += count;
      if (taken == counts[tensor]) {
        ++tensor;
        taken = 0;
      }
    }
  }
  return messages;
}

Messages plan(const detail::GroupSmall& group, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  Messages messages;
  int grouped = 0;  // tensors in the last message, if that can take more; 0 if it is a large tensor
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
    if (counts[tensor] == 0) continue;
    const bool small = counts[tensor] <= group.small_tensor_bytes / static_cast<std::int64_t>(element_bytes);
    if (!small || grouped == 0 || grouped == group.max_group) {
      messages.emplace_back();
      grouped = 0;
    }
    messages.back().push_back({tensor, 0, counts[tensor]});
    grouped = small ? grouped + 1 : 0;
  }
  return messages;
}

Messages plan(const detail::Unpacked&, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  return plan(detail::GroupSmall{.small_tensor_bytes = std::numeric_limits<std::int64_t>::max(), .max_group = 1},
              counts, element_bytes);
}

}  // namespace

bool is_default(const Packing& packing) {
  const auto* const packs = std::get_if<detail::IntoPacks>(&packing);
  return packs && packs->num_packs == 1;
}

std::vector<Bucket> plan_buckets(const Packing& packing, std::span<const std::int64_t> counts,
                                 std::size_t element_bytes, std::int64_t enough_bytes) {
  std::vector<Bucket> buckets;
  std::int64_t first = 0;
  const auto add = [&](std::int64_t count, std::size_t tensors) {
    buckets.push_back({std::exchange(first, first + count), count, tensors});
  };
  if (is_default(packing)) {
    std::int64_t count = 0;
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
      count += counts[tensor];
      const std::int64_t enough = buckets.empty() ? early_bytes : enough_bytes;
      const bool full = count * static_cast<std::int64_t>(element_bytes) >= enough;
      if (full || (count > 0 && tensor + 1 == counts.size())) add(std::exchange(count, 0), tensor + 1);
    }
  } else {
    for (const auto& message : plan_messages(packing, counts, element_bytes)) {
      std::int64_t count = 0;
      for (const Run& run : message) count += run.count;
      add(count, message.back().tensor + 1);
    }
  }
  // Tensors without elements are in no message; the last one waits for those at the end.
  if (!buckets.empty()) buckets.back().tensors = counts.size();
  return buckets;
}

Messages plan_messages(const Packing& packing, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  return std::visit([&](const auto& way) { return plan(way, counts, element_bytes); }, packing);
}

}  // namespace lockstep::detail
