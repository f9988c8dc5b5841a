// Replicated model functions, and a program that calls one: for the tests of towers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "support/quiet_log.hpp"
#include "support/ranks.hpp"

namespace lockstep::test {

inline Tensor vector_of(std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count});
}

/// 1, 2, …: one row for each rank, or as many times as many.
inline Tensor counting(int times = 1) {
  std::vector<float> rows;
  for (int row = 1; row <= times * ranks(); ++row) rows.push_back(static_cast<float>(row));
  return vector_of(rows);
}

inline float value_of(const Tensor& tensor) {
  return tensor.to_vector<float>().at(0);
}
inline float value_of(const Variable& variable) {
  return variable.local().to_vector<float>().at(0);
}

inline std::shared_ptr<Sgd> sgd(double rate, std::string name = {}) {
  return std::make_shared<Sgd>(Sgd::Options{.learning_rate = rate, .name = std::move(name)});
}

/// Of one element, which starts as 10.
inline MirroredVariable ten(Tower& tower, std::string name = "c") {
  return tower.variable({.name = std::move(name)}, [] { return vector_of({10}); });
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
  explicit TowerProgram(ModelFn fn, const ReplicateOptions& options = {.reduction = ReplicateOptions::Reduction::sum})
      : model{replicated<Tensor, Tensor>(strategy, std::move(fn), options)} {}

  EstimatorSpec call(const Tensor& features = counting(), EstimatorSpec::Mode mode = EstimatorSpec::Mode::train) {
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

}  // namespace lockstep::test
