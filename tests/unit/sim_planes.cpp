// The simulated planes: what arrives, when ranks need not wait, and what they find out that real ones forgive.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "job/sim/virtual_time.hpp"
#include "reduce_support.hpp"
#include "support/sim_outcome.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using namespace lockstep::test;

namespace {

Tensor of(std::initializer_list<float> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

float as_float(int value) {
  return static_cast<float>(value);
}

}  // namespace

TEST_CASE("reductions give the bits of the fixed tree, on any number of ranks") {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64}) {
    // Few enough to travel whole, and more than that.
    for (const std::int64_t count : {std::int64_t{5}, std::int64_t{20000}}) {
      CAPTURE(ranks, count);
      const auto parts = make_parts<float>(ranks, count);
      const auto expected = tree(parts);
      int right = 0;
      sim::run({.ranks = ranks, .seed = static_cast<std::uint64_t>(ranks)}, [&](Strategy& strategy, int rank) {
        const Tensor mine = tensor_of(parts[static_cast<std::size_t>(rank)]);
        const Tensor sum = strategy.reduce(ReduceOp::sum, PerReplica<Tensor>{mine});
        right += same_bits(sum.to_vector<float>(), expected);
        const auto in_merge = strategy.run([&](ReplicaContext& context) {
          return context.merge_call(
              [&](Strategy& merged, const PerReplica<Tensor>& value) {
                return StrategyExtended{merged}.reduce_to(ReduceOp::sum, value,
                                                          StrategyExtended::OneReplica{ranks - 1});
              },
              args(mine));
        });
        if (in_merge.local()) right += same_bits(in_merge.local()->to_vector<float>(), expected);
      });
      CHECK(right == ranks + 1);
    }
  }
}

TEST_CASE("the communicator moves what it says, on any number of ranks") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
      Communicator& data = inside(strategy).group().host_plane();
      CHECK(data.rank() == rank);
      CHECK(data.size() == ranks);
      CHECK(data.backend() == "sim");

      // Slice r has r + 1 elements.
      std::vector<std::int64_t> bounds{0};
      for (int r = 0; r < ranks; ++r) bounds.push_back(bounds.back() + r + 1);
      const auto mine = bounds[static_cast<std::size_t>(rank)];
      std::vector<float> numbers(static_cast<std::size_t>(bounds.back()));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = as_float(100 * rank) + static_cast<float>(i);

      for (int root = 0; root < ranks; ++root) {
        const Tensor sent = of({as_float(rank), 7});
        data.broadcast(sent.view(), root).wait();
        CHECK(sent.to_vector<float>() == std::vector<float>{as_float(root), 7});

        const Tensor gathered = tensor_of(numbers);
        data.gather(gathered.view(), bounds, root).wait();
        const auto got = gathered.to_vector<float>();
        for (int from = 0; from < ranks; ++from)
          for (auto i = bounds[static_cast<std::size_t>(from)]; i < bounds[static_cast<std::size_t>(from) + 1]; ++i)
            CHECK(got[static_cast<std::size_t>(i)] ==
                  as_float(100 * (rank == root ? from : rank)) + static_cast<float>(i));

        const Tensor reduced = of({as_float(rank + 1)});
        data.reduce(reduced.view(), root).wait();
        if (rank == root) CHECK(reduced.to_vector<float>()[0] == as_float(ranks * (ranks + 1) / 2));
      }

      const Tensor whole = tensor_of(numbers);
      data.all_gather(whole.view(), bounds).wait();
      CHECK(whole.to_vector<float>()[0] == 0);
      CHECK(whole.to_vector<float>().back() == as_float(100 * (ranks - 1)) + static_cast<float>(bounds.back() - 1));

      const std::int64_t piece = rank + 1;
      const Tensor received = Tensor::zeros(DType::f32, {piece * ranks});
      data.all_to_all(tensor_of(numbers).view(), bounds, received.view()).wait();
      const auto pieces = received.to_vector<float>();
      for (int from = 0; from < ranks; ++from)
        for (std::int64_t i = 0; i < piece; ++i)
          CHECK(pieces[static_cast<std::size_t>(from * piece + i)] ==
                as_float(100 * from) + static_cast<float>(mine + i));

      const Tensor sum = Tensor::from({std::int64_t{1} << rank}, {1});
      data.all_reduce(sum.view()).wait();
      CHECK(sum.to_vector<std::int64_t>()[0] == (std::int64_t{1} << ranks) - 1);
      CHECK_THROWS_AS(data.all_reduce(Tensor::zeros(DType::f16, {2}).view()).wait(), InvalidArgument);
    });
  }
}

TEST_CASE("ranks of several nodes add up within them first, to the same bits", "[E-13]") {
  for (const int ranks_per_node : {1, 2, 3, 4, 8}) {
    const auto parts = make_parts<float>(8, 80'000);
    const auto expected = tree(parts);
    int right = 0;
    std::vector<std::string> on_node, between_nodes;
    sim::Options options{.ranks = 8, .ranks_per_node = ranks_per_node, .seed = 3};
    options.trace = [&](std::string_view line) {
      if (line.find("replica 0: all_to_all") != line.npos) on_node.emplace_back(line);
      if (line.find("replica 0: an exchange of parcels") != line.npos) between_nodes.emplace_back(line);
    };
    sim::run(std::move(options), [&](Strategy& strategy, int rank) {
      const Tensor sum = strategy.reduce(ReduceOp::sum, PerReplica{tensor_of(parts[static_cast<std::size_t>(rank)])});
      right += same_bits(sum.to_vector<float>(), expected);
    });
    CAPTURE(ranks_per_node, on_node, between_nodes);
    CHECK(right == 8);
    // Replica 0 exchanges with its node, and with those that carry its slice on other nodes; or with all where nodes
    // would change bits.
    const bool has_hierarchy = ranks_per_node == 2 || ranks_per_node == 4, is_one_node = ranks_per_node == 8;
    CHECK(on_node.size() == (has_hierarchy || is_one_node ? 1 : 0));
    // Two that measure the latency, and three pieces, there and back.
    CHECK(between_nodes.size() == (is_one_node ? 0 : 8));
    const std::string among = fmt::format("among {} ranks", has_hierarchy ? 8 / ranks_per_node : 8);
    for (const std::string& each : between_nodes) CHECK_THAT(each, Catch::EndsWith(among));
  }
}

TEST_CASE("ranks of a group that wait for one that is elsewhere are told where they are", "[E-13]") {
  const SimOutcome outcome = outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) {
    const auto half =
        inside(strategy).group().host_plane().subset(rank < 2 ? std::vector{0, 1} : std::vector{2, 3}, 16);
    CHECK(half->size() == 2);
    CHECK(half->rank() == rank % 2);
    if (rank != 3) half->all_reduce(of({1, 2}).view()).wait();
    strategy.run([](ReplicaContext&) {});
  });
  CHECK(outcome.is<StallError>());
  CHECK_THAT(outcome.what(), Catch::Contains("replica 2 (worker:2, host sim) is in all_reduce of f32[2]"));
}

TEST_CASE("options of nodes and reductions that make no sense are refused") {
  const auto nothing = [](Strategy&, int) {};
  CHECK_THROWS_WITH(sim::run({.ranks_per_node = 0}, nothing), "sim: 0 ranks a node: expected one or more");
  CHECK_THROWS_AS(sim::run({.reductions = {.packing = ReductionOptions::into_packs(0)}}, nothing), InvalidArgument);
}

TEST_CASE("the order of the backend's sum is the same on every rank, and not always the ranks'") {
  constexpr int ranks = 7;
  const auto parts = make_parts<float>(ranks, 200);
  std::vector<float> in_rank_order(200);
  for (const auto& part : parts)
    for (std::size_t i = 0; i < part.size(); ++i) in_rank_order[i] += part[i];
  std::vector<std::vector<float>> sums[2];
  sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
    for (auto& sum : sums) {
      const Tensor mine = tensor_of(parts[static_cast<std::size_t>(rank)]);
      inside(strategy).group().host_plane().all_reduce(mine.view()).wait();
      sum.push_back(mine.to_vector<float>());
    }
  });
  for (const auto& sum : sums)
    for (const auto& of_rank : sum) CHECK(same_bits(of_rank, sum[0]));
  CHECK_FALSE(same_bits(sums[0][0], sums[1][0]));
}

TEST_CASE("collectives that are started together are waited for in any order") {
  sim::run({.ranks = 4}, [](Strategy& strategy, int rank) {
    Communicator& data = inside(strategy).group().host_plane();
    const Tensor first = of({as_float(rank)});
    const Tensor second = of({as_float(10 * rank)});
    Work of_first = data.all_reduce(first.view());
    Work of_second = data.all_reduce(second.view());
    const bool other_way_round = rank % 2 == 1;
    (other_way_round ? of_second : of_first).wait();
    (other_way_round ? of_first : of_second).wait();
    CHECK(first.to_vector<float>()[0] == 6);
    CHECK(second.to_vector<float>()[0] == 60);
  });
}

TEST_CASE("whoever only sends does not wait") {
  sim::run({.ranks = 4}, [](Strategy& strategy, int rank) {
    Communicator& data = inside(strategy).group().host_plane();
    if (rank == 3) sim::sleep(10s);
    const Tensor value = of({as_float(rank)});
    data.broadcast(value.view(), 0).wait();
    if (rank < 3) CHECK(sim::now() < 10s);
    data.reduce(value.view(), 3).wait();
    if (rank < 3) CHECK(sim::now() < 10s);
  });
}

TEST_CASE("a tensor that is written to before its collective is waited for is a CommError") {
  const SimOutcome outcome = outcome_of({.ranks = 3}, [](Strategy& strategy, int rank) {
    const Tensor value = of({as_float(rank)});
    Work work = inside(strategy).group().host_plane().all_reduce(value.view());
    if (rank == 1) value.view().elements<float>()[0] = 5;
    work.wait();
  });
  CHECK(outcome.is<CommError>());
  CHECK(outcome.what() == "all_reduce of f32[1]: its tensor was written to before wait() returned");
}

TEST_CASE("memory that a communicator gave, and that nobody wrote, is no number") {
  sim::run({.ranks = 2}, [](Strategy& strategy, int) {
    Communicator& data = inside(strategy).group().host_plane();
    const Buffer buffer = data.allocate(sizeof(float));
    const float held = *reinterpret_cast<const float*>(buffer.data());
    CHECK(held != held);
    const Tensor value = of({1});
    data.reduce(value.view(), 0).wait();
    const float left = value.to_vector<float>()[0];
    if (data.rank() == 1) CHECK(left != left);
  });
}

TEST_CASE("ranks in different data collectives are a CommError that names both") {
  struct Case {
    const char* says[2];
    std::function<Work(Communicator&, const TensorView&)> call[2];
  };
  const std::vector<std::int64_t> thirds{0, 1, 2, 3};
  const std::vector<std::int64_t> uneven{0, 0, 1, 3};
  const auto all_reduce = [](Communicator& data, const TensorView& view) { return data.all_reduce(view); };
  const std::vector<Case> cases{
      {{"all_reduce of f32[3]", "broadcast of f32[3] from replica 0"},
       {all_reduce, [](Communicator& data, const TensorView& view) { return data.broadcast(view, 0); }}},
      {{"all_reduce of f32[3]", "all_reduce of f32[2]"},
       {all_reduce, [](Communicator& data, const TensorView& view) { return data.all_reduce(view.slice(0, 2)); }}},
      {{"broadcast of f32[3] from replica 0", "broadcast of f32[3] from replica 1"},
       {[](Communicator& data, const TensorView& view) { return data.broadcast(view, 0); },
        [](Communicator& data, const TensorView& view) { return data.broadcast(view, 1); }}},
      {{"all_gather of f32[3] cut at 0 1 2 3", "all_gather of f32[3] cut at 0 0 1 3"},
       {[&](Communicator& data, const TensorView& view) { return data.all_gather(view, thirds); },
        [&](Communicator& data, const TensorView& view) { return data.all_gather(view, uneven); }}}};
  for (const Case& each : cases) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      CAPTURE(each.says[0], each.says[1], seed);
      const SimOutcome outcome = outcome_of({.ranks = 3, .seed = seed}, [&](Strategy& strategy, int rank) {
        const Tensor value = of({1, 2, 3});
        each.call[rank == 2 ? 1 : 0](inside(strategy).group().host_plane(), value.view()).wait();
        strategy.run([](ReplicaContext&) {});
      });
      CHECK(outcome.is<CommError>());
      CHECK_THAT(outcome.what(),
                 Catch::Contains("replica 2 (worker:2, host sim) is in " + std::string{each.says[1]}) &&
                     Catch::Contains("is in " + std::string{each.says[0]}) &&
                     Catch::EndsWith("expected the same of every rank (collective #1 of the data plane)"));
      for (int rank = 0; rank < 3; ++rank) CHECK(outcome.what(rank) == outcome.what());
    }
  }
}

TEST_CASE("ranks that wait for each other on different planes are told at once who is where") {
  const SimOutcome outcome = outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) {
    strategy.run([](ReplicaContext&) {});
    if (rank == 2) {
      inside(strategy).group().host_plane().all_reduce(of({1, 2}).view()).wait();
    } else {
      strategy.run([](ReplicaContext& context) { context.merge_call([](Strategy&) {}); });
    }
  });
  CHECK(outcome.is<StallError>());
  CHECK_THAT(outcome.what(),
             Catch::StartsWith("replica 2 (worker:2, host sim) is in all_reduce of f32[2] after the end of "
                               "the step; replicas 0, 1, 3 are at merge_call #1 (sim_planes.cpp:"));
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(outcome.is<StallError>(rank));
    CHECK(outcome.what(rank) == outcome.what());
  }
  const SimOutcome finished = outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) {
    strategy.run([&](ReplicaContext&) {
      if (rank == 1) inside(strategy).group().host_plane().all_reduce(of({1, 2}).view()).wait();
    });
  });
  CHECK(finished.what() ==
        "replica 1 (worker:1, host sim) is in all_reduce of f32[2] after the start of the job; replicas 0, 2, 3 have "
        "finished the step");
}

TEST_CASE("a failure in a data collective ends the job, and is a PeerError on the others") {
  int own = 0, peers = 0;
  const ReductionOptions reductions{.kind = ReductionOptions::Kind::to_one_rank,
                                    .accumulate = [](std::span<const TensorView>, const TensorView&, Stream&) {
                                      throw InvalidArgument{"nobody can add this up"};
                                    }};
  const SimOutcome outcome = outcome_of({.ranks = 3, .reductions = reductions}, [&](Strategy& strategy, int) {
    try {
      (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
    } catch (const InvalidArgument&) {
      ++own;
      throw;
    } catch (const PeerError&) {
      ++peers;
      throw;
    }
  });
  CHECK(outcome.is<InvalidArgument>());
  CHECK(own == 1);
  CHECK(peers == 2);
}
