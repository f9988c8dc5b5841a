// Replicated model functions: what towers get, and what becomes of what they return.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/checkpoint/checkpoint.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/train/replicate_model_fn.hpp>

#include "mpi/shared_folder.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

struct Pair {
  Tensor left, right;
  int unnamed = 0;
};
template <>
struct lockstep::Nest<Pair> {
  static constexpr auto members = std::tuple{&Pair::left, &Pair::right};
};

namespace {

using Features = std::map<std::string, Tensor>;

Tensor of(std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count});
}

/// 1, 2, …: one row for each rank, or as many times as many.
Tensor counting(int times = 1) {
  std::vector<float> rows;
  for (int row = 1; row <= times * ranks(); ++row) rows.push_back(static_cast<float>(row));
  return of(rows);
}

float value_of(const Tensor& tensor) {
  return tensor.to_vector<float>().at(0);
}
float value_of(const Variable& variable) {
  return variable.local().to_vector<float>().at(0);
}

std::shared_ptr<Sgd> sgd(double rate, std::string name = "optimizer") {
  return std::make_shared<Sgd>(SgdOptions{.learning_rate = rate, .name = std::move(name)});
}

MirroredVariable ten(Tower& tower, std::string name = "c") {
  return tower.variable({.name = std::move(name)}, [] { return of({10}); });
}

/// The loss is c x - x, summed over the rows of the piece.
EstimatorSpec linear(Tower& tower, const Tensor& features, const std::optional<Tensor>&) {
  const MirroredVariable c = ten(tower);
  float sum = 0;
  for (const float x : features.to_vector<float>()) sum += x;
  const EstimatorSpec spec{.loss = Tensor::scalar((value_of(c) - 1) * sum)};
  TowerOptimizer optimizer{sgd(1)};
  optimizer.apply_gradients(tower, {{of({sum}), c}});
  return spec;
}

/// replicate_model_fn without its line in the log.
template <class... Types, class Fn>
auto replicated(Strategy& strategy, Fn&& fn, const ReplicateOptions& options = {}) {
  const QuietLog quiet;
  return replicate_model_fn<Types...>(strategy, std::forward<Fn>(fn), options);
}

using ModelFn = std::function<EstimatorSpec(Tower&, const Tensor&, const std::optional<Tensor>&)>;

/// A replicated model with a strategy of its own.
struct TowerProgram {
  explicit TowerProgram(ModelFn fn, const ReplicateOptions& options = {.reduction = LossReduction::sum})
      : model{replicated<Tensor, Tensor>(strategy, std::move(fn), options)} {}

  EstimatorSpec call(const Tensor& features = counting(), Mode mode = Mode::train) {
    return model(features, std::nullopt, mode);
  }
  /// Of the variable that the towers made in that place.
  float value(std::size_t index = 0) const { return value_of(model.variables().at(index)); }

  Strategy strategy = runtime().make_strategy();
  ReplicatedModel<Tensor, Tensor> model;
};

/// Calls `body(true)` on all ranks, then on one of them while the others call `body(false)`.
template <class Error, class Body>
void expect_error(const std::string& message, Body&& body) {
  CHECK(message_of<Error>([&] { body(true); }) == message);
  expect_in_step();
  const std::string own = message_of<Error>([&] {
    try {
      body(odd_one());
    } catch (const PeerError& error) {
      CHECK_THAT(error.what(), Catch::EndsWith(": " + message));
      CHECK_FALSE(odd_one());
    }
  });
  CHECK(own == (odd_one() ? message : ""));
  expect_in_step();
}

struct OtherOutput {
  Tensor value;
};
static_assert(!std::is_constructible_v<ExportOutput, OtherOutput>);  // [J-52]: it is not dropped

constexpr auto same_calls = "Each replica's model_fn was supposed to make the same optimizer calls.";
constexpr auto wrap_them =
    "Please wrap optimizers with TowerOptimizer in order to use replicate_model_fn with multiple replicas.";

}  // namespace

TEST_CASE("a replicated model trains on pieces of a batch as one model on all of it",
          "[J-1][J-4][J-9][J-21][J-24][J-25][J-26][J-31][J-32][J-42]") {
  using enum LossReduction;
  for (const LossReduction reduction : {sum, mean, sum_over_batch_size, sum_by_nonzero_weights}) {
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
          TowerProgram{linear, {.reduction = LossReduction::none}};
        }) == "Tower losses need to be reduced in some way, yet none reduction is specified.");
  CHECK(message_of<InvalidArgument>([] {
          TowerProgram{linear, {.reduction = LossReduction{9}}};
        }) == "loss reduction 9 is none of sum, mean, sum_over_batch_size, sum_by_nonzero_weights");
  CHECK(message_of<InvalidArgument>([] {
          TowerProgram{linear, {.placement = VariablePlacement{9}}};
        }) == "variable placement 9 is none of mirrored, chief, round_robin");
}

TEST_CASE("a tower computes on its rank's device", "[J-3]") {
  TowerProgram program{[](Tower& tower, const Tensor&, const auto&) {
    const auto devices = runtime().strategy().extended().worker_devices();
    CHECK(tower.context().devices() == std::vector{devices.at(static_cast<std::size_t>(rank()))});
    return EstimatorSpec{};
  }};
  CHECK_FALSE(program.call().loss);
}

TEST_CASE("maps and structs are cut into equal pieces along their rows, and labels are optional", "[J-9][J-13]") {
  const auto first = static_cast<float>(2 * rank() + 1);
  const std::vector<float> mine{first, first + 1};
  int calls = 0;
  const auto maps = [&](Tower&, const Features& piece, const std::optional<Pair>& labels) {
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
  auto model = replicated<Features, Pair>(runtime().strategy(), maps);
  const Features batch{{"a", counting(2)}, {"b", wide.sharing(wide.view().reshaped({2 * ranks(), 2}))}};
  model(batch, Pair{counting(2), counting(2), 3}, Mode::predict);
  model(batch, std::nullopt, Mode::predict);
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
  model({{"words", whole}}, std::vector{whole}, Mode::train);

  // Beside dense labels, of which there are fewer rows.
  const auto check_labels = [](Tower&, const SparseTensor&, const std::optional<Tensor>& labels) {
    CHECK(value_of(*labels) == static_cast<float>(rank() + 1));
    return EstimatorSpec{};
  };
  replicated<SparseTensor, Tensor>(runtime().strategy(), check_labels)(whole, counting(), Mode::train);
  SparseTensor outside = whole;
  outside.dense_shape[1] = 1;
  if (ranks() == 1) return;
  expect_error<InvalidArgument>("index [1, 1] is outside of a sparse [" + std::to_string(rows) + ", 1]",
                                [&](bool wrong) {
                                  model({{"words", wrong ? outside : whole}}, std::vector{whole}, Mode::train);
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
    model(features, labels, Mode::train);
  };
  const Tensor good = counting(), odd = of(std::vector<float>(static_cast<std::size_t>(2 * ranks() - 1)));
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
  expect_error<InvalidArgument>("mode 7 is none of train, evaluate, predict",
                                [&](bool wrong) { program.call(counting(), wrong ? Mode{7} : Mode::predict); });
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([&] { program.call(counting(), odd_one() ? Mode::predict : Mode::evaluate); }),
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
  model(counting(), std::nullopt, Mode::train, params);
  model(counting(), std::nullopt, Mode::train, params);
  auto without = replicated<Tensor, Tensor, Params>(
      strategy, [](Tower&, const Tensor&, const std::optional<Tensor>&) { return EstimatorSpec{}; });
  without(counting(), std::nullopt, Mode::train, params);
}

TEST_CASE("a variable is made in the first call that asks for it, and reused", "[J-16]") {
  int initial = 0;
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
    const auto w = tower.variable({.name = "w"}, [&] {
      ++initial;
      return of({static_cast<float>(rank()), 2});
    });
    CHECK(w.local().template to_vector<float>() == std::vector<float>{0, 2});  // replica 0's
    CHECK(&tower.variable({.name = "w"}, [] { return of({}); }).state() == &w.state());
    CHECK(ten(tower, "v").name() == "v");
    return EstimatorSpec{};
  }};
  for (int call = 0; call < 3; ++call) program.call();
  CHECK(initial == 1);
  CHECK(program.model.variables().size() == 2);
  CHECK(program.strategy.store().variables().size() == 2);

  TowerProgram refused{[](Tower& tower, const Tensor& features, const auto&) {
    const bool unnamed = features.dtype() == DType::f32;
    tower.accumulator("sum");
    tower.variable({.name = unnamed ? "" : "sum"}, [] { return of({}); });
    return EstimatorSpec{};
  }};
  CHECK(message_of<InvalidArgument>([&] { refused.call(); }) ==
        "Tower::variable: expected a name, under which later calls find the variable");
  CHECK(message_of<InvalidArgument>([&] { refused.call(Tensor::zeros(DType::f64, {ranks()})); }) ==
        "Tower::variable: 'sum' is the name of an accumulator");
  expect_in_step();
}

TEST_CASE("a plain optimizer in a model function is refused on several replicas, until a TowerOptimizer is used",
          "[J-6][J-18][J-36]") {
  enum class Use { wrapped, plain, accessor };
  Use use = Use::wrapped;
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
    const auto c = ten(tower);
    const auto plain = sgd(1);
    TowerOptimizer wrapped{plain};
    if (use == Use::wrapped) {
      wrapped.apply_gradients(tower, {{of({1}), c}});
    } else {
      if (use == Use::accessor) CHECK(wrapped.optimizer().steps(tower.context().strategy()) >= 0);
      plain->apply_gradients(tower.context(), {{of({1}), c}});
    }
    return EstimatorSpec{};
  }};
  const auto call = [&](Use how) {
    use = how;
    program.call();
  };
  const auto n = static_cast<float>(ranks());
  if (ranks() > 1) {
    expect_error<InvalidArgument>(wrap_them, [&](bool wrong) { call(wrong ? Use::plain : Use::wrapped); });
    CHECK(program.value() == 10);
  } else {
    call(Use::plain);
    CHECK(program.value() == 9);
  }
  const float before = program.value();
  call(Use::accessor);
  CHECK(program.value() == before - n);
}

TEST_CASE("towers make the same optimizer calls, and calls at the same place belong together", "[J-19][J-34]") {
  int calls = 2;
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower, "c"), d = ten(tower, "d");
    TowerOptimizer first{sgd(1, "first")}, second{sgd(2, "second")};
    for (int call = 0; call < calls; ++call)
      (call % 2 ? second : first).apply_gradients(tower, {{features, call % 2 ? d : c}});
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(program.value(0) == 10 - static_cast<float>(triangle()));
  CHECK(program.value(1) == 10 - 2 * static_cast<float>(triangle()));
  if (ranks() == 1) return;
  for (const auto& [usual, odd] : {std::pair{1, 3}, std::pair{3, 1}, std::pair{0, 2}, std::pair{1, 0}}) {
    calls = odd_one() ? odd : usual;
    const std::string told = mismatch_of([&] { program.call(); });
    CHECK_THAT(told, Catch::StartsWith(same_calls));
    // The two ranks that it names, either of which may have stopped first.
    const std::string first = odd < usual ? " returned from its own; replica 0" : " called an optimizer; replica 0";
    CHECK_THAT(told, Catch::Contains(first));
    expect_in_step();
  }
  calls = 2;
  program.call();
  program.strategy.attest();

  TowerProgram other{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower, "c"), d = ten(tower, "d");
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, odd_one() ? d : c}});
    return EstimatorSpec{};
  }};
  CHECK_THAT(mismatch_of([&] { other.call(); }), Catch::StartsWith(same_calls) && Catch::Contains("gradients of 'd'"));
  CHECK(other.value() == 10);

  TowerProgram counting_steps{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, odd_one() ? std::optional{step} : std::nullopt);
    return EstimatorSpec{};
  }};
  CHECK_THAT(mismatch_of([&] { counting_steps.call(); }), Catch::Contains(" and the global step 'step';"));
  counting_steps.strategy.attest();
}

TEST_CASE("what no optimizer can update is refused, also if nobody has a gradient of it") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto w = ten(tower);
    const auto fixed = tower.variable({.name = "fixed", .trainable = false}, [] { return of({1}); });
    const std::vector<TowerGradient> twice{{{}, w}, {{}, w}}, untrainable{{{}, fixed}};
    TowerOptimizer{sgd(1)}.apply_gradients(tower, features.shape().front() == 1 ? twice : untrainable);
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(); }), Catch::Contains("variable 'c' is given twice"));
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(counting(2)); }),
             Catch::Contains("variable 'fixed' is not trainable"));
}

TEST_CASE("a variable that some towers have no gradient of gets the others', and what nobody has is left alone",
          "[J-27]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto all = ten(tower, "all"), some = ten(tower, "some"), none = ten(tower, "none");
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
    TowerOptimizer optimizer{std::make_shared<Sgd>(SgdOptions{.learning_rate = 1, .momentum = 0.5})};
    TowerGradient of_some{features, some};
    if (!odd_one()) of_some.value.reset();
    optimizer.apply_gradients(tower, {{features, all}, of_some, {{}, none}}, step);
    optimizer.apply_gradients(tower, {{{}, all}, {{}, some}, {{}, none}}, step);  // no step
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(program.value(0) == 10 - static_cast<float>(triangle()));
  CHECK(program.value(1) == 10 - static_cast<float>(ranks()));
  CHECK(program.value(2) == 10);
  CHECK(program.model.variables().at(3).local().to_vector<std::int64_t>() == std::vector<std::int64_t>{1});
  program.call();
  CHECK(program.value(1) == 10 - 2.5F * static_cast<float>(ranks()));  // with momentum 0.5
  CHECK(program.value(2) == 10);
  program.strategy.attest();
}

TEST_CASE("slices of all towers are put together, and a variable has one kind of gradient", "[J-28][J-29]") {
  const auto row = [](std::int64_t index, float value) {
    return IndexedSlices{Tensor::from({value, value}, {1, 2}), Tensor::from({index}, {1}), {3, 2}};
  };
  enum class Odd { none, dense, absent };
  Odd odd = Odd::none;
  const auto slices = [&](Tower& tower, const Tensor& features, const std::optional<Tensor>&) {
    const auto w = tower.variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {3, 2}); });
    const float mine = value_of(features);
    TowerGradient gradient{row(rank() % 3, mine), w};
    if (odd_one() && odd == Odd::dense) gradient.value = Tensor::zeros(DType::f32, {3, 2});
    if (odd_one() && odd == Odd::absent) gradient.value.reset();
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {gradient});
    return EstimatorSpec{.loss = features};
  };
  TowerProgram program{slices};
  const auto expect = [&](int of_ranks) {
    std::vector<float> expected(6);
    for (int each = 0; each < of_ranks; ++each)
      for (int i = 0; i < 2; ++i) expected[static_cast<std::size_t>(each % 3 * 2 + i)] -= static_cast<float>(each + 1);
    return expected;
  };
  program.call();
  const auto w = program.model.variables().at(0);
  CHECK(w.local().to_vector<float>() == expect(ranks()));
  if (ranks() == 1) return;
  odd = Odd::dense;
  CHECK(mismatch_of([&] { program.call(); }) == "the gradients of variable 'w' are dense on 1 of " +
                                                    std::to_string(ranks()) + " replicas and slices on " +
                                                    std::to_string(ranks() - 1));
  expect_in_step();
  CHECK(w.local().to_vector<float>() == expect(ranks()));
  odd = Odd::absent;
  TowerProgram others{slices};
  others.call();
  CHECK(others.model.variables().at(0).local().to_vector<float>() == expect(ranks() - 1));
  TowerProgram divided{slices, {.reduction = LossReduction::mean}};
  odd = Odd::none;
  divided.call();
  CHECK(divided.model.variables().at(0).local().to_vector<float>()[1] ==
        expect(ranks())[1] / static_cast<float>(ranks()));
}

TEST_CASE("the global step counts once in each step, on every rank", "[J-33]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    const auto step = tower.variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(5)); });
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, step);
    return EstimatorSpec{};
  }};
  program.call();
  program.call(counting(), Mode::evaluate);
  program.call();
  CHECK(program.model.variables().at(1).local().to_vector<std::int64_t>() == std::vector<std::int64_t>{7});
  program.strategy.attest();

  TowerProgram refused{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto c = ten(tower);
    TowerOptimizer{sgd(1)}.apply_gradients(tower, {{features, c}}, c);
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { refused.call(); }),
             Catch::Contains("the global step 'c' is f32[1]; expected a mirrored variable of strategy"));
}

TEST_CASE("an optimizer is made at the first use, and only then", "[J-35][J-36]") {
  int made = 0;
  const OptimizerFactory make = [&] {
    ++made;
    return sgd(1);
  };
  TowerOptimizer optimizer{make};
  CHECK(made == 0);
  CHECK(optimizer.optimizer().learning_rate() == 0);
  CHECK(made == 1);
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  program.call();
  CHECK(made == 1);
  CHECK(optimizer.optimizer().steps(program.strategy) == 1);
  CHECK(message_of<InvalidArgument>([] { TowerOptimizer{std::shared_ptr<Optimizer>{}}; }) ==
        "a TowerOptimizer without an optimizer");
  TowerOptimizer none{OptimizerFactory{[] { return nullptr; }}};
  CHECK(message_of<InvalidArgument>([&] { none.optimizer(); }) ==
        "the function that makes a TowerOptimizer's optimizer returned none");
}

TEST_CASE("outside of a model function, a TowerOptimizer is the plain one", "[J-37]") {
  Strategy strategy = runtime().make_strategy();
  const auto c = strategy.create_variable({.name = "c"}, [] { return of({10}); });
  const auto d = strategy.create_variable({.name = "d"}, [] { return of({10}); });
  const auto step =
      strategy.create_variable({.name = "step", .trainable = false}, [] { return Tensor::scalar(INT64_C(0)); });
  TowerOptimizer optimizer{sgd(1)};
  strategy.run([&](ReplicaContext& context) {
    optimizer.apply_gradients(context, {{of({static_cast<float>(rank() + 1)}), c}, {{}, d}}, step);
  });
  CHECK(value_of(c) == 10 - static_cast<float>(triangle()));
  CHECK(value_of(d) == 10);
  CHECK(step.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{1});

  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    optimizer.apply_gradients(tower.context(), {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  CHECK_THAT(message_of<InvalidArgument>([&] { program.call(); }),
             Catch::EndsWith("a TowerOptimizer in a model function: expected the tower in place of its context"));
}

TEST_CASE("what towers collect is gone after the call, and in no checkpoint", "[J-20][J-39]") {
  const SharedFolder folder;
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    TowerOptimizer optimizer{std::make_shared<Sgd>(SgdOptions{.learning_rate = 1, .momentum = 0.5})};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    if (value_of(tower.accumulator("n", {}, DType::f32)) != 0) throw std::logic_error{"left over"};
    return EstimatorSpec{};
  }};
  program.call();
  // A call that ends in the middle of its optimizer calls leaves nothing behind for the next one.
  TowerProgram broken{[&](Tower& tower, const Tensor& features, const auto&) {
    TowerOptimizer optimizer{sgd(1)};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    if (features.shape().front() == 2) throw std::out_of_range{"in the middle"};
    optimizer.apply_gradients(tower, {{features, ten(tower)}});
    return EstimatorSpec{};
  }};
  CHECK_THROWS_AS(broken.call(counting(2)), InvalidArgument);  // two rows are no gradient of one element
  CHECK_NOTHROW(broken.call());
  save_checkpoint(program.strategy, folder / "checkpoint");

  // Neither sums of metrics nor variables that no optimizer updates are in the way of a program that goes on.
  TowerProgram restored{[&](Tower& tower, const Tensor&, const auto&) {
    const auto c = ten(tower);
    if (tower.mode() == Mode::evaluate) tower.accumulator("other").assign_add(Tensor::scalar(3.0));
    return EstimatorSpec{};
  }};
  restored.call(counting(), Mode::evaluate);
  Sgd{{.learning_rate = 1, .momentum = 0.5}}.prepare(restored.strategy, restored.model.trainable_variables());
  restore_checkpoint(restored.strategy, folder / "checkpoint");
  CHECK(restored.value() == program.value());
}

TEST_CASE("evaluation sums losses and metrics over the replicas, as often as one reads them",
          "[J-43][J-44][J-45][J-46][J-48][J-49][J-55]") {
  TowerProgram program{[&](Tower& tower, const Tensor& features, const auto&) {
    const auto sum = tower.accumulator("sum", {}, DType::f32), rows = tower.accumulator("rows");
    sum.assign_add(Tensor::scalar(value_of(features)));
    rows.assign_add(Tensor::scalar(1.0));
    EvalMetric mean{{sum, rows}, [](std::span<const Tensor> sums) {
                      return static_cast<double>(value_of(sums[0])) / sums[1].to_vector<double>()[0];
                    }};
    return EstimatorSpec{.loss = features,
                         .export_outputs = {{"own", RegressionOutput{features}}},
                         .eval_metrics = {{"mean", std::move(mean)}}};
  }};
  const auto evaluate = [&] { return program.call(counting(), Mode::evaluate); };
  const double mean = triangle() / static_cast<double>(ranks());
  const EstimatorSpec spec = evaluate();
  CHECK(value_of(*spec.loss) == static_cast<float>(triangle()));
  CHECK(spec.metrics == std::map<std::string, double>{{"mean", mean}});
  const Tensor own = std::get<RegressionOutput>(spec.export_outputs.at("own")).value;
  CHECK(value_of(own) == static_cast<float>(rank() + 1));
  const EvalMetric& metric = spec.eval_metrics.at("mean");
  for (int time = 0; time < 2; ++time) {
    CHECK(value_of(metric.accumulators[0].read()) == static_cast<float>(triangle()));
    CHECK(value_of(metric.accumulators[0]) == static_cast<float>(rank() + 1));
  }
  CHECK(evaluate().metrics.at("mean") == mean);
  CHECK(metric.accumulators[1].read().to_vector<double>()[0] == 2 * ranks());
  program.model.reset_metrics();
  CHECK(metric.accumulators[1].read().to_vector<double>()[0] == 0);
  CHECK(evaluate().metrics.at("mean") == mean);
  CHECK(program.call(counting(), Mode::train).metrics.empty());
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
    return mismatch_of([&] { program.call(counting(), Mode::evaluate); });
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
    const auto mean = tower.context().strategy().create_sync_on_read({.name = "mean"}, [] { return of({1}); });
    EstimatorSpec spec{.loss = features};
    if (features.dtype() == DType::f64) spec.predictions["p"] = features;
    if (features.dtype() == DType::i32) spec.eval_metrics["mean"] = {{mean}, [](auto) { return 0.0; }};
    return spec;
  }};
  const auto refusal = [&](const Tensor& features) {
    return message_of<InvalidArgument>([&] { program.call(features, Mode::evaluate); });
  };
  CHECK(refusal(counting(2)) == "the loss is f32[2]; expected one number");
  CHECK_THAT(refusal(Tensor::zeros(DType::i64, {ranks()})), Catch::Contains("mean"));
  expect_error<InvalidArgument>("predictions are not supported for Mode::evaluate", [&](bool wrong) {
    TowerProgram own{[&](Tower&, const Tensor& features, const auto&) {
      EstimatorSpec spec{.loss = features};
      if (wrong) spec.predictions["p"] = features;
      return spec;
    }};
    own.call(counting(), Mode::evaluate);
  });
}

TEST_CASE("predictions and exported outputs of all replicas are put together in the order of ranks",
          "[J-50][J-51][J-52]") {
  TowerProgram program{
      [&](Tower&, const Tensor& features, const auto&) {
        const Tensor rows = odd_one() ? features : of(std::vector<float>(2, value_of(features)));  // ranks may differ
        return EstimatorSpec{.loss = features,
                             .predictions = {{"p", features}, {"rows", rows}},
                             .export_outputs = {{"class", ClassificationOutput{features, of({1, 2, 3})}},
                                                {"line", RegressionOutput{features}},
                                                {"none", ClassificationOutput{}},
                                                {"own", PredictOutput{{{"x", features}}}}}};
      },
      {.reduction = LossReduction::mean}};
  const EstimatorSpec spec = program.call(counting(), Mode::predict);
  const auto all = counting().to_vector<float>();
  const auto n = static_cast<std::int64_t>(ranks());
  CHECK(spec.predictions.size() == 2);
  CHECK(spec.predictions.at("p").to_vector<float>() == all);
  CHECK(spec.predictions.at("rows").shape() == Shape{2 * n - 1});
  const auto& [scores, classes] = std::get<ClassificationOutput>(spec.export_outputs.at("class"));
  CHECK(scores->to_vector<float>() == all);
  CHECK(classes->shape() == (n == 1 ? Shape{3} : Shape{n, 3}));
  CHECK(classes->to_vector<float>().back() == 3);
  CHECK(std::get<RegressionOutput>(spec.export_outputs.at("line")).value.to_vector<float>() == all);
  CHECK_FALSE(std::get<ClassificationOutput>(spec.export_outputs.at("none")).scores);
  CHECK(std::get<PredictOutput>(spec.export_outputs.at("own")).outputs.at("x").to_vector<float>() == all);
  CHECK(value_of(*spec.loss) == static_cast<float>(rank() + 1) / static_cast<float>(n));  // the template's, scaled
}

TEST_CASE("what only some towers predict is put together from those", "[J-53]") {
  if (ranks() == 1) return;
  TowerProgram program{[&](Tower&, const Tensor& features, const auto&) {
    if (rank() == 0) return EstimatorSpec{};
    return EstimatorSpec{.predictions = {{"p", features}},
                         .export_outputs = {{"e", PredictOutput{{{std::to_string(rank()), features}}}}}};
  }};
  const EstimatorSpec spec = program.call(counting(), Mode::predict);
  auto some = counting().to_vector<float>();
  some.erase(some.begin());
  CHECK(spec.predictions.at("p").to_vector<float>() == some);
  const auto& outputs = std::get<PredictOutput>(spec.export_outputs.at("e")).outputs;
  REQUIRE(std::ssize(outputs) == ranks() - 1);
  CHECK(value_of(outputs.at("1")) == 2);

  const auto predict = [](const EstimatorSpec& own) {
    TowerProgram odd{[&](Tower&, const Tensor&, const auto&) { return own; }};
    return mismatch_of([&] { odd.call(counting(), Mode::predict); });
  };
  const std::string types = predict({.predictions = {{"p", Tensor::zeros(odd_one() ? DType::f64 : DType::f32, {1})}}});
  CHECK_THAT(types, Catch::StartsWith("prediction 'p' has rows of f") && Catch::Contains("f64[]"));
  const ExportOutput scores = ClassificationOutput{Tensor::zeros(DType::f32, {1, odd_one() ? 3 : 2})};
  CHECK_THAT(predict({.export_outputs = {{"e", scores}}}),
             Catch::StartsWith("the score tensor of export 'e' has rows of f32[") && Catch::Contains("f32[3]"));
  expect_error<InvalidArgument>("prediction 'p' is f32[]; expected rows, its first dimension", [&](bool wrong) {
    const EstimatorSpec spec{.predictions = {{"p", wrong ? Tensor::scalar(1.F) : of({1})}}};
    TowerProgram own{[&](Tower&, const Tensor&, const auto&) { return spec; }};
    own.call(counting(), Mode::predict);
  });
  const ExportOutput line = RegressionOutput{of({1})}, own = PredictOutput{};
  CHECK(predict({.export_outputs = {{"e", odd_one() ? line : own}}}) ==
        "the replicas export different kinds of output as 'e'");
  expect_in_step();
}

TEST_CASE("one replica gets what its model function returns", "[J-6][J-23][J-48]") {
  if (ranks() > 1) return;
  const Tensor loss = of({3});
  TowerProgram program{[&](Tower& tower, const Tensor&, const auto&) {
                         const auto n = tower.accumulator("n");
                         n.assign_add(Tensor::scalar(2.0));
                         const auto first = [](std::span<const Tensor> sums) { return sums[0].to_vector<double>()[0]; };
                         return EstimatorSpec{.loss = loss, .eval_metrics = {{"n", {{n}, first}}}};
                       },
                       {.reduction = LossReduction::mean}};
  for (const Mode mode : {Mode::train, Mode::evaluate, Mode::predict})
    CHECK(program.call(of({1, 2, 3}), mode).loss->view().data() == loss.view().data());
  CHECK(program.call(of({1}), Mode::evaluate).metrics.at("n") == 8);
}
