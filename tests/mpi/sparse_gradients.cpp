// Gradients that are slices: ranks name other rows, and other numbers of them, and the step is that of the dense sum.
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "core/tensor/inside.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t rows = 6;

/// Some rows of a gradient of [rows, width].
template <class T>
struct Rows {
  std::vector<std::int64_t> indices;
  std::vector<T> values;
};

/// What rank `from` brings to a step: no row from the first rank in every other step, and row 2 twice from the last.
/// Nobody names row 5. The values are not exact, so their sums depend on the order.
template <class T>
Rows<T> rows_of(int from, int step, int width) {
  Rows<T> made;
  if (from == 0 && step % 2 == 1) return made;
  for (int i = 0; i <= from; ++i) made.indices.push_back((from + 3 * i + step) % 5);
  if (from == last()) made.indices.insert(made.indices.end(), {2, 2});
  for (std::size_t i = 0; i < made.indices.size() * static_cast<std::size_t>(width); ++i)
    made.values.push_back(static_cast<T>(0.1) * static_cast<T>(1 + i) - static_cast<T>(0.3) * static_cast<T>(from));
  return made;
}

Shape shape_of(std::int64_t count, int width) {
  return width == 1 ? Shape{count} : Shape{count, width};
}

/// This rank's rows, on its device.
template <class T>
IndexedSlices own_slices(int step, int width) {
  const Rows<T> own = rows_of<T>(rank(), step, width);
  const auto count = static_cast<std::int64_t>(own.indices.size());
  Stream& stream = runtime().strategy().stream();
  return {Tensor::copy_of(Tensor::from(own.values, shape_of(count, width)).view(), stream),
          Tensor::copy_of(Tensor::from(own.indices, {count}).view(), stream), shape_of(rows, width)};
}

/// Rank 0's dense gradient is the sum of all ranks' rows, added up in the order of ranks. The others' are zero.
template <class T>
Tensor dense_sum(int step, int width) {
  std::vector<T> sum(static_cast<std::size_t>(rows * width));
  for (int from = 0; rank() == 0 && from < ranks(); ++from) {
    const Rows<T> some = rows_of<T>(from, step, width);
    for (std::size_t i = 0; i < some.values.size(); ++i) {
      const std::size_t column = i % static_cast<std::size_t>(width);
      sum[static_cast<std::size_t>(some.indices[i / static_cast<std::size_t>(width)] * width) + column] +=
          some.values[i];
    }
  }
  return Tensor::from(sum, shape_of(rows, width));
}

/// Variables with rows, and one between them whose gradient is dense.
struct SparseProgram {
  Strategy strategy = runtime().make_strategy({.kind = ReductionOptions::Kind::fixed_order});
  MirroredVariable table = strategy.create_variable({.name = "table"}, [] { return initial<float>(2); });
  MirroredVariable bias = strategy.create_variable({.name = "bias"}, [] { return Tensor::from({1.F, 2.F, 3.F}, {3}); });
  MirroredVariable scales = strategy.create_variable({.name = "scales"}, [] { return initial<double>(1); });

  SparseProgram() { strategy.seal(); }

  void step(Optimizer& optimizer, const std::vector<Optimizer::Gradient>& gradients) {
    strategy.run(
        [&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients, std::int64_t{rank() + 1}); });
  }

  /// The same with slices that are found after the agreement.
  void compute_step(Optimizer& optimizer, const IndexedSlices& of_table, const Tensor& of_bias,
                    const IndexedSlices& of_scales) {
    const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
      step.ready(scales, of_scales);
      step.ready(bias);
      step.ready(table, of_table);
      return {.samples = rank() + 1};
    };
    const std::vector<Optimizer::Gradient> gradients{
        {no_slices<float>(2), table}, {of_bias, bias}, {no_slices<double>(1), scales}};
    strategy.run([&](ReplicaContext& context) {
      optimizer.apply_gradients(context, {.gradients = gradients, .computation = {compute}});
    });
  }

  template <class T>
  static IndexedSlices no_slices(int width) {
    return {Tensor::from(std::vector<T>{}, shape_of(0, width)), Tensor::zeros(DType::i64, {0}), shape_of(rows, width)};
  }

  /// Every value and slot, in double, which holds them exactly.
  std::vector<double> everything() {
    std::vector<TensorView> views{table.local(), bias.local(), scales.local()};
    for (const detail::OptimizerState& state : inside(strategy.store()).optimizer_state()) views.push_back(state.value);
    std::vector<double> all;
    for (const TensorView& view : views) {
      const auto append = [&](const auto& values) { all.insert(all.end(), values.begin(), values.end()); };
      if (view.dtype() == DType::f32) append(view.to_vector<float>());
      if (view.dtype() == DType::f64) append(view.to_vector<double>());
      if (view.dtype() == DType::i64) append(view.to_vector<std::int64_t>());
    }
    return all;
  }

 private:
  template <class T>
  static Tensor initial(int width) {
    std::vector<T> values;
    for (int i = 0; i < rows * width; ++i) values.push_back(static_cast<T>(1) / static_cast<T>(3 + i));
    return Tensor::from(values, shape_of(rows, width));
  }
};

const Tensor bias_gradient = Tensor::from({0.5F, 1.F, 2.F}, {3});

IndexedSlices one_row(std::int64_t index) {
  return {Tensor::from({1.F, 2.F}, {1, 2}), Tensor::from({index}, {1}), {rows, 2}};
}

}  // namespace

TEST_CASE("a step with slices has the bits of one with the dense sum, by every optimizer", "[J-28]") {
  const std::vector<std::function<std::unique_ptr<Optimizer>()>> optimizers{
      [] { return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.3}); },
      [] { return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.3, .weight_decay = 0.1, .clip_norm = 0.01}); },
      [] { return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.3, .momentum = 0.9}); },
      [] { return std::make_unique<AdamW>(AdamW::Options{.learning_rate = 0.3, .clip_norm = 0.01}); }};
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    CAPTURE(i, ranks());
    SparseProgram sparse, dense, computed;
    const auto by_slices = optimizers[i](), by_tensor = optimizers[i](), by_computation = optimizers[i]();
    for (int step = 0; step < 3; ++step) {
      sparse.step(*by_slices, {{own_slices<float>(step, 2), sparse.table},
                               {bias_gradient, sparse.bias},
                               {own_slices<double>(step, 1), sparse.scales}});
      dense.step(*by_tensor, {{dense_sum<float>(step, 2), dense.table},
                              {bias_gradient, dense.bias},
                              {dense_sum<double>(step, 1), dense.scales}});
      computed.compute_step(*by_computation, own_slices<float>(step, 2), bias_gradient, own_slices<double>(step, 1));
      CHECK(by_slices->gradient_norm() == by_tensor->gradient_norm());
      CHECK(by_computation->gradient_norm() == by_tensor->gradient_norm());
    }
    CHECK(sparse.everything() == dense.everything());
    CHECK(computed.everything() == dense.everything());
    // The next steps give one variable slices and a tensor in turn: neither finds what the other has left behind.
    for (const int step : {3, 4, 5}) {
      const Optimizer::Gradient::Value by_rows = own_slices<float>(step, 2), whole = dense_sum<float>(step, 2);
      sparse.step(*by_slices, {{step == 4 ? whole : by_rows, sparse.table}});
      dense.step(*by_tensor, {{whole, dense.table}});
    }
    CHECK(sparse.everything() == dense.everything());
  }
}

TEST_CASE("descent without momentum and decay visits the rows that slices name, and no others") {
  const float infinite = std::numeric_limits<float>::infinity();  // zero times it would be no number
  const auto table_of = [&](Strategy& strategy) {
    return strategy.create_variable({}, [&] { return Tensor::from({infinite, 4.F, infinite, 4.F}, {4}); });
  };
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable one = table_of(strategy), other = table_of(strategy);
  const IndexedSlices slices{Tensor::from({1.F, 1.F, 2.F}, {3}), Tensor::from<std::int64_t>({3, 1, 3}, {3}), {4}};
  const IndexedSlices none{Tensor::zeros(DType::f32, {0}), Tensor::zeros(DType::i64, {0}), {4}};
  Sgd optimizer{{.learning_rate = 0.25, .weight_decay = 0.5}};  // which vectors do not have
  strategy.run([&](ReplicaContext& context) {
    optimizer.apply_gradients(context, {{odd_one() ? slices : none, one}, {none, other}});
  });
  CHECK(one.local().to_vector<float>() == std::vector{infinite, 3.75F, infinite, 3.25F});
  CHECK(other.local().to_vector<float>() == std::vector{infinite, 4.F, infinite, 4.F});
}

TEST_CASE("slices that do not fit their variable are refused by its name, before any communication", "[J-28]") {
  SparseProgram program;
  Sgd optimizer{{.learning_rate = 1}};
  program.strategy.run([&](ReplicaContext& context) {
    const auto before = inside(program.strategy).group().meeting().meetings();
    const auto refused = [&](const IndexedSlices& slices) {
      const auto message = message_of<InvalidArgument>([&] {
        optimizer.apply_gradients(context, {{slices, program.table}});
      });
      CHECK_THAT(message, Catch::StartsWith("apply_gradients (sparse_gradients.cpp:") && Catch::Contains("'table'"));
      return message;
    };
    Stream& stream = program.strategy.stream();
    IndexedSlices beyond = one_row(rows);
    beyond.values = Tensor::copy_of(beyond.values.view(), stream);
    beyond.indices = Tensor::copy_of(beyond.indices.view(), stream);
    CHECK_THAT(refused(beyond), Catch::EndsWith("index 6 is not a row of a dense [6, 2]"));
    CHECK_THAT(refused(one_row(-1)), Catch::EndsWith("index -1 is not a row of a dense [6, 2]"));
    CHECK_THAT(refused({Tensor::zeros(DType::f32, {1, 3}), Tensor::zeros(DType::i64, {1}), {rows, 3}}),
               Catch::EndsWith("is f32[6, 2]; its gradient is slices f32[1, 3] of [6, 3]"));
    CHECK_THAT(refused({Tensor::zeros(DType::f64, {1, 2}), Tensor::zeros(DType::i64, {1}), {rows, 2}}),
               Catch::Contains("slices f64[1, 2]"));
    CHECK_THAT(refused({Tensor::zeros(DType::f32, {2, 2}), Tensor::zeros(DType::i64, {1}), {rows, 2}}),
               Catch::Contains("expected values [rows, …]"));
    const TensorView home = program.strategy.store().gradient(program.table).slice(0, 2).reshaped({1, 2});
    (void)refused({tensor_in(nullptr, home), Tensor::zeros(DType::i64, {1}), {rows, 2}});
    CHECK(inside(program.strategy).group().meeting().meetings() == before);
    optimizer.apply_gradients(context, {{one_row(5), program.table}});
  });
}

TEST_CASE("a rank whose computation brings slices twice, for a tensor or not at all fails alone") {
  SparseProgram program;
  Sgd optimizer{{.learning_rate = 1}};
  const std::vector<double> before = program.everything();
  const auto fails = [&](const std::function<void(Optimizer::AgreedStep&)>& odd, const std::string& message) {
    const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
      step.ready(program.bias);
      odd_one() ? odd(step) : step.ready(program.table, one_row(1));
      return {.samples = 1};
    };
    const std::vector<Optimizer::Gradient> gradients{{one_row(0), program.table}, {bias_gradient, program.bias}};
    const auto step = [&] {
      program.strategy.run([&](ReplicaContext& context) {
        optimizer.apply_gradients(context, {.gradients = gradients, .computation = {compute}});
      });
    };
    if (odd_one()) {
      CHECK_THAT(message_of<InvalidArgument>(step), Catch::EndsWith(message));
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::EndsWith(message));
    }
    CHECK(program.everything() == before);
  };
  fails([](Optimizer::AgreedStep&) {}, "the gradient of variable 'table' was never ready in this step");
  fails([&](Optimizer::AgreedStep& step) { step.ready(program.table), step.ready(program.table, one_row(1)); },
        "the gradient of variable 'table' was ready before");
  fails([&](Optimizer::AgreedStep& step) { step.ready(program.bias, one_row(1)); },
        "slices for variable 'bias', whose gradient is a tensor in this step");
  fails([&](Optimizer::AgreedStep& step) { step.ready(program.table, one_row(6)); },
        "the gradient of variable 'table': index 6 is not a row of a dense [6, 2]");
}

TEST_CASE("slices on one rank and a tensor on another are a mismatch, and the ranks stay in step") {
  if (ranks() == 1) return;
  SparseProgram program;
  Sgd optimizer{{.learning_rate = 1}};
  const auto before = program.everything();
  const Optimizer::Gradient::Value mine = odd_one() ? Optimizer::Gradient::Value{one_row(1)}
                                                    : Optimizer::Gradient::Value{Tensor::zeros(DType::f32, {rows, 2})};
  CHECK_THAT(
      mismatch_of([&] {
        program.step(optimizer, {{mine, program.table}});
      }),
      Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("'table' f32[6, 2] by slices"));
  CHECK(program.everything() == before);
  expect_in_step();
}
