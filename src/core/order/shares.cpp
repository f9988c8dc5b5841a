#include "core/order/shares.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {
namespace {

/// Where the subtree of `part`, which has two shards or more, is cut.
std::int64_t middle_of(const Range& part) {
  return part.first + static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(part.size() - 1)));
}

std::vector<Range> cut(const Range& whole, std::size_t parts) {
  std::vector<Range> cut{whole};
  while (cut.size() < parts) {
    const auto largest = std::ranges::max_element(cut, {}, &Range::size);  // the first of several
    const std::int64_t middle = middle_of(*largest);
    const Range left{largest->first, middle}, right{middle, largest->last};
    *largest = right;
    cut.insert(largest, left);
  }
  return cut;
}

/// Those of the tree over all shards in [bounds.front(), bounds.back()), of which each part is a subtree.
void count_additions(std::span<const std::int64_t> bounds, std::span<std::uint8_t> additions) {
  if (additions.size() <= 1) return;
  const std::int64_t middle = middle_of({bounds.front(), bounds.back()});
  const auto left = static_cast<std::size_t>(std::ranges::lower_bound(bounds, middle) - bounds.begin());
  count_additions(bounds.first(left + 1), additions.first(left));
  count_additions(bounds.subspan(left), additions.subspan(left));
  ++additions.back();
}

std::vector<std::uint8_t> additions_of(std::span<const std::int64_t> bounds) {
  std::vector<std::uint8_t> additions(bounds.size() - 1);
  count_additions(bounds, additions);
  return additions;
}

}  // namespace

Shares::Shares(int shards, int ranks) : bounds_{0} {
  if (ranks < 1) throw InvalidArgument{fmt::format("the number of ranks is {}; expected 1 or more", ranks)};
  if (shards < ranks)
    throw InvalidArgument{
        fmt::format("{} shard{} for {} ranks; expected one for each or more", shards, shards == 1 ? "" : "s", ranks)};
  for (const Range& part : cut({0, shards}, static_cast<std::size_t>(ranks))) bounds_.push_back(part.last);
}

Range Shares::of(int rank) const {
  if (rank < 0 || rank >= ranks()) throw InvalidArgument{fmt::format("rank {} is outside of [0, {})", rank, ranks())};
  const auto part = static_cast<std::size_t>(rank);
  return {bounds_[part], bounds_[part + 1]};
}

std::int64_t Shares::largest() const {
  std::int64_t largest = 0;
  for (std::size_t part = 0; part + 1 < bounds_.size(); ++part)
    largest = std::max(largest, bounds_[part + 1] - bounds_[part]);
  return largest;
}

int Shares::owner_of(std::int64_t shard) const {
  return static_cast<int>(std::ranges::upper_bound(bounds_, shard) - bounds_.begin()) - 1;
}

std::vector<std::uint8_t> Shares::additions() const {
  std::vector<std::uint8_t> additions = additions_of(bounds_);
  std::vector<std::int64_t> one_each;
  for (int rank = 0; rank <= ranks(); ++rank) one_each.push_back(rank);
  return additions == additions_of(one_each) ? std::vector<std::uint8_t>{} : additions;
}

}  // namespace lockstep
