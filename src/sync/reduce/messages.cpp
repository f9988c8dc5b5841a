#include "sync/reduce/messages.hpp"

#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

namespace lockstep::detail {
namespace {

using Ends = std::vector<std::int64_t>;

Ends ends_of(const IntoPacks& packs, std::span<const std::int64_t> counts, std::size_t) {
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t even = total / packs.num_packs;
  Ends ends;
  for (int pack = 1; pack < packs.num_packs && even > 0; ++pack) ends.push_back(even * pack);
  if (total > 0) ends.push_back(total);
  return ends;
}

Ends ends_of(const GroupSmall& group, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  const std::int64_t most = group.small_tensor_bytes / static_cast<std::int64_t>(element_bytes);
  Ends ends;
  std::int64_t end = 0;
  int grouped = 0;  // small tensors in the last message
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const bool joins = count <= most && grouped > 0 && grouped < group.max_group;
    if (joins) ends.pop_back();
    ends.push_back(end += count);
    grouped = count > most ? 0 : joins ? grouped + 1 : 1;
  }
  return ends;
}

Ends ends_of(const Unpacked&, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  return ends_of(GroupSmall{.small_tensor_bytes = std::numeric_limits<std::int64_t>::max(), .max_group = 1}, counts,
                 element_bytes);
}

/// Of the default packing, for tensors that are adjacent in memory.
Ends ends_of_whole(std::span<const std::int64_t> counts, std::size_t element_bytes, std::int64_t enough_bytes) {
  Ends ends;
  std::int64_t begin = 0, end = 0;
  for (const std::int64_t count : counts) {
    end += count;
    if ((end - begin) * static_cast<std::int64_t>(element_bytes) < (ends.empty() ? early_bytes : enough_bytes))
      continue;
    ends.push_back(begin = end);
  }
  if (begin < end) ends.push_back(end);
  return ends;
}

/// Whether each begins where the one before it ends.
bool are_adjacent(std::span<const TensorView> parts) {
  const auto is_gap = [](const TensorView& one, const TensorView& next) {
    return one.data() + one.bytes() != next.data();
  };
  return std::ranges::adjacent_find(parts, is_gap) == parts.end();
}

}  // namespace

bool is_default(const Packing& packing) {
  const auto* const packs = std::get_if<IntoPacks>(&packing);
  return packs && packs->num_packs == 1;
}

Ends ends_of_messages(const Packing& packing, std::span<const std::int64_t> counts, std::size_t element_bytes) {
  return std::visit([&](const auto& way) { return ends_of(way, counts, element_bytes); }, packing);
}

std::vector<Bucket> plan_buckets(const Packing& packing, std::span<const std::int64_t> counts,
                                 std::size_t element_bytes, std::int64_t enough_bytes) {
  std::vector<Bucket> buckets;
  std::int64_t first = 0, in_tensors = 0;
  std::size_t tensors = 0;
  for (const std::int64_t end : is_default(packing) ? ends_of_whole(counts, element_bytes, enough_bytes)
                                                    : ends_of_messages(packing, counts, element_bytes)) {
    while (in_tensors < end) in_tensors += counts[tensors++];
    buckets.push_back({first, end - first, tensors});
    first = end;
  }
  // The last message waits for tensors without elements at the end.
  if (!buckets.empty()) buckets.back().tensors = counts.size();
  return buckets;
}

TensorView Scratch::take(Communicator& communicator, DType dtype, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (buffer_.bytes() < bytes) {
    buffer_ = communicator.allocate(bytes);
    // The gaps between tensors are sent too. Later they hold what an earlier message left there, but are never
    // uninitialised.
    communicator.stream().fill_zero(buffer_.data(), buffer_.bytes());
  }
  return {buffer_.data(), {count}, dtype, communicator.stream().kind()};
}

Message::Message(std::vector<TensorView> parts, Communicator& communicator, Scratch& memory)
    : parts_{std::move(parts)}, stream_{communicator.stream()} {
  const std::int64_t count = std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0},
                                             [](std::int64_t sum, const auto& part) { return sum + part.count(); });
  const TensorView& first = parts_.front();
  is_packed_ = !are_adjacent(parts_);
  flat_ = is_packed_ ? memory.take(communicator, first.dtype(), count)
                     : TensorView{first.data(), {count}, first.dtype(), first.device()};
  if (is_packed_) for_each_part([&](const TensorView& there, const TensorView& part) { copy(part, there, stream_); });
}

void Message::unpack() const {
  if (is_packed_) for_each_part([&](const TensorView& there, const TensorView& part) { copy(there, part, stream_); });
}

template <class Body>
void Message::for_each_part(Body&& body) const {
  std::int64_t first = 0;
  for (const TensorView& part : parts_) {
    body(flat_.slice(first, part.count()), part);
    first += part.count();
  }
}

std::vector<std::vector<TensorView>> messages_of(const Packing& packing, std::span<const TensorView> tensors) {
  std::vector<std::vector<TensorView>> messages;
  std::vector<TensorView> left{tensors.begin(), tensors.end()};
  while (!left.empty()) {
    const DType dtype = left.front().dtype();
    const auto others = std::ranges::stable_partition(left, [&](const auto& each) { return each.dtype() == dtype; });
    std::vector<std::int64_t> counts;
    std::transform(left.begin(), others.begin(), std::back_inserter(counts),
                   [](const auto& each) { return each.count(); });
    auto tensor = left.begin();
    std::int64_t begin = 0, taken = 0;  // of all tensors of the type, and of `tensor`
    for (const std::int64_t end : ends_of_messages(packing, counts, size_of(dtype))) {
      messages.emplace_back();
      while (begin < end) {
        const std::int64_t count = std::min(end - begin, tensor->count() - taken);
        if (count > 0) messages.back().push_back(tensor->slice(taken, count));
        begin += count;
        taken += count;
        if (taken == tensor->count()) {
          ++tensor;
          taken = 0;
        }
      }
    }
    left.erase(left.begin(), others.begin());
  }
  return messages;
}

}  // namespace lockstep::detail
