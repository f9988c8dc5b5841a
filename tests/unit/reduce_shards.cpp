// Sums over shards on any number of ranks and nodes: the bits of one rank that has all shards.
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "support/reductions_of.hpp"
#include "support/shard_sums.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/paths.hpp"

using namespace lockstep;
using lockstep::test::on_threads;
using lockstep::test::ThreadCommunicator;

namespace {

enum class Of { whole_subtrees, several };

/// What some rank has got wrong, on nodes of so many ranks.
template <class T>
std::string wrong(ReductionOptions::Kind kind, int ranks, int ranks_of_node, int shards, std::int64_t count,
                  Of of = Of::whole_subtrees) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / ranks_of_node);
  std::vector<std::string> of_rank(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](ThreadCommunicator& communicator) {
    const int rank = communicator.rank();
    const auto reductions = test::reductions_of(communicator, {.kind = kind}, nodes);
    test::ShardSums<T> sums{*reductions, rank, ranks, shards, count};
    for (const auto& [what, is_right] : of == Of::several ? sums.results_of_subtrees() : sums.results())
      if (!is_right) of_rank[static_cast<std::size_t>(rank)] += what + " on " + std::to_string(rank) + "; ";
  });
  std::string all;
  for (const std::string& each : of_rank) all += each;
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("a sum over shards has the same bits on any number of ranks", "", float, double) {
  for (const auto& [shards, ranks] : {std::pair{8, 3}, {8, 5}, {8, 7}, {6, 2}, {6, 4}, {6, 5}, {11, 4}, {16, 9}})
    for (const std::int64_t count : {3, 5'000}) {
      CAPTURE(shards, ranks, count);
      CHECK(wrong<TestType>(ReductionOptions::Kind::fixed_order, ranks, ranks, shards, count) == "");
      CHECK(wrong<TestType>(ReductionOptions::Kind::to_one_rank, ranks, ranks, shards, count) == "");
    }
}

TEST_CASE("a sum over shards has the same bits on any number of nodes") {
  for (const auto& [ranks, ranks_of_node] : {std::pair{5, 1}, {5, 2}, {6, 2}, {10, 2}, {7, 4}})
    for (const int shards : {10, 16})
      for (const std::int64_t count : {3, 5'000}) {
        CAPTURE(ranks, ranks_of_node, shards, count);
        CHECK(wrong<float>(ReductionOptions::Kind::automatic, ranks, ranks_of_node, shards, count) == "");
      }
}

TEMPLATE_TEST_CASE("a sum over shards has the same bits where ranks have several subtrees", "", float, double) {
  // In the last case, the second of three nodes has two subtrees, and adds up one of them from five parts of its ranks.
  for (const auto& [shards, ranks, on_nodes] : {std::tuple{8, 3, 1}, {16, 6, 2}, {32, 7, 1}, {32, 12, 4}})
    for (const int ranks_of_node : {ranks, on_nodes})
      for (const std::int64_t count : {6, 20'000}) {
        CAPTURE(shards, ranks, ranks_of_node, count);
        REQUIRE(Shares::even(shards, ranks).has_several());
        CHECK(wrong<TestType>(ReductionOptions::Kind::automatic, ranks, ranks_of_node, shards, count, Of::several) ==
              "");
      }
}

TEST_CASE("nodes of any number of ranks add up their own subtrees, with the same bits") {
  for (const auto& [shards, ranks, on_nodes] : {std::tuple{8, 6, 3}, {12, 5, 3}, {32, 10, 5}, {16, 8, 3}})
    for (const std::int64_t count : {6, 20'000}) {
      CAPTURE(shards, ranks, on_nodes, count);
      CHECK(wrong<float>(ReductionOptions::Kind::automatic, ranks, on_nodes, shards, count, Of::several) == "");
      CHECK(wrong<float>(ReductionOptions::Kind::automatic, ranks, on_nodes, shards, count) == "");
    }
}

TEST_CASE("gradients of shards cross the network once per node, for each of its subtrees and back") {
  const auto sent = [](const std::vector<int>& nodes, std::int64_t bytes) {
    std::vector<std::int64_t> of_rank(nodes.size());
    on_threads(static_cast<int>(nodes.size()), [&](ThreadCommunicator& communicator) {
      const auto reductions = test::reductions_of(communicator, {}, nodes);
      const Reductions::OfShards of_shards{*reductions, 8};
      const Tensor sum = Tensor::zeros(DType::u8, {bytes});
      Work work = reductions->start(sum.view());
      of_rank[static_cast<std::size_t>(communicator.rank())] = work.traffic().all;
      work.wait();
    });
    return std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0});
  };
  CHECK(sent({0, 0, 0, 0, 1, 1, 1, 1}, 96'000) == 2 * 96'000);
  CHECK(sent({0, 0, 0, 1, 1, 1}, 96'000) == 3 * 96'000);   // two subtrees on each node, of 2 and 1, and of 1 and 4
  CHECK(sent({0, 0, 0, 1, 1, 1}, 12'000) == 10 * 12'000);  // short, and flat
  CHECK(sent({0, 0, 0, 1}, 96'000) == 6 * 96'000);         // flat: a node has one rank
}

TEST_CASE("what is sent for several subtrees is known, by nodes if sums go by nodes") {
  const auto sent = [](int shards, const std::vector<int>& nodes) {
    const auto ranks = static_cast<int>(nodes.size());
    int most = 0;
    on_threads(ranks, [&](ThreadCommunicator& communicator) {
      const auto reductions = test::reductions_of(communicator, {}, nodes);
      if (communicator.rank() == 0) most = reductions->subtrees_sent(Shares::even(shards, ranks));
    });
    return most;
  };
  CHECK(sent(13, {0, 0, 0, 0, 0, 0}) == 2);
  CHECK(sent(13, {0, 0, 1, 1, 2, 2}) == 1);  // 4, 4 and 5 shards
  CHECK(sent(16, {0, 0, 0, 1, 1, 1}) == 3);
  CHECK(sent(17, {0, 0, 1, 1, 2, 2}) == 4);  // the second: 5, 6 to 7, 8 to 9, and 10
}

TEST_CASE("parts of several subtrees lie where the sum does, and are not rounded") {
  on_threads(1, [](ThreadCommunicator& communicator) {
    const auto reductions = test::in_fixed_order(communicator);
    const Shares shares = Shares::even(8, 3);
    const Tensor sum = Tensor::zeros(DType::f32, {4}), rounded = Tensor::zeros(DType::bf16, {4});
    const Subtrees subtrees{*reductions, shares, 0, sum.view().slice(1, 2)};
    CHECK(subtrees.others_of(sum.view().slice(2, 1)).size() == 1);
    for (const TensorView& outside : {sum.view().slice(0, 1), sum.view().slice(2, 2)})
      CHECK_THROWS_WITH(subtrees.others_of(outside), Catch::Contains("is not in the memory of the sum"));
    CHECK_THROWS_WITH((Subtrees{*reductions, shares, 0, rounded.view()}), Catch::Contains("subtrees of bf16 would be"));
    CHECK_THROWS_WITH((PlacedSum{shares, 0, DType::f16, 1}), Catch::Contains("subtrees of f16 would be rounded"));
  });
}

TEST_CASE("without its shards, a sum of shares that differ has other bits") {
  bool differs = false;
  on_threads(5, [&](ThreadCommunicator& communicator) {
    const auto reductions = test::in_fixed_order(communicator);
    test::ShardSums<float> sums{*reductions, communicator.rank(), 5, 8, 1000};
    const auto with = sums.sum_over(8), without = sums.sum_over(0);
    if (communicator.rank() == 0) differs = with != without;
  });
  CHECK(differs);
}

TEST_CASE("of the tree over ranks, that over nodes is left where each node has a subtree") {
  using Additions = std::vector<std::uint8_t>;
  const auto over_nodes = [](int shards, std::vector<int> nodes) {
    return detail::additions_over_nodes(Shares{shards, static_cast<int>(nodes.size())}.additions(), nodes);
  };
  // Ten ranks of 16 shards: ((01 23) 45) (67 89), by nodes ((0 1) 2) (3 4).
  CHECK(over_nodes(16, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4}) == Additions{0, 1, 1, 0, 2});
  CHECK(over_nodes(8, {0, 1, 2, 3, 4}) == Additions{0, 1, 1, 0, 2});
  CHECK(over_nodes(8, {0, 0, 1, 2, 2}) == Additions{0, 1, 1});  // ((01) 2) (34)
  CHECK_FALSE(over_nodes(8, {0, 0, 1, 1, 2}));                  // 2 is no neighbour of 3 in the tree
  CHECK_FALSE(over_nodes(8, {0, 1, 0, 1, 2}));
}
