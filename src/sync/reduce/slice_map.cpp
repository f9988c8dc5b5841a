#include "sync/reduce/slice_map.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sync/reduce/messages.hpp"

namespace lockstep::detail {
namespace {

/// Where slices may begin, and the end of all.
std::vector<std::int64_t> borders_of(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> borders;
  std::int64_t start = 0;
  for (const std::int64_t count : counts) {
    for (std::int64_t first = 0; first < count; first += slice_granule) borders.push_back(start + first);
    start += count;
  }
  borders.push_back(start);
  return borders;
}

/// The border that is nearest to `position`, which is not beyond the last one.
std::int64_t nearest(std::span<const std::int64_t> borders, std::int64_t position) {
  const auto next = std::ranges::lower_bound(borders, position);
  if (next == borders.begin() || *next - position <= position - *std::prev(next)) return *next;
  return *std::prev(next);
}

/// The bounds of `parts` parts of [first, first + count), which are about even.
std::vector<std::int64_t> even_parts(std::span<const std::int64_t> borders, std::int64_t first, std::int64_t count,
                                     std::int64_t parts) {
  std::vector<std::int64_t> bounds{first};
  for (std::int64_t part = 1; part < parts; ++part) {
    const std::int64_t bound = nearest(borders, first + count * part / parts);
    bounds.push_back(std::clamp(bound, bounds.back(), first + count));
  }
  bounds.push_back(first + count);
  return bounds;
}

}  // namespace

SliceMap::SliceMap(const Packing& packing, std::span<const std::int64_t> counts, std::size_t element_bytes,
                   std::vector<int> owners)
    : owners_{std::move(owners)} {
  const std::vector<std::int64_t> borders = borders_of(counts);
  const std::int64_t longest = bucket_bytes / static_cast<std::int64_t>(element_bytes);
  for (const Bucket& bucket : plan_buckets(packing, counts, element_bytes, bucket_bytes)) {
    // A packing may end a message anywhere.
    const std::int64_t first = nearest(borders, bucket.first);
    const std::int64_t count = nearest(borders, bucket.first + bucket.count) - first;
    if (count == 0) continue;
    const std::int64_t pieces = (count + longest - 1) / longest;
    const std::vector<std::int64_t> ends = even_parts(borders, first, count, pieces);
    for (std::size_t piece = 0; piece + 1 < ends.size(); ++piece) {
      const std::vector<std::int64_t> bounds =
          even_parts(borders, ends[piece], ends[piece + 1] - ends[piece], std::ssize(owners_));
      bounds_.insert(bounds_.end(), bounds.begin(), bounds.end());
    }
  }
}

SliceMap::SliceMap(std::vector<std::int64_t> bounds, std::vector<int> owners)
    : bounds_{std::move(bounds)}, owners_{std::move(owners)} {}

SliceMap SliceMap::within(std::int64_t first, std::int64_t count) const {
  SliceMap part;
  part.owners_ = owners_;
  for (std::size_t piece = 0; piece < pieces(); ++piece) {
    const SliceBounds all = bounds(piece);
    if (all.back() <= first || all.front() >= first + count) continue;
    for (const std::int64_t bound : all) part.bounds_.push_back(std::clamp(bound - first, std::int64_t{0}, count));
  }
  return part;
}

std::vector<SliceMap::Slice> SliceMap::of(int rank) const {
  std::vector<Slice> all;
  for (std::size_t piece = 0; piece < pieces(); ++piece) {
    const SliceBounds slices = bounds(piece);
    for (std::size_t k = 0; k < owners_.size(); ++k)
      if (owners_[k] == rank && slices[k] < slices[k + 1]) all.push_back({slices[k], slices[k + 1] - slices[k]});
  }
  return all;
}

std::vector<int> owners_in_order(int ranks) {
  std::vector<int> owners(static_cast<std::size_t>(ranks));
  std::iota(owners.begin(), owners.end(), 0);
  return owners;
}

std::vector<std::int64_t> from_zero(SliceBounds bounds) {
  std::vector<std::int64_t> moved;
  for (const std::int64_t bound : bounds) moved.push_back(bound - bounds.front());
  return moved;
}

}  // namespace lockstep::detail
