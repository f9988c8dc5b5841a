// What becomes of the specifications that towers return: losses, metrics, predictions and exported outputs.
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "mpi/tower_program.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct OtherOutput {
  Tensor value;
};
static_assert(!std::is_constructible_v<EstimatorSpec::ExportOutput, OtherOutput>);  // [J-52]: it is not dropped

}  // namespace

TEST_CASE("evaluation sums losses and metrics over the replicas, as often as one reads them",
          "[J-43][J-44][J-45][J-46][J-48][J-49][J-55]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto sum = tower.accumulator("sum", {}, DType::f32), rows = tower.accumulator("rows");
    sum.assign_add(Tensor::scalar(value_of(features)));
    rows.assign_add(Tensor::scalar(1.0));
    EstimatorSpec::EvalMetric mean{{sum, rows}, [](std::span<const Tensor> sums) {
                                     return static_cast<double>(value_of(sums[0])) / sums[1].to_vector<double>()[0];
                                   }};
    return EstimatorSpec{.loss = features,
                         .export_outputs = {{"own", EstimatorSpec::RegressionOutput{features}}},
                         .eval_metrics = {{"mean", std::move(mean)}}};
  }};
  const auto evaluate = [&] { return program.call(counting(), EstimatorSpec::Mode::evaluate); };
  const double mean = triangle() / static_cast<double>(ranks());
  const EstimatorSpec spec = evaluate();
  CHECK(value_of(*spec.loss) == static_cast<float>(triangle()));
  CHECK(spec.metrics == std::map<std::string, double>{{"mean", mean}});
  const Tensor own = std::get<EstimatorSpec::RegressionOutput>(spec.export_outputs.at("own"));
  CHECK(value_of(own) == static_cast<float>(rank() + 1));
  const EstimatorSpec::EvalMetric& metric = spec.eval_metrics.at("mean");
  for (int time = 0; time < 2; ++time) {
    CHECK(value_of(metric.accumulators[0].read()) == static_cast<float>(triangle()));
    CHECK(value_of(metric.accumulators[0]) == static_cast<float>(rank() + 1));
  }
  CHECK(evaluate().metrics.at("mean") == mean);
  CHECK(metric.accumulators[1].read().to_vector<double>()[0] == 2 * ranks());
  program.model.reset_metrics();
  CHECK(metric.accumulators[1].read().to_vector<double>()[0] == 0);
  CHECK(evaluate().metrics.at("mean") == mean);
  CHECK(program.call(counting(), EstimatorSpec::Mode::train).metrics.empty());
}

TEST_CASE("towers with other metrics, or without the loss of the others, are a mismatch", "[J-22][J-47]") {
  if (ranks() == 1) return;
  int odd = 2;
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    std::vector<SyncOnReadVariable> sums;
    for (const char* const name : {"a", "b", "c"}) sums.push_back(tower.accumulator(name));
    if (odd_one() && odd == 4) std::swap(sums[0], sums[1]);
    if (!odd_one() || odd != 3) sums.pop_back();
    EstimatorSpec spec{.eval_metrics = {{"m", {sums, [](std::span<const Tensor>) { return 0.0; }}}}};
    if (!odd_one() || odd != 0) spec.loss = features;
    return spec;
  }};
  const auto evaluate = [&](int how) {
    odd = how;
    return mismatch_of([&] { program.call(counting(), EstimatorSpec::Mode::evaluate); });
  };
  CHECK(evaluate(3) == "Different eval_metrics across model_fn calls. Expected 2 accumulators, but got 3 instead.");
  CHECK(evaluate(4) ==
        "Different eval_metrics across model_fn calls. Expected 'm' of 'a' f64[], 'b' f64[], but got "
        "'m' of 'b' f64[], 'a' f64[] instead.");
  CHECK_THAT(evaluate(0), Catch::Contains("returned no loss; replica 0") && Catch::EndsWith("a loss f32[1]"));
  CHECK(evaluate(2).empty());
  expect_in_step();
}

TEST_CASE("a specification that no mode allows is refused", "[J-54]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto mean = tower.context().strategy().create_sync_on_read({.name = "mean"}, [] { return vector_of({1}); });
    EstimatorSpec spec{.loss = features};
    if (features.dtype() == DType::f64) spec.predictions["p"] = features;
    if (features.dtype() == DType::i32) spec.eval_metrics["mean"] = {{mean}, [](auto) { return 0.0; }};
    return spec;
  }};
  const auto refusal = [&](const Tensor& features) {
    return message_of<InvalidArgument>([&] { program.call(features, EstimatorSpec::Mode::evaluate); });
  };
  CHECK(refusal(counting(2)) == "the loss is f32[2]; expected one number");
  CHECK_THAT(refusal(Tensor::zeros(DType::i64, {ranks()})), Catch::Contains("mean"));
  expect_error<InvalidArgument>("predictions are not supported for Mode::evaluate", [&](bool wrong) {
    TowerProgram own{[&](Tower&, const Tensor& features, const auto&) {
      EstimatorSpec spec{.loss = features};
      if (wrong) spec.predictions["p"] = features;
      return spec;
    }};
    own.call(counting(), EstimatorSpec::Mode::evaluate);
  });
}

TEST_CASE("predictions and exported outputs of all replicas are put together in the order of ranks",
          "[J-50][J-51][J-52]") {
  TowerProgram program{
      [&](Tower&, const Tensor& features, const auto&) {
        const Tensor rows =
            odd_one() ? features : vector_of(std::vector<float>(2, value_of(features)));  // ranks may differ
        return EstimatorSpec{
            .loss = features,
            .predictions = {{"p", features}, {"rows", rows}},
            .export_outputs = {{"class", EstimatorSpec::ClassificationOutput{features, vector_of({1, 2, 3})}},
                               {"line", EstimatorSpec::RegressionOutput{features}},
                               {"none", EstimatorSpec::ClassificationOutput{}},
                               {"own", EstimatorSpec::PredictOutput{{"x", features}}}}};
      },
      {.reduction = ReplicateOptions::Reduction::mean}};
  const EstimatorSpec spec = program.call(counting(), EstimatorSpec::Mode::predict);
  const auto all = counting().to_vector<float>();
  const auto n = static_cast<std::int64_t>(ranks());
  CHECK(spec.predictions.size() == 2);
  CHECK(spec.predictions.at("p").to_vector<float>() == all);
  CHECK(spec.predictions.at("rows").shape() == Shape{2 * n - 1});
  const auto& [scores, classes] = std::get<EstimatorSpec::ClassificationOutput>(spec.export_outputs.at("class"));
  CHECK(scores->to_vector<float>() == all);
  CHECK(classes->shape() == (n == 1 ? Shape{3} : Shape{n, 3}));
  CHECK(classes->to_vector<float>().back() == 3);
  CHECK(std::get<EstimatorSpec::RegressionOutput>(spec.export_outputs.at("line")).to_vector<float>() == all);
  CHECK_FALSE(std::get<EstimatorSpec::ClassificationOutput>(spec.export_outputs.at("none")).scores);
  CHECK(std::get<EstimatorSpec::PredictOutput>(spec.export_outputs.at("own")).at("x").to_vector<float>() == all);
  CHECK(value_of(*spec.loss) == static_cast<float>(rank() + 1) / static_cast<float>(n));  // the template's, scaled
}

TEST_CASE("what only some towers predict is put together from those", "[J-53]") {
  if (ranks() == 1) return;
  TowerProgram program{[&](Tower&, const Tensor& features, const auto&) {
    if (rank() == 0) return EstimatorSpec{};
    return EstimatorSpec{.predictions = {{"p", features}},
                         .export_outputs = {{"e", EstimatorSpec::PredictOutput{{std::to_string(rank()), features}}}}};
  }};
  const EstimatorSpec spec = program.call(counting(), EstimatorSpec::Mode::predict);
  auto some = counting().to_vector<float>();
  some.erase(some.begin());
  CHECK(spec.predictions.at("p").to_vector<float>() == some);
  const auto& outputs = std::get<EstimatorSpec::PredictOutput>(spec.export_outputs.at("e"));
  REQUIRE(std::ssize(outputs) == ranks() - 1);
  CHECK(value_of(outputs.at("1")) == 2);

  const auto predict = [](const EstimatorSpec& own) {
    TowerProgram odd{[&](Tower&, const Tensor&, const auto&) { return own; }};
    return mismatch_of([&] { odd.call(counting(), EstimatorSpec::Mode::predict); });
  };
  const std::string types = predict({.predictions = {{"p", Tensor::zeros(odd_one() ? DType::f64 : DType::f32, {1})}}});
  CHECK_THAT(types, Catch::StartsWith("prediction 'p' has rows of f") && Catch::Contains("f64[]"));
  const EstimatorSpec::ExportOutput scores =
      EstimatorSpec::ClassificationOutput{Tensor::zeros(DType::f32, {1, odd_one() ? 3 : 2})};
  CHECK_THAT(predict({.export_outputs = {{"e", scores}}}),
             Catch::StartsWith("the score tensor of export 'e' has rows of f32[") && Catch::Contains("f32[3]"));
  expect_error<InvalidArgument>("prediction 'p' is f32[]; expected rows, its first dimension", [&](bool wrong) {
    const EstimatorSpec spec{.predictions = {{"p", wrong ? Tensor::scalar(1.F) : vector_of({1})}}};
    TowerProgram own{[&](Tower&, const Tensor&, const auto&) { return spec; }};
    own.call(counting(), EstimatorSpec::Mode::predict);
  });
  const EstimatorSpec::ExportOutput line = EstimatorSpec::RegressionOutput{vector_of({1})},
                                    own = EstimatorSpec::PredictOutput{};
  CHECK(predict({.export_outputs = {{"e", odd_one() ? line : own}}}) ==
        "the replicas export different kinds of output as 'e'");
  expect_in_step();
}

TEST_CASE("one replica gets what its model function returns", "[J-6][J-23][J-48]") {
  if (ranks() > 1) return;
  const Tensor loss = vector_of({3});
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
                         const auto n = tower.accumulator("n");
                         n.assign_add(Tensor::scalar(2.0));
                         const auto first = [](std::span<const Tensor> sums) { return sums[0].to_vector<double>()[0]; };
                         return EstimatorSpec{.loss = loss, .eval_metrics = {{"n", {{n}, first}}}};
                       },
                       {.reduction = ReplicateOptions::Reduction::mean}};
  for (const EstimatorSpec::Mode mode :
       {EstimatorSpec::Mode::train, EstimatorSpec::Mode::evaluate, EstimatorSpec::Mode::predict})
    CHECK(program.call(vector_of({1, 2, 3}), mode).loss->view().data() == loss.view().data());
  CHECK(program.call(vector_of({1}), EstimatorSpec::Mode::evaluate).metrics.at("n") == 8);
}
