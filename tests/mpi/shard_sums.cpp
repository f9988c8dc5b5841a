// Sums over shards of ranks whose shares differ: the bits of one rank that has all shards.
#include "support/shard_sums.hpp"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/sync/optim/audit.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "support/ranks.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using StepSums = Optimizer::StepSums;

/// The weights after two steps of a program that adds up its own shards, and the last loss.
std::pair<std::vector<double>, double> trained(Strategy& strategy, int shards) {
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {3}); });
  strategy.seal();
  Sgd sgd{{.learning_rate = 0.3, .momentum = 0.9, .clip_norm = 2}};
  const auto gradients = Optimizer::gradients_in_store(strategy.store(), {w});
  const Range own = Range::of_rank(shards, strategy.num_replicas_in_sync(), strategy.rank());
  FixedOrderAccumulator sum{DType::f64, 3}, losses{DType::f64, 1};
  double loss = 0;
  for (int step = 0; step < 2; ++step)
    strategy.run([&](ReplicaContext& context) {
      for (std::int64_t shard = own.first; shard < own.last; ++shard) {
        const auto part = sum.next();
        for (std::size_t i = 0; i < 3; ++i)
          part.elements<double>()[i] = std::sqrt(static_cast<double>(shard + 1)) / (static_cast<double>(i) + 3);
        losses.next().elements<double>()[0] = std::sqrt(static_cast<double>(2 * shard + step + 1));
        sum.push();
        losses.push();
      }
      sum.finish(gradients[0].value.view());
      StepSums mine{.samples = own.size()};
      losses.finish({reinterpret_cast<std::byte*>(&mine.loss), {1}, DType::f64});
      loss = sgd.apply_gradients(context, {.gradients = gradients, .own = mine, .shards = shards}).loss;
    });
  strategy.attest();
  return {w.local().to_vector<double>(), loss};
}

template <class T>
void check_sums() {
  Strategy strategy = runtime().make_strategy({.kind = ReductionOptions::Kind::fixed_order});
  bool has_several = ranks() == 1;
  for (const int shards : {8, 13, 20}) {
    if (shards < ranks()) continue;
    has_several |= Shares::even(shards, ranks()).has_several();
    for (const std::int64_t count : {3, 20'000}) {
      CAPTURE(shards, count);
      ShardSums<T> sums{inside(strategy).reductions(), rank(), ranks(), shards, count};
      for (const auto& results : {sums.results(), sums.results_of_subtrees()})
        for (const auto& [what, is_right] : results) {
          CAPTURE(what);
          CHECK(is_right);
        }
    }
  }
  REQUIRE(has_several);
}

}  // namespace

TEST_CASE("ranks add up the rest of the tree over shards, short and long") {
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) return;
  check_sums<float>();
  check_sums<double>();
}

TEST_CASE("a program that adds up its own shards gets the bits of one rank") {
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) return;  // a group of one would be on the host
  for (const int shards : {6, 8, 11}) {
    if (shards < ranks()) continue;
    CAPTURE(shards);
    Strategy strategy = runtime().make_strategy();
    const auto group = make_local_group();
    Strategy alone = strategy_on(*group);
    CHECK(trained(strategy, shards) == trained(alone, shards));
  }
}

TEST_CASE("ranks that add up other numbers of shards hear of that, and a number that cannot be is refused") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
  strategy.seal();
  Sgd sgd{{.learning_rate = 1}};
  const auto step = [&](int shards, Optimizer::Audit* audit = nullptr) {
    strategy.run([&](ReplicaContext& context) {
      sgd.apply_gradients(context,
                          {.gradients = {{Tensor::scalar(1.0), w}}, .own = 1, .shards = shards, .audit = audit});
    });
  };
  if (ranks() > 1) CHECK_THROWS_AS(step(odd_one() ? 11 : 16), MismatchError);
  CHECK_THROWS_WITH(step(-1), Catch::Contains("-1 shards; expected 0 or more"));
  Optimizer::Audit audit{strategy, {.every = 5, .shards = 11}, [](std::int64_t, Optimizer::Audit::Results&) {}};
  CHECK_THROWS_WITH(step(16, &audit), Catch::Contains("16 shards, and an audit of 11; expected the same"));
  if (ranks() > 1) CHECK_THROWS_WITH(step(1), Catch::Contains("1 shard for " + std::to_string(ranks()) + " ranks"));
}
