// The kinds of reductions besides the flat fixed order, and the rule that picks one.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "reduce_support.hpp"
#include "support/done_communicator.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Nodes = std::vector<int>;
constexpr DeviceKind host = DeviceKind::cpu;

/// The tree of each node, in the order of their first ranks.
template <class T>
std::vector<std::vector<unrounded_t<T>>> trees_of_nodes(const std::vector<std::vector<T>>& parts, const Nodes& nodes) {
  using Sum = unrounded_t<T>;
  std::vector<int> order;
  for (const int node : nodes)
    if (std::find(order.begin(), order.end(), node) == order.end()) order.push_back(node);
  std::vector<std::vector<Sum>> sums;
  for (const int node : order) {
    std::vector<std::vector<Sum>> of_node;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      if (nodes[rank] == node) of_node.emplace_back(parts[rank].begin(), parts[rank].end());
    sums.push_back(tree(of_node));
  }
  return sums;
}

/// The documented sum over nodes: the tree over those of the nodes.
template <class T>
std::vector<T> tree_of_nodes(const std::vector<std::vector<T>>& parts, const Nodes& nodes, int divisor) {
  using Sum = unrounded_t<T>;
  std::vector<T> rounded;
  for (const Sum sum : tree(trees_of_nodes(parts, nodes)))
    rounded.push_back(static_cast<T>(static_cast<Sum>(sum / static_cast<Sum>(divisor))));
  return rounded;
}

/// What each rank has after `operation` on its part.
template <class T>
std::vector<std::vector<T>> after(const std::vector<std::vector<T>>& parts,
                                  const std::function<std::unique_ptr<Reductions>(Communicator&)>& make,
                                  const std::function<void(Reductions&, const TensorView&)>& operation) {
  std::vector<std::vector<T>> results(parts.size());
  on_threads(static_cast<int>(parts.size()), [&](ThreadCommunicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor mine = tensor_of(parts[rank]);
    operation(*make(communicator), mine.view());
    results[rank] = mine.template to_vector<T>();
  });
  return results;
}

template <class T>
bool all_same_bits(const std::vector<std::vector<T>>& results, const std::vector<T>& expected) {
  return std::all_of(results.begin(), results.end(),
                     [&](const std::vector<T>& result) { return same_bits(result, expected); });
}

const std::vector<Nodes> layouts{
    {0},          {0, 0},          {0, 1},       {0, 0, 1, 1},       {0, 0, 0, 1},
    {7, 2, 2, 2}, {0, 0, 1, 1, 2}, {0, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {3, 3, 3, 3, 1, 1, 1, 1}};

}  // namespace

TEMPLATE_TEST_CASE("a hierarchical sum is the tree of each node and the tree over them, on every rank", "[E-13]", float,
                   double, Half, BFloat16) {
  for (const Nodes& nodes : layouts) {
    const auto ranks = static_cast<int>(nodes.size());
    for (const std::int64_t count : {0, 1, 777, 30'000}) {
      CAPTURE(nodes, count);
      const auto parts = make_parts<TestType>(ranks, count);
      const auto make = [&](Communicator& communicator) { return over_nodes(communicator, nodes); };
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
        const auto expected = tree_of_nodes(parts, nodes, op == ReduceOp::mean ? ranks : 1);
        CHECK(all_same_bits(after<TestType>(parts, make,
                                            [&](Reductions& ops, const TensorView& mine) {
                                              ops.all_reduce(op, {&mine, 1});
                                            }),
                            expected));
        if (detail::hierarchy_keeps_bits(nodes))
          CHECK(same_bits(expected, tree(parts, op == ReduceOp::mean ? ranks : 1)));
      }
    }
  }
}

TEMPLATE_TEST_CASE("compressed gradients are rounded where they leave a node, and where all are there", "[E-13]", Half,
                   BFloat16) {
  for (const Nodes& nodes : layouts) {
    const auto ranks = static_cast<int>(nodes.size());
    for (const std::int64_t count : {0, 1, 777, 30'000}) {
      CAPTURE(nodes, count);
      std::vector<std::vector<float>> parts;
      for (const auto& part : make_parts<Half>(ranks, count)) parts.emplace_back(part.begin(), part.end());
      for (auto& part : parts)
        for (float& value : part) value *= 1.001F;  // with digits for which f16 has no room
      const auto make = [&](Communicator& communicator) {
        return over_nodes(communicator, nodes, detail::dtype_of<TestType>);
      };
      const auto sums = trees_of_nodes(parts, nodes);
      std::vector<std::vector<TestType>> sent;
      for (const auto& sum : sums) {
        sent.emplace_back();
        for (const float value : sum) sent.back().push_back(static_cast<TestType>(value));
      }
      const std::vector<TestType> rounded = tree(sent);
      const std::vector<float> expected =
          sums.size() == 1 ? sums.front() : std::vector<float>(rounded.begin(), rounded.end());
      CHECK(all_same_bits(
          after<float>(parts, make, [](Reductions& ops, const TensorView& mine) { ops.start(mine).wait(); }),
          expected));
      CHECK(all_same_bits(after<float>(parts, make,
                                       [](Reductions& ops, const TensorView& mine) {
                                         ops.all_reduce(ReduceOp::sum, {&mine, 1});
                                       }),
                          tree_of_nodes(parts, nodes, 1)));
    }
  }
}

TEST_CASE("short tensors of several types travel together between nodes of any size", "[E-13]") {
  // Too long for one exchange among the ranks of the large node, and not for one between the nodes.
  const Nodes nodes{0, 0, 0, 0, 0, 0, 1};
  const auto floats = make_parts<float>(7, 1500);
  const auto doubles = make_parts<double>(7, 750);
  std::vector<int> right(nodes.size());
  on_threads(7, [&](ThreadCommunicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor some = tensor_of(floats[rank]), others = tensor_of(doubles[rank]);
    over_nodes(communicator, nodes)->all_reduce(ReduceOp::sum, std::vector{some.view(), others.view()});
    right[rank] = same_bits(some.to_vector<float>(), tree_of_nodes(floats, nodes, 1)) &&
                  same_bits(others.to_vector<double>(), tree_of_nodes(doubles, nodes, 1));
  });
  CHECK(right == std::vector<int>(nodes.size(), 1));
}

TEST_CASE("a hierarchical reduction to one rank, and a broadcast from one, are right for every rank", "[E-13]") {
  for (const Nodes& nodes : layouts) {
    const auto ranks = static_cast<int>(nodes.size());
    const auto parts = make_parts<float>(ranks, 1000);
    const auto make = [&](Communicator& communicator) { return over_nodes(communicator, nodes); };
    for (int root = 0; root < ranks; ++root) {
      CAPTURE(nodes, root);
      const auto at = static_cast<std::size_t>(root);
      const auto means = after<float>(parts, make, [&](Reductions& ops, const TensorView& mine) {
        ops.reduce_to_one(ReduceOp::mean, {&mine, 1}, root);
      });
      CHECK(same_bits(means[at], tree_of_nodes(parts, nodes, ranks)));
      const auto copies = after<float>(parts, make, [&](Reductions& ops, const TensorView& mine) {
        ops.broadcast({&mine, 1}, root);
      });
      CHECK(all_same_bits(copies, parts[at]));
    }
  }
}

TEST_CASE("a hierarchical sum crosses between nodes once a node", "[E-13]") {
  const auto parts = make_parts<float>(4, 30'000);
  std::vector<Call> calls;
  on_threads(
      4,
      [&](ThreadCommunicator& communicator) {
        const auto ops = over_nodes(communicator, Nodes{0, 0, 1, 1});
        const Tensor mine = tensor_of(parts[static_cast<std::size_t>(communicator.rank())]);
        ops->all_reduce(ReduceOp::sum, std::vector{mine.view()});
      },
      &calls);
  CHECK(calls.empty());  // nothing among all ranks: each call was its node's, or the leaders'
}

TEST_CASE("slices of a hierarchical reduction are every rank's rows, in the order of the ranks", "[E-13]") {
  std::vector<std::vector<std::int64_t>> indices(3);
  on_threads(3, [&](ThreadCommunicator& communicator) {
    const auto ops = over_nodes(communicator, Nodes{0, 0, 1});
    const std::int64_t row = communicator.rank();
    std::vector<IndexedSlices> slices{{Tensor::zeros(DType::f32, {1, 2}), Tensor::from({row}, {1}), {3, 2}}};
    ops->all_reduce(ReduceOp::sum, std::span{slices});
    indices[static_cast<std::size_t>(row)] = slices.front().indices.to_vector<std::int64_t>();
  });
  for (const auto& each : indices) CHECK(each == std::vector<std::int64_t>{0, 1, 2});
}

TEST_CASE("a hierarchy needs the node of every rank") {
  const auto local = make_local_communicator();
  CHECK_THROWS_WITH(over_nodes(*local, Nodes{0, 1}), "the nodes of 2 ranks, for a group of 1");
}

TEST_CASE("several nodes over a backend that has no groups of ranks have no hierarchy: refused on every rank",
          "[D-33]") {
  DoneCommunicator undivided{1, 4};
  const Nodes nodes{0, 0, 1, 1};
  for (const ReductionOptions::Kind kind : {ReductionOptions::Kind::automatic, ReductionOptions::Kind::hierarchical})
    CHECK_THROWS_WITH(reductions_of(undivided, {.kind = kind}, nodes),
                      "the backend 'done' makes no communicators of some of its ranks");
}

TEST_CASE("reduction to one rank has the bits of the fixed tree, for every root and large tensors", "[E-17]") {
  const auto make = [](Communicator& communicator) { return on_one_rank(communicator); };
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::int64_t count : {0, 1, 1000, 1'100'000}) {
      CAPTURE(ranks, count);
      const auto parts = make_parts<float>(ranks, count);
      CHECK(all_same_bits(after<float>(parts, make,
                                       [](Reductions& ops, const TensorView& mine) {
                                         ops.all_reduce(ReduceOp::mean, {&mine, 1});
                                       }),
                          tree(parts, ranks)));
      const int root = ranks - 1;
      CHECK(same_bits(after<float>(parts, make,
                                   [&](Reductions& ops, const TensorView& mine) {
                                     ops.reduce_to_one(ReduceOp::sum, {&mine, 1}, root);
                                   })[static_cast<std::size_t>(root)],
                      tree(parts)));
    }
  }
}

TEST_CASE("a function of the program's accumulates what all ranks brought, on one rank, in rank order", "[E-17]") {
  std::vector<int> calls(3, 0);
  // The first rank's digit, then the second's, …: no sum, and not the same in another order.
  const auto make = [&](Communicator& communicator) {
    return on_one_rank(communicator, [&calls, rank = communicator.rank()](std::span<const TensorView> parts,
                                                                          const TensorView& result, Stream&) {
      ++calls[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < static_cast<std::size_t>(result.count()); ++i) {
        float digits = 0;
        for (const TensorView& part : parts) digits = 10 * digits + part.elements<float>()[i];
        result.elements<float>()[i] = digits;
      }
    });
  };
  const std::vector<std::vector<float>> parts{{1, 4}, {2, 5}, {3, 6}};
  CHECK(all_same_bits(after<float>(parts, make,
                                   [](Reductions& ops, const TensorView& mine) {
                                     ops.all_reduce(ReduceOp::sum, {&mine, 1});
                                   }),
                      {123, 456}));
  CHECK(calls == std::vector<int>{1, 0, 0});
  // The mean divides what the function made by the number of ranks.
  CHECK(after<float>(parts, make, [](Reductions& ops, const TensorView& mine) {
          ops.reduce_to_one(ReduceOp::mean, {&mine, 1}, 2);
        })[2] == std::vector<float>{41, 152});
  CHECK(calls == std::vector<int>{1, 0, 1});
}

TEST_CASE("a function that accumulates is for reduction to one rank") {
  const ReductionOptions::Accumulate accumulate = [](std::span<const TensorView>, const TensorView&, Stream&) {};
  CHECK_NOTHROW(require_valid({.kind = ReductionOptions::Kind::to_one_rank, .accumulate = accumulate}));
  CHECK_THROWS_WITH(require_valid({.accumulate = accumulate}),
                    "automatic reductions have an order of their own; a function that accumulates is for "
                    "ReductionOptions::Kind::to_one_rank");
  CHECK_THROWS_AS(require_valid({.kind = static_cast<ReductionOptions::Kind>(9)}), InvalidArgument);
}

TEST_CASE("gradients are compressed to 16 bits, and between nodes") {
  CHECK_NOTHROW(require_valid({.kind = ReductionOptions::Kind::hierarchical, .gradient_compression = DType::f16}));
  CHECK_THROWS_WITH(require_valid({.gradient_compression = DType::f64}),
                    "gradients compressed to f64: expected f16 or bf16");
  CHECK_THROWS_WITH(require_valid({.kind = ReductionOptions::Kind::fixed_order, .gradient_compression = DType::bf16}),
                    "gradients compressed between nodes, with fixed-order reductions; expected hierarchical ones");
  std::string name;
  on_threads(2, [&](ThreadCommunicator& communicator) {
    const auto ops = reductions_of(communicator, {.gradient_compression = DType::bf16}, Nodes{0, 1});
    if (communicator.rank() == 0) name = ops->name();
  });
  CHECK(name == "hierarchical sum");
}

TEST_CASE("the order is picked by what all ranks know, and never one that changes bits", "[E-13][E-15]") {
  using detail::Order;
  const auto order_of = [](DeviceKind device, const Nodes& nodes) {
    return detail::order_of(ReductionOptions::Kind::automatic, device, nodes);
  };
  CHECK(order_of(host, Nodes{0}) == Order::tree);
  CHECK(order_of(host, Nodes{0, 0, 0, 0}) == Order::tree);         // one node
  CHECK(order_of(host, Nodes{0, 1, 2, 3}) == Order::tree);         // one rank a node
  CHECK(order_of(host, Nodes{0, 0, 2, 2}) == Order::nodes);        // two nodes of two
  CHECK(order_of(host, Nodes{5, 5, 1, 1, 3, 3}) == Order::nodes);  // three of two
  CHECK(order_of(host, Nodes{0, 0, 0, 1, 1, 1}) == Order::tree);   // of three: other bits
  CHECK(order_of(host, Nodes{0, 0, 0, 1}) == Order::tree);         // unequal
  CHECK(order_of(host, Nodes{0, 1, 0, 1}) == Order::tree);         // no neighbours
  for (const Nodes& nodes : layouts) {
    CHECK(order_of(DeviceKind::cuda, nodes) == Order::backend);
    // The fixed order goes the same ways on the host, and has none by nodes on GPUs.
    CHECK(detail::order_of(ReductionOptions::Kind::fixed_order, host, nodes) == order_of(host, nodes));
    CHECK(detail::order_of(ReductionOptions::Kind::fixed_order, DeviceKind::cuda, nodes) == Order::tree);
  }
}

TEST_CASE("nodes hold subtrees if each has several ranks, which are neighbours") {
  for (const Nodes& nodes : {Nodes{0, 0, 0, 1, 1, 1}, {7, 7, 3, 3, 3}, {0, 0, 1, 1}})
    CHECK(detail::nodes_hold_subtrees(nodes));
  for (const Nodes& nodes : {Nodes{0, 0, 0}, {0, 1, 2}, {0, 0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 0, 0}})
    CHECK_FALSE(detail::nodes_hold_subtrees(nodes));
}

TEST_CASE("what is asked for is what is made, whatever the rule says", "[E-14]") {
  const Nodes nodes{0, 0, 1, 1};
  const auto name_of_made = [&](ReductionOptions::Kind kind) {
    std::string name;
    on_threads(4, [&](ThreadCommunicator& communicator) {
      const auto ops = reductions_of(communicator, {.kind = kind}, nodes);
      if (communicator.rank() == 0) name = ops->name();
    });
    return name;
  };
  CHECK(name_of_made(ReductionOptions::Kind::automatic) == "hierarchical sum");
  CHECK(name_of_made(ReductionOptions::Kind::hierarchical) == "hierarchical sum");
  CHECK(name_of_made(ReductionOptions::Kind::fixed_order) == "fixed-order sum");
  CHECK(name_of_made(ReductionOptions::Kind::backend_order) == "sum in the backend's order");
  CHECK(name_of_made(ReductionOptions::Kind::to_one_rank) == "reduction to one rank");
}

TEST_CASE("options that ranks compare are text with all that matters") {
  CHECK(describe(ReductionOptions{}) == "automatic reductions");
  CHECK(describe({.gradient_compression = DType::bf16}) == "automatic reductions, gradients in bf16 between nodes");
  CHECK(describe({.kind = ReductionOptions::Kind::hierarchical, .packing = ReductionOptions::into_packs(4)}) ==
        "hierarchical reductions in 4 packs");
  CHECK(describe({.packing = ReductionOptions::group_small(10, 3)}) ==
        "automatic reductions of tensors up to 10 bytes in groups of up to 3");
  CHECK(describe({.kind = ReductionOptions::Kind::backend_order, .packing = ReductionOptions::unpacked()}) ==
        "backend-order reductions of one tensor at a time");
  CHECK(describe({.kind = ReductionOptions::Kind::to_one_rank,
                  .accumulate = [](std::span<const TensorView>, const TensorView&, Stream&) {}}) ==
        "to-one-rank reductions by a function of the program's");
}

TEST_CASE("each tensor is reduced by what its size asks for", "[E-32]") {
  constexpr int ranks = 3;
  const Nodes nodes{0, 1, 1};
  const auto tiny = make_parts<float>(ranks, 2), small = make_parts<float>(ranks, 5),
             large = make_parts<float>(ranks, 6);
  REQUIRE_FALSE(same_bits(tree(tiny), tree_of_nodes(tiny, nodes, 1)));
  std::vector<std::vector<std::int64_t>> accumulated(ranks);  // the bytes of what the function got, on each rank
  std::vector<int> right(ranks, 0);
  on_threads(ranks, [&](ThreadCommunicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto largest = [&](std::span<const TensorView> parts, const TensorView& result, Stream& stream) {
      accumulated[rank].push_back(static_cast<std::int64_t>(result.bytes()));
      copy(parts.back(), result, stream);
    };
    const auto ops =
        reductions_of(communicator,
                      {.kind = ReductionOptions::Kind::fixed_order,
                       .smaller = {{.up_to_bytes = 8, .kind = ReductionOptions::Kind::hierarchical},
                                   {20, ReductionOptions::Kind::to_one_rank, ReductionOptions::unpacked()}},
                       .accumulate = largest},
                      nodes);
    const auto reduce = [&](auto&& operation) {
      const std::vector<Tensor> tensors{tensor_of(large[rank]), tensor_of(small[rank]), tensor_of(tiny[rank]),
                                        tensor_of(small[rank])};
      std::vector<TensorView> views;
      for (const Tensor& tensor : tensors) views.push_back(tensor.view());
      operation(views);
      right[rank] += same_bits(tensors[0].to_vector<float>(), tree(large));
      right[rank] += same_bits(tensors[1].to_vector<float>(), small.back());
      right[rank] += same_bits(tensors[2].to_vector<float>(), tree_of_nodes(tiny, nodes, 1));
      right[rank] += same_bits(tensors[3].to_vector<float>(), small.back());
    };
    reduce([&](const auto& views) { ops->all_reduce(ReduceOp::sum, views); });
    reduce([&](const auto& views) { ops->start_all_reduce(ReduceOp::sum, views).wait(); });
    reduce([&](const auto& views) {
      for (const TensorView& view : views) ops->start(view).wait();
    });
    reduce([&](const auto& views) {
      ops->reduce_to_one(ReduceOp::sum, views, 1);
      ops->broadcast(views, 1);
    });
  });
  CHECK(right == std::vector<int>(ranks, 16));
  CHECK(accumulated[0] == std::vector<std::int64_t>(6, 20));
  CHECK(accumulated[1] == std::vector<std::int64_t>(2, 20));
}

TEST_CASE("reductions by size are refused unless sizes rise and each of them makes sense", "[E-32]") {
  using enum ReductionOptions::Kind;
  const auto refusal = [](const ReductionOptions& options) -> std::string {
    try {
      require_valid(options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return {};
  };
  const auto function = [](std::span<const TensorView>, const TensorView&, Stream&) {};
  CHECK(refusal({.smaller = {{1, fixed_order, {}}, {2, to_one_rank, {}}}, .accumulate = function}).empty());
  CHECK(refusal({.smaller = {{0, fixed_order, {}}}}) ==
        "reductions of tensors up to 0 bytes, after those up to 0; expected sizes that rise");
  CHECK(refusal({.smaller = {{64, fixed_order, {}}, {64, hierarchical, {}}}}) ==
        "reductions of tensors up to 64 bytes, after those up to 64; expected sizes that rise");
  CHECK(refusal({.smaller = {{64, static_cast<ReductionOptions::Kind>(9), {}}}}) ==
        "kind of reductions 9: expected one of ReductionOptions::Kind's");
  CHECK(refusal({.smaller = {{64, fixed_order, ReductionOptions::into_packs(0)}}}) ==
        "`num_packs` must be greater than zero, not 0");
  CHECK_FALSE(refusal({.smaller = {{1, fixed_order, {}}}, .accumulate = function}).empty());
  CHECK(describe({.kind = backend_order,
                  .smaller = {{64, fixed_order, {}}, {4096, to_one_rank, ReductionOptions::into_packs(4)}},
                  .accumulate = function}) ==
        "backend-order reductions, up to 64 bytes fixed-order reductions, up to 4096 bytes to-one-rank reductions in 4 "
        "packs by a function of the program's");
}
