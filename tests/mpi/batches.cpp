// Several values with their variables: dense and sparse in one batch, and the lists that programs write.
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using DenseOrSlices = std::variant<Tensor, IndexedSlices>;

/// Two variables, sealed.
struct Two {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable w = make("w"), b = make("b");

  Two() { strategy.seal(); }

 private:
  MirroredVariable make(const char* name) {
    return strategy.create_variable({.name = name}, [] { return Tensor::from({0.f, 0.f}, {2}); });
  }
};

/// (rank + 1) times {1, factor}.
PerReplica<Tensor> dense(float factor = 1) {
  const auto own = static_cast<float>(rank() + 1);
  return PerReplica{Tensor::from({own, factor * own}, {2})};
}

/// One row of nine, at `rank`: {rank + 1, 0.5}.
IndexedSlices own_row() {
  return {Tensor::from({1.f * (rank() + 1), 0.5f}, {1, 2}), Tensor::from({std::int64_t{rank()}}, {1}), {9, 2}};
}

void check_all_slices(const IndexedSlices& all) {
  std::vector<std::int64_t> rows;
  std::vector<float> values;
  for (int replica = 0; replica < ranks(); ++replica) {
    rows.push_back(replica);
    values.insert(values.end(), {replica + 1.f, 0.5f});
  }
  CHECK(all.indices.to_vector<std::int64_t>() == rows);
  CHECK(all.values.to_vector<float>() == values);
  CHECK(all.dense_shape == Shape{9, 2});
}

void check_sum(const Mirrored<Tensor>& sum, float factor = 1) {
  const auto total = static_cast<float>(triangle());
  CHECK(sum.value().to_vector<float>() == std::vector{total, factor * total});
}

}  // namespace

TEST_CASE("dense values and slices are reduced in one batch, each back at its place, with one agreement",
          "[A-60][E-21][E-26]") {
  Two two;
  using Pair = std::pair<PerReplica<DenseOrSlices>, Variable>;
  const std::vector<Pair> batch{{PerReplica<DenseOrSlices>{own_row()}, two.w},
                                {PerReplica<DenseOrSlices>{dense(3).local()}, two.b},
                                {PerReplica<DenseOrSlices>{own_row()}, two.b},
                                {PerReplica<DenseOrSlices>{dense(5).local()}, two.w}};
  const auto before = inside(two.strategy).group().meeting().meetings();
  const std::vector<Mirrored<DenseOrSlices>> sums =
      StrategyExtended{two.strategy}.batch_reduce_to(ReduceOp::sum, batch);
  CHECK(inside(two.strategy).group().meeting().meetings() == before + 1);
  REQUIRE(sums.size() == 4);
  const auto total = static_cast<float>(triangle());
  check_all_slices(std::get<IndexedSlices>(sums[0].value()));
  CHECK(std::get<Tensor>(sums[1].value()).to_vector<float>() == std::vector{total, 3 * total});
  check_all_slices(std::get<IndexedSlices>(sums[2].value()));
  CHECK(std::get<Tensor>(sums[3].value()).to_vector<float>() == std::vector{total, 5 * total});
}

TEST_CASE("a batch of slices alone gives slices", "[A-60]") {
  Two two;
  const std::vector<std::pair<PerReplica<IndexedSlices>, MirroredVariable>> batch{{PerReplica{own_row()}, two.w}};
  const std::vector<Mirrored<IndexedSlices>> sums =
      StrategyExtended{two.strategy}.batch_reduce_to(ReduceOp::sum, batch);
  REQUIRE(sums.size() == 1);
  check_all_slices(sums[0].value());
}

TEST_CASE("a value that is dense on one rank and slices on another is a mismatch that shows both", "[E-26]") {
  if (ranks() == 1) return;
  Two two;
  const DenseOrSlices own = odd_one() ? DenseOrSlices{own_row()} : DenseOrSlices{Tensor::zeros(DType::f32, {9, 2})};
  const std::vector<std::pair<PerReplica<DenseOrSlices>, Variable>> batch{{PerReplica{own}, two.w}};
  CHECK_THAT(
      mismatch_of([&] { (void)StrategyExtended{two.strategy}.batch_reduce_to(ReduceOp::sum, batch); }),
      Catch::Contains("sum of f32[9, 2] for 'w'") && Catch::Contains("sum of slices f32[…, 2] of [9, 2] for 'w'"));
  expect_in_step();
}

TEST_CASE("a batch is written in braces, or held with handles of the variables' own type", "[A-60][E-11]") {
  Two two;
  const StrategyExtended extended{two.strategy};
  const auto in_braces = extended.batch_reduce_to(ReduceOp::sum, {{dense(3), two.w}, {dense(5), two.b}});
  REQUIRE(in_braces.size() == 2);
  check_sum(in_braces[0], 3);
  check_sum(in_braces[1], 5);
  const auto one = extended.batch_reduce_to(ReduceOp::sum, {{dense(), two.w}});
  REQUIRE(one.size() == 1);
  check_sum(one[0]);
  const std::vector<std::pair<PerReplica<Tensor>, MirroredVariable>> held{{dense(3), two.w}};
  const auto of_held = extended.batch_reduce_to(ReduceOp::sum, held);
  REQUIRE(of_held.size() == 1);
  check_sum(of_held[0], 3);
}

TEST_CASE("variables are given in braces, whatever their types, or as a list of one type", "[A-62]") {
  Two two;
  const StrategyExtended extended{two.strategy};
  const SyncOnReadVariable counter = two.strategy.create_sync_on_read(
      {.name = "counter", .aggregation = Variable::Aggregation::sum}, [] { return Tensor::scalar(0.f); });
  two.strategy.seal();
  const std::vector<MirroredVariable> mirrored{two.w, two.b};
  int calls = 0;
  extended.update_non_slot({two.w}, [&] { ++calls; });
  extended.update_non_slot({two.w, counter}, [&] { ++calls; });
  extended.update_non_slot(
      mirrored, [&](int by) { calls += by; }, args(10));
  CHECK(calls == 12);
  const std::vector<std::string> own = extended.non_slot_devices({two.w});
  CHECK(own.size() == 1);
  CHECK(extended.non_slot_devices(mirrored) == own);

  counter.assign(Tensor::scalar(7.f));
  const std::vector<Tensor> values = extended.read_vars({two.w, counter});
  REQUIRE(values.size() == 2);
  CHECK(values[0].to_vector<float>() == std::vector<float>{0, 0});
  CHECK(values[1].to_vector<float>() == std::vector<float>{7});
  CHECK(Optimizer::gradients_in_store(two.strategy.store(), mirrored).size() == 2);
}

TEST_CASE("gradients are written in braces, each beside its variable") {
  Two two;
  Sgd sgd{{.learning_rate = 0.5}};
  const auto total = static_cast<float>(triangle());
  two.strategy.run([&](ReplicaContext& context) {
    const Tensor own = dense(2).local();
    sgd.apply_gradients(context, {{own, two.w}, {own, two.b}});
    const std::int64_t samples = rank() == 0 ? 2 : 0;
    sgd.apply_gradients(context, {{own, two.w}}, samples);
    const Optimizer::StepSums sums =
        sgd.apply_gradients(context, {{own, two.b}}, Optimizer::StepSums{.samples = samples, .loss = 0.5});
    CHECK(sums.loss == 0.5 * ranks());
    sgd.apply_gradients(context, {});
  });
  const float expected = -0.5f * total - 0.25f * total;
  for (const MirroredVariable& variable : {two.w, two.b})
    CHECK(variable.local().to_vector<float>() == std::vector{expected, 2 * expected});
}
