#include "core/order/shares.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {
namespace {

/// Where the subtree of `part`, which has two shards or more, is cut.
std::int64_t middle_of(const Range& part) {
  return part.first + static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(part.size() - 1)));
}

/// The bounds of `parts` subtrees.
std::vector<std::int64_t> cut(const Range& whole, std::size_t parts) {
  std::vector<Range> cut{whole};
  while (cut.size() < parts) {
    const auto largest = std::ranges::max_element(cut, {}, &Range::size);  // the first of several
    const std::int64_t middle = middle_of(*largest);
    const Range left{largest->first, middle}, right{middle, largest->last};
    *largest = right;
    cut.insert(largest, left);
  }
  std::vector<std::int64_t> bounds{whole.first};
  for (const Range& part : cut) bounds.push_back(part.last);
  return bounds;
}

/// The end of the largest subtree of all `shards` that begins with the first of `part` and ends with it or before. A
/// subtree has a power of two of shards, which divides its first, or fewer if it ends with the last shard of all.
std::int64_t end_of_subtree(const Range& part, std::int64_t shards) {
  std::int64_t size = part.first == 0 ? std::bit_ceil(static_cast<std::uint64_t>(shards)) : part.first & -part.first;
  while (std::min(part.first + size, shards) > part.last) size /= 2;
  return std::min(part.first + size, shards);
}

std::vector<Range> largest_subtrees(Range part, std::int64_t shards) {
  std::vector<Range> subtrees;
  for (; part.first < part.last; part.first = subtrees.back().last)
    subtrees.push_back({part.first, end_of_subtree(part, shards)});
  return subtrees;
}

/// How many these are, or one more than Shares::most_subtrees if they are more.
int count_subtrees(Range part, std::int64_t shards) {
  int count = 0;
  for (; part.first < part.last && count <= Shares::most_subtrees; ++count) part.first = end_of_subtree(part, shards);
  return count;
}

constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

struct Best {
  std::int64_t cost = none;
  std::int64_t first = 0;  ///< of the last rank's share
};

/// Of shares of up to `largest` shards in up to Shares::most_subtrees subtrees, the cheapest: their cost and bounds,
/// which are empty if there are none. `cost(before, shards, subtrees)` is that of a rank's share and of all before it.
std::pair<std::int64_t, std::vector<std::int64_t>> cheapest(std::int64_t shards, int ranks, std::int64_t largest,
                                                            auto&& cost) {
  const auto at = [](std::vector<Best>& all, std::int64_t end) -> Best& { return all[static_cast<std::size_t>(end)]; };
  // Of so many ranks, with the shards up to there.
  std::vector<std::vector<Best>> of_ranks(static_cast<std::size_t>(ranks) + 1);
  for (std::vector<Best>& each : of_ranks) each.resize(static_cast<std::size_t>(shards) + 1);
  at(of_ranks.front(), 0).cost = 0;
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank)
    for (std::int64_t first = 0; first < shards; ++first) {
      const std::int64_t before = at(of_ranks[rank - 1], first).cost;
      for (std::int64_t last = first + 1; before < none && last <= std::min(first + largest, shards); ++last) {
        const int subtrees = count_subtrees({first, last}, shards);
        if (subtrees > Shares::most_subtrees) continue;
        const std::int64_t with = cost(before, last - first, subtrees);
        if (Best& best = at(of_ranks[rank], last); with < best.cost) best = {with, first};
      }
    }
  const std::int64_t least = at(of_ranks.back(), shards).cost;
  if (least == none) return {least, {}};
  std::vector<std::int64_t> bounds{shards};
  for (auto rank = of_ranks.rbegin(); bounds.back() > 0; ++rank) bounds.push_back(at(*rank, bounds.back()).first);
  std::ranges::reverse(bounds);
  return {least, bounds};
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

std::vector<std::int64_t> cut_for(int shards, int ranks) {
  if (ranks < 1) throw InvalidArgument{fmt::format("the number of ranks is {}; expected 1 or more", ranks)};
  if (shards < ranks)
    throw InvalidArgument{
        fmt::format("{} shard{} for {} ranks; expected one for each or more", shards, shards == 1 ? "" : "s", ranks)};
  return cut({0, shards}, static_cast<std::size_t>(ranks));
}

std::vector<std::uint8_t> additions_of(std::span<const std::int64_t> bounds) {
  std::vector<std::uint8_t> additions(bounds.size() - 1);
  count_additions(bounds, additions);
  return additions;
}

}  // namespace

Shares::Shares(int shards, int ranks) : Shares{cut_for(shards, ranks)} {}

Shares::Shares(std::vector<std::int64_t> bounds) : bounds_{std::move(bounds)}, numbers_{0} {
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::vector<Range> own = largest_subtrees(of(rank), shards());
    subtrees_.insert(subtrees_.end(), own.begin(), own.end());
    numbers_.push_back(static_cast<int>(subtrees_.size()));
  }
}

Shares Shares::even(int shards, int ranks) {
  const Shares one_each{shards, ranks};
  if (one_each.largest() == (shards + ranks - 1) / ranks) return one_each;
  const auto larger = [](std::int64_t before, std::int64_t own, int) { return std::max(before, own); };
  const auto [largest, found] = cheapest(shards, ranks, one_each.largest() - 1, larger);
  if (found.empty()) return one_each;
  const auto count = [](std::int64_t before, std::int64_t, int subtrees) { return before + subtrees; };
  return Shares{cheapest(shards, ranks, largest, count).second};
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

std::span<const Range> Shares::subtrees_of(int rank) const {
  const auto part = static_cast<std::size_t>(rank), first = static_cast<std::size_t>(numbers_[part]);
  return std::span{subtrees_}.subspan(first, static_cast<std::size_t>(numbers_[part + 1]) - first);
}

int Shares::most_of_rank() const {
  int most = 0;
  for (int rank = 0; rank < ranks(); ++rank) most = std::max(most, static_cast<int>(subtrees_of(rank).size()));
  return most;
}

Shares Shares::over(std::span<const int> runs) const {
  std::vector<std::int64_t> bounds{0};
  std::size_t rank = 0;
  for (const int run : runs) bounds.push_back(bounds_[rank += static_cast<std::size_t>(run)]);
  return Shares{std::move(bounds)};
}

std::vector<std::uint8_t> Shares::additions() const {
  std::vector<std::int64_t> one_each{0};
  while (std::ssize(one_each) <= std::ssize(subtrees_)) one_each.push_back(std::ssize(one_each));
  std::vector<std::uint8_t> additions = additions_in(0, static_cast<int>(subtrees_.size()));
  return additions == additions_of(one_each) ? std::vector<std::uint8_t>{} : additions;
}

std::vector<std::uint8_t> Shares::additions_in(int first, int last) const {
  std::vector<std::int64_t> bounds;
  for (int subtree = first; subtree < last; ++subtree)
    bounds.push_back(subtrees_[static_cast<std::size_t>(subtree)].first);
  bounds.push_back(subtrees_[static_cast<std::size_t>(last) - 1].last);
  return additions_of(bounds);
}

}  // namespace lockstep
