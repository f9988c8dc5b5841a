// Maps of slices, and sums in halves with each reduction: every rank gets its slices, with the bits of the whole sum.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "reduce_support.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/slice_map.hpp"

using namespace lockstep;
using lockstep::detail::slice_granule;
using lockstep::detail::SliceMap;
using lockstep::test::make_parts;
using lockstep::test::on_threads;
using lockstep::test::same_bits;
using lockstep::test::ThreadCommunicator;

namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<int> order_of(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// A large tensor, small ones and an empty one.
const Counts mixed_counts{16, 1'300'000, 0, 48, 9008, 700'000, 80};

bool is_border(const Counts& counts, std::int64_t position) {
  std::int64_t start = 0;
  for (const std::int64_t count : counts) {
    if (position >= start && position < start + count) return (position - start) % slice_granule == 0;
    start += count;
  }
  return position == start;
}

using MakeOps = std::function<std::unique_ptr<Reductions>(Communicator&)>;

/// Whether slices sum to what the whole message sums to, and arrive everywhere, also of a part of the message.
void check_halves(int ranks, const MakeOps& make, SliceMap::Slice part) {
  const Counts counts{5008, 16, 12'304};
  const auto parts = make_parts<float>(ranks, sum_of(counts));
  std::vector<std::vector<float>> whole(parts.size()), halves(parts.size());
  on_threads(ranks, [&](ThreadCommunicator& communicator) {
    const auto ops = make(communicator);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto map = std::make_shared<const SliceMap>(
        SliceMap{{}, counts, sizeof(float), ops->slice_owners()}.within(part.first, part.count));
    const auto own = [&] { return Tensor::from(parts[rank], {sum_of(counts)}); };
    const Tensor summed = own(), scattered = own(), values = Tensor::zeros(DType::f32, {sum_of(counts)});
    ops->start(summed.view().slice(part.first, part.count)).wait();
    const TensorView gradients = scattered.view().slice(part.first, part.count);
    const TensorView gathered = values.view().slice(part.first, part.count);
    ops->start_scatter({gradients, map}).wait();
    for (const SliceMap::Slice& slice : map->of(communicator.rank()))
      copy(gradients.slice(slice.first, slice.count), gathered.slice(slice.first, slice.count));
    const Sliced message{gathered, map, gradients};
    ops->gather_slices({&message, 1});
    whole[rank] = summed.view().slice(part.first, part.count).to_vector<float>();
    halves[rank] = gathered.to_vector<float>();
  });
  CHECK(whole == halves);
}

}  // namespace

TEST_CASE("slices cover all elements, begin at borders of blocks and are about even") {
  for (const int ranks : {2, 3, 4, 7})
    for (const Packing& packing :
         {ReductionOptions::into_packs(1), ReductionOptions::into_packs(3), ReductionOptions::into_packs(100),
          ReductionOptions::group_small(1000, 2), ReductionOptions::unpacked()}) {
      const SliceMap map{packing, mixed_counts, sizeof(float), order_of(ranks)};
      CAPTURE(ranks, map.pieces());
      std::int64_t end = 0;
      std::vector<std::int64_t> of_rank(static_cast<std::size_t>(ranks));
      for (std::size_t piece = 0; piece < map.pieces(); ++piece) {
        const SliceBounds bounds = map.bounds(piece);
        CHECK(bounds.front() == end);
        end = bounds.back();
        CHECK(end - bounds.front() <= detail::bucket_bytes / 4 + slice_granule);
        for (std::size_t k = 0; k < of_rank.size(); ++k) {
          const std::int64_t length = bounds[k + 1] - bounds[k];
          of_rank[k] += length;
          CHECK(is_border(mixed_counts, bounds[k]));
          CHECK(std::abs(length - (end - bounds.front()) / ranks) <= slice_granule);
        }
      }
      CHECK(end == sum_of(mixed_counts));
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t count = 0;
        for (const SliceMap::Slice& slice : map.of(rank)) count += slice.count;
        CHECK(count == of_rank[static_cast<std::size_t>(rank)]);
      }
    }
}

TEST_CASE("a part of a map has the same owners") {
  const SliceMap map{{}, mixed_counts, sizeof(float), order_of(3)};
  for (const SliceMap::Slice part : {SliceMap::Slice{0, 16}, {1'300'016, 9056}, {500'000, 900'000}}) {
    const SliceMap inside = map.within(part.first, part.count);
    CHECK(inside.bounds(0).front() == 0);
    CHECK(inside.bounds(inside.pieces() - 1).back() == part.count);
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<SliceMap::Slice> expected;
      for (const SliceMap::Slice& slice : map.of(rank)) {
        const std::int64_t first = std::max(slice.first, part.first);
        const std::int64_t last = std::min(slice.first + slice.count, part.first + part.count);
        if (first < last) expected.push_back({first - part.first, last - first});
      }
      CHECK(inside.of(rank) == expected);
    }
  }
}

TEST_CASE("a sum in halves has the bits of the whole one, and every rank gets what the owners made of it") {
  const std::vector<std::vector<int>> layouts{{0, 0},    {0, 1},       {0, 0, 0},    {0, 0, 1, 1},
                                              {0, 1, 0}, {0, 0, 0, 1}, {0, 1, 1, 0}, {0, 0, 1, 1, 2, 2}};
  for (const std::vector<int>& nodes : layouts)
    for (const SliceMap::Slice part : {SliceMap::Slice{0, 17'328}, {5008, 12'320}, {0, 5024}}) {
      CAPTURE(nodes, part.first);
      const auto ranks = static_cast<int>(nodes.size());
      check_halves(
          ranks, [](Communicator& each) { return test::in_fixed_order(each); }, part);
      check_halves(
          ranks, [&](Communicator& each) { return test::over_nodes(each, nodes); }, part);
      check_halves(
          ranks, [&](Communicator& each) { return test::over_nodes(each, nodes, DType::bf16); }, part);
      check_halves(
          ranks, [](Communicator& each) { return test::on_one_rank(each); }, part);
      check_halves(
          ranks, [](Communicator& each) { return test::in_backend_order(each); }, part);
      using enum ReductionOptions::Kind;
      for (const auto& [kind, small] : {std::pair{fixed_order, backend_order}, {hierarchical, fixed_order}})
        check_halves(
            ranks,
            [&, large = kind, some = small](Communicator& each) {
              return test::reductions_of(each, {.kind = large, .smaller = {{30'000, some, {}}}}, nodes);
            },
            part);
    }
}

TEST_CASE("every place of a hierarchical sum that carries owns slices, in the order of its node's") {
  on_threads(6, [](ThreadCommunicator& communicator) {
    const auto ops = test::over_nodes(communicator, std::vector{0, 0, 1, 1, 2, 2});
    if (ops->slice_owners() != std::vector{0, 2, 4, 1, 3, 5}) throw std::runtime_error{"other owners"};
  });
}
