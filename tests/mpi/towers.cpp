// Replicated model functions: what towers get, and the variables that they share.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/values/walks.hpp"
#include "mpi/tower_program.hpp"
#include "support/ranks.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

struct LabelPair {
  Tensor left, right;
  int unnamed = 0;
};
template <>
struct lockstep::Nest<LabelPair> {
  static constexpr auto members = std::tuple{&LabelPair::left, &LabelPair::right};
};

namespace {

using Features = std::map<std::string, Tensor>;

/// The loss is c x - x, summed over the rows of the piece.
EstimatorSpec linear(Tower& tower, const Tensor& features, const std::optional<Tensor>&) {
  const MirroredVariable c = ten(tower);
  float sum = 0;
  for (const float x : features.to_vector<float>()) sum += x;
  const EstimatorSpec spec{.loss = Tensor::scalar((value_of(c) - 1) * sum)};
  TowerOptimizer optimizer{sgd(1)};
  optimizer.apply_gradients(tower, {{vector_of({sum}), c}});
  return spec;
}

}  // namespace

TEST_CASE("a replicated model trains on pieces of a batch as one model on all of it",
          "[J-1][J-4][J-9][J-21][J-24][J-25][J-26][J-31][J-32][J-42]") {
  using enum ReplicateOptions::Reduction;
  for (const ReplicateOptions::Reduction reduction : {sum, mean, sum_over_batch_size, sum_by_nonzero_weights}) {
    TowerProgram program{linear, {.reduction = reduction}};
    const float total = static_cast<float>(triangle()) / (reduction == sum ? 1.F : static_cast<float>(ranks()));
    CHECK(value_of(*program.call().loss) == 9 * total);
    CHECK(program.value() == 10 - total);
    CHECK(value_of(*program.call().loss) == (9 - total) * total);
    program.strategy.attest();
  }
}

TEST_CASE("losses that are not reduced are refused", "[J-2]") {
  CHECK(message_of<InvalidArgument>([] {
          TowerProgram{linear, {.reduction = ReplicateOptions::Reduction::none}};
        }) == "Tower losses need to be reduced in some way, yet none reduction is specified.");
  CHECK(message_of<InvalidArgument>([] {
          TowerProgram{linear, {.reduction = ReplicateOptions::Reduction{9}}};
        }) == "loss reduction 9 is none of sum, mean, sum_over_batch_size, sum_by_nonzero_weights");
  CHECK(message_of<InvalidArgument>([] {
          TowerProgram{linear, {.placement = ReplicateOptions::Placement{9}}};
        }) == "variable placement 9 is none of mirrored, chief, round_robin");
}

TEST_CASE("a tower computes on its rank's device, where its variables are, and may have no loss",
          "[J-3][J-4][J-22][J-40]") {
  TowerProgram program{[](Tower& tower, const Tensor&, const auto&) {
    CHECK(ten(tower).local().device() == tower.context().strategy().stream().kind());
    const auto devices = StrategyExtended{runtime().strategy()}.worker_devices();
    CHECK(tower.context().devices() == std::vector{devices.at(static_cast<std::size_t>(rank()))});
    return EstimatorSpec{};
  }};
  CHECK_FALSE(program.call().loss);
}

TEST_CASE("maps and structs are cut into equal pieces along their rows, and labels are optional", "[J-9][J-13]") {
  const auto first = static_cast<float>(2 * rank() + 1);
  const std::vector<float> mine{first, first + 1};
  int calls = 0;
  const auto maps = [&](Tower&, const Features& piece, const std::optional<LabelPair>& labels) {
    CHECK(piece.at("a").to_vector<float>() == mine);
    CHECK(piece.at("b").shape() == Shape{2, 2});
    CHECK(piece.at("b").to_vector<float>()[3] == 2 * first + 2);
    if (++calls == 1) {
      CHECK(labels->left.to_vector<float>() == mine);
      CHECK(labels->right.shape() == Shape{2});
      CHECK(labels->unnamed == 3);
    } else {
      CHECK_FALSE(labels);
    }
    return EstimatorSpec{};
  };
  const Tensor wide = counting(4);
  auto model = replicated<Features, LabelPair>(runtime().strategy(), maps);
  const Features batch{{"a", counting(2)}, {"b", wide.sharing(wide.view().reshaped({2 * ranks(), 2}))}};
  model(batch, LabelPair{counting(2), counting(2), 3}, EstimatorSpec::Mode::predict);
  model(batch, std::nullopt, EstimatorSpec::Mode::predict);
  CHECK(calls == 2);
}

TEST_CASE("sparse tensors are cut unevenly, the larger pieces first", "[J-12]") {
  // Row i has the element i + 1, and the rows are one more than the replicas divide.
  const auto rows = static_cast<std::int64_t>(2 * ranks() + 1);
  std::vector<float> values;
  std::vector<std::int64_t> indices;
  for (std::int64_t row = 0; row < rows; ++row) {
    values.push_back(static_cast<float>(row + 1));
    indices.insert(indices.end(), {row, row % 3});
  }
  const SparseTensor whole{Tensor::from(indices, {rows, 2}), Tensor::from(values, {rows}), {rows, 3}};
  using Sparse = std::map<std::string, SparseTensor>;
  const auto check = [&](Tower&, const Sparse& features, const std::optional<std::vector<SparseTensor>>& labels) {
    const SparseTensor& piece = features.at("words");
    const std::int64_t mine = rank() == 0 ? 3 : 2, first = rank() == 0 ? 0 : 2 * rank() + 1;
    CHECK(piece.dense_shape == Shape{mine, 3});
    CHECK(piece.values.to_vector<float>().at(0) == static_cast<float>(first + 1));
    CHECK(piece.indices.to_vector<std::int64_t>().at(0) == 0);
    CHECK(piece.indices.to_vector<std::int64_t>().at(1) == first % 3);
    CHECK(labels->at(0).values.count() == mine);
    return EstimatorSpec{};
  };
  auto model = replicated<Sparse, std::vector<SparseTensor>>(runtime().strategy(), check);
  model({{"words", whole}}, std::vector{whole}, EstimatorSpec::Mode::train);

  // Beside dense labels, of which there are fewer rows.
  const auto check_labels = [](Tower&, const SparseTensor&, const std::optional<Tensor>& labels) {
    CHECK(value_of(*labels) == static_cast<float>(rank() + 1));
    return EstimatorSpec{};
  };
  replicated<SparseTensor, Tensor>(runtime().strategy(), check_labels)(whole, counting(), EstimatorSpec::Mode::train);
  CHECK(detail::structure_of(whole).empty());  // messages name no structure beside the type
  SparseTensor outside = whole;
  outside.dense_shape[1] = 1;
  expect_error<InvalidArgument>(
      "index [1, 1] is outside of a sparse [" + std::to_string(rows) + ", 1]", [&](bool wrong) {
        model({{"words", wrong ? outside : whole}}, std::vector{whole}, EstimatorSpec::Mode::train);
      });
}

TEST_CASE("a batch that does not divide, or whose parts have different rows, is refused before the model is called",
          "[J-10][J-11][J-14]") {
  const auto never = [](Tower&, const Tensor&, const auto& labels) {
    CHECK_FALSE(labels);
    return EstimatorSpec{};
  };
  auto model = replicated<Tensor, Features>(runtime().strategy(), never);
  const auto call = [&](const Tensor& features, const std::optional<Features>& labels) {
    model(features, labels, EstimatorSpec::Mode::train);
  };
  const Tensor good = counting(), odd = vector_of(std::vector<float>(static_cast<std::size_t>(2 * ranks() - 1)));
  const auto number = [](std::int64_t count) { return std::to_string(count); };
  if (ranks() > 1) {
    const std::string size = number(odd.count());
    expect_error<InvalidArgument>(
        "Batch size " + size + " needs to be divisible by the number of replicas, which is " + number(ranks()) + ".",
        [&](bool wrong) { call(wrong ? odd : good, {}); });
  }
  expect_error<InvalidArgument>("features have " + number(ranks()) + " rows and labels " + number(2 * ranks()),
                                [&](bool wrong) {
                                  call(good, wrong ? std::optional{Features{{"l", counting(2)}}} : std::nullopt);
                                });
  expect_error<InvalidArgument>(
      "labels have entries of " + number(ranks()) + " and of " + number(2 * ranks()) + " rows", [&](bool wrong) {
        call(good, wrong ? std::optional{Features{{"k", good}, {"l", counting(2)}}} : std::nullopt);
      });
  expect_error<InvalidArgument>("features hold f32[]; expected tensors of rows, their first dimension",
                                [&](bool wrong) { call(wrong ? Tensor::scalar(1.F) : good, {}); });
}

TEST_CASE("the ranks agree on the mode and on the batch", "[J-7]") {
  TowerProgram program{linear};
  program.call();
  expect_error<InvalidArgument>("mode 7 is none of train, evaluate, predict", [&](bool wrong) {
    program.call(counting(), wrong ? EstimatorSpec::Mode{7} : EstimatorSpec::Mode::predict);
  });
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([&] {
               program.call(counting(), odd_one() ? EstimatorSpec::Mode::predict : EstimatorSpec::Mode::evaluate);
             }),
             Catch::Contains("with Mode::predict of f32[" + std::to_string(ranks()) + "] and no labels, losses") &&
                 Catch::Contains("Mode::evaluate of "));
  CHECK_THAT(mismatch_of([&] { program.call(counting(odd_one() ? 2 : 1)); }),
             Catch::Contains("train of f32[" + std::to_string(2 * ranks()) + "]") &&
                 Catch::Contains("train of f32[" + std::to_string(ranks()) + "]"));
  expect_in_step();
  CHECK(program.value() == 10 - static_cast<float>(triangle()));
}

TEST_CASE("parameters are copied for each call, where the model takes them", "[J-15]") {
  Strategy& strategy = runtime().strategy();
  using Params = std::map<std::string, int>;
  const Params params{{"depth", 4}};
  const auto deepen = [](Tower&, const Tensor&, const std::optional<Tensor>&, Params& own) {
    CHECK(own.at("depth")++ == 4);
    return EstimatorSpec{};
  };
  auto model = replicated<Tensor, Tensor, Params>(strategy, deepen);
  model(counting(), std::nullopt, EstimatorSpec::Mode::train, params);
  model(counting(), std::nullopt, EstimatorSpec::Mode::train, params);
  auto without = replicated<Tensor, Tensor, Params>(
      strategy, [](Tower&, const Tensor&, const std::optional<Tensor>&) { return EstimatorSpec{}; });
  without(counting(), std::nullopt, EstimatorSpec::Mode::train, params);
}

TEST_CASE("a variable is made in the first call that asks for it, and reused", "[J-16]") {
  int initial = 0;
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
    const auto w = tower.variable({.name = "w"}, [&] {
      ++initial;
      return vector_of({static_cast<float>(rank()), 2});
    });
    CHECK(w.local().template to_vector<float>() == std::vector<float>{0, 2});  // replica 0's
    CHECK(&inside(tower.variable({.name = "w"}, [] { return vector_of({}); })).state() == &inside(w).state());
    CHECK(ten(tower, "v").name() == "v");
    return EstimatorSpec{};
  }};
  for (int call = 0; call < 3; ++call) program.call();
  CHECK(initial == 1);
  CHECK(program.model.variables().size() == 2);
  CHECK(inside(program.strategy.store()).variables().size() == 2);

  TowerProgram refused{[](Tower& tower, const Tensor& features, const auto&) {
    const bool unnamed = features.dtype() == DType::f32;
    tower.accumulator("sum");
    tower.variable({.name = unnamed ? "" : "sum"}, [] { return vector_of({}); });
    return EstimatorSpec{};
  }};
  CHECK(message_of<InvalidArgument>([&] { refused.call(); }) ==
        "Tower::variable: expected a name, under which later calls find the variable");
  CHECK(message_of<InvalidArgument>([&] { refused.call(Tensor::zeros(DType::f64, {ranks()})); }) ==
        "Tower::variable: 'sum' is the name of an accumulator");
  expect_in_step();
}
