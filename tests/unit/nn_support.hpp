// Numbers, shards and gradients for the tests of layers and models.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/input/batches.hpp"
#include "support/noise.hpp"

namespace lockstep::nn {

using test::fill_noise;
using test::noise;

inline void set(const TensorView& view, std::int64_t i, double value) {
  if (view.dtype() == DType::f64) {
    view.elements<double>()[static_cast<std::size_t>(i)] = value;
  } else {
    view.elements<float>()[static_cast<std::size_t>(i)] = static_cast<float>(value);
  }
}

using SharedKernels = std::shared_ptr<const ops::Kernels>;

inline SharedKernels reference() {
  return ops::make_kernels(ops::Kernels::Choice::reference);
}
inline SharedKernels automatic() {
  return ops::make_kernels(ops::Kernels::Choice::automatic);
}

inline std::vector<double> in_double(const TensorView& view) {
  if (view.dtype() == DType::f64) return view.to_vector<double>();
  const auto values = view.to_vector<float>();
  return {values.begin(), values.end()};
}

inline void fill(const TensorView& view, double value) {
  for (std::int64_t i = 0; i < view.count(); ++i) set(view, i, value);
}

inline bool same_bits(const TensorView& a, const TensorView& b) {
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

struct Sizes {
  std::int64_t features;
  std::int64_t classes;
};

/// Samples [first, first + samples) of an endless data set, in a batch of `capacity` rows.
inline SampleBatch samples_from(std::int64_t first, std::int64_t samples, std::int64_t capacity, DType dtype,
                                const Sizes& sizes) {
  const RandomStream inputs{17, RandomStream::Purpose::initial_value, 0};
  const RandomStream labels{17, RandomStream::Purpose::initial_value, 1};
  SampleBatch batch = make_batch(capacity, sizes.features, dtype);
  for (std::int64_t row = 0; row < samples; ++row) {
    for (std::int64_t j = 0; j < sizes.features; ++j)
      set(batch.inputs.view(), row * sizes.features + j,
          inputs.uniform(static_cast<std::uint64_t>((first + row) * sizes.features + j)));
    batch.labels.view().elements<std::int32_t>()[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(
        labels.below(static_cast<std::uint64_t>(sizes.classes), static_cast<std::uint64_t>(first + row)));
  }
  batch.samples = samples;
  return batch;
}

/// A central difference, and the largest error of a gradient that is compared with it.
struct Differences {
  double step;  ///< between the values that it compares
  double margin;
};

/// Compares each element of `gradient` with the central difference of `loss` in that element of the f64 `values`. How
/// many of them are not zero.
inline int check_against_differences(const TensorView& values, const TensorView& gradient,
                                     const std::function<double()>& loss, const Differences& differences) {
  const std::vector<double> expected = gradient.to_vector<double>();
  REQUIRE(expected.size() == static_cast<std::size_t>(values.count()));
  int nonzero = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double& value = values.elements<double>()[i];
    const double before = value;
    value = before + differences.step;
    const double above = loss();
    value = before - differences.step;
    const double below = loss();
    value = before;
    INFO("element " << i);
    CHECK(expected[i] == Approx((above - below) / (2 * differences.step)).epsilon(0).margin(differences.margin));
    nonzero += expected[i] != 0;
  }
  return nonzero;
}

/// The same for the gradient of each of `variables`.
inline int check_against_differences(std::span<const Variable> variables, const GradientBuffer& gradients,
                                     const std::function<double()>& loss, const Differences& differences) {
  int nonzero = 0;
  for (const Variable& variable : variables) {
    INFO(variable.name());
    nonzero += check_against_differences(variable.local(), gradients.of(variable), loss, differences);
  }
  return nonzero;
}

/// Checks that what a model makes of `whole`, in f64, is the fixed-order sum of what it makes of shards of three of its
/// samples and an empty one at the end: within `margin`, because the terms are the same in two orders. `shard_of` gives
/// as many samples as asked for from the first one on.
inline void check_shards_add_up(Model& model, const GradientBuffer& home, std::int64_t step, const SampleBatch& whole,
                                const std::function<SampleBatch(std::int64_t first, std::int64_t samples)>& shard_of,
                                double margin) {
  const ops::Kernels::BatchLoss at_once = model.train_shard(whole, {.step = step}, home);
  const std::vector<double> expected = in_double(home.flat());

  constexpr std::int64_t of_each = 3;
  FixedOrderAccumulator accumulator{home.dtype(), home.count()};
  ops::Kernels::BatchLoss sums;
  for (std::int64_t first = 0; first < whole.samples + of_each; first += of_each) {
    const std::int64_t samples = std::clamp<std::int64_t>(whole.samples - first, 0, of_each);
    const ops::Kernels::BatchLoss part =
        model.train_shard(shard_of(first, samples), {.step = step, .first_sample = first}, home.at(accumulator.next()));
    accumulator.push();
    sums.loss_sum += part.loss_sum;
    sums.correct += part.correct;
  }
  accumulator.finish(home.flat());
  CHECK(sums.loss_sum == Approx(at_once.loss_sum).epsilon(1e-14));
  CHECK(sums.correct == at_once.correct);
  const std::vector<double> found = in_double(home.flat());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(0).margin(margin));
}

}  // namespace lockstep::nn
