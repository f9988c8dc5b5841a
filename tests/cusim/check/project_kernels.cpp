// Lockstep's own kernels, compiled by cusim's nvcc, against loops of the host: the same bits, and nothing found, for
// many seeds, sizes around those of warps and blocks, and grids that are too small to need no stride.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

#include "models/ops/cuda/launch.hpp"
#include "models/ops/cuda/sequence_launch.hpp"
#include "models/ops/gelu.hpp"
#include "sync/reduce/cuda/launch.hpp"
#include "sync/update/cuda/launch.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_rules.hpp"
#include "trial.hpp"

using namespace lockstep;
using namespace lockstep::detail;
using namespace lockstep::ops;
using namespace cusim::test;

namespace {

template <class T>
void try_elementwise(Trial& trial) {
  const std::int64_t count = trial.size();
  const auto x = trial.numbers<T>(count), y = trial.numbers<T>(count);
  std::vector<T> expected = x;
  OnDevice<T> dx{x}, dy{y}, fresh{x.size()}, gradient{x.size()};

  require(ops::cuda::launch_relu<T>(dx.data(), fresh.data(), count, nullptr));
  for (T& value : expected) value = value < T{0} ? T{0} : value;
  require_same(fresh.content(), expected, "relu");

  require(ops::cuda::launch_relu_gradient<T>(fresh.data(), dy.data(), gradient.data(), count, nullptr));
  std::vector<T> kept = y;
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (expected[i] <= T{0}) kept[i] = T{0};
  require_same(gradient.content(), kept, "relu_gradient");

  require(ops::cuda::launch_add<T>(dx.data(), dy.data(), count, nullptr));
  expected = x;
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += y[i];
  require_same(dx.content(), expected, "add");
}

template <class T>
void try_rows(Trial& trial) {
  const std::int64_t rows = 1 + trial.below(20), columns = 1 + trial.below(70);
  auto x = trial.numbers<T>(rows * columns);
  const auto bias = trial.numbers<T>(columns);
  OnDevice<T> dx{x}, dbias{bias}, out{bias.size()};
  require(ops::cuda::launch_add_bias<T>(dx.data(), dbias.data(), rows, columns, nullptr));
  require(ops::cuda::launch_sum_rows<T>(dx.data(), out.data(), rows, columns, nullptr));
  std::vector<T> sums(bias.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] += bias[i % bias.size()];
    sums[i % bias.size()] += x[i];
  }
  require_same(dx.content(), x, "add_bias");
  require_same(out.content(), sums, "sum_rows");
}

template <class T>
void try_updates(Trial& trial) {
  const std::int64_t count = trial.size();
  auto values = trial.numbers<T>(count), first = trial.numbers<T>(count), second = trial.numbers<T>(count);
  const auto gradient = trial.numbers<T>(count);
  for (T& square : second) square = std::abs(square);
  const StepScalars<T> step{T(0.1), T(3), T(0.5), T(0.01)};
  const AdamWScalars<T> adam{T(0.9), T(0.1), T(0.99), T(0.01), T(0.2), T(0.3), T(1e-8)};
  OnDevice<T> dvalues{values}, dgradient{gradient}, dfirst{first}, dsecond{second};
  require(detail::cuda::launch_sgd<T>(dvalues.data(), dgradient.data(), step, count, nullptr));
  require(
      detail::cuda::launch_momentum<T>(dvalues.data(), dgradient.data(), dfirst.data(), step, T(0.9), count, nullptr));
  require(detail::cuda::launch_adamw<T>(dvalues.data(), dgradient.data(), dfirst.data(), dsecond.data(), step, adam,
                                        count, nullptr));
  for (std::size_t i = 0; i < values.size(); ++i) {
    apply_sgd(values[i], gradient[i], step);
    apply_momentum(values[i], gradient[i], first[i], step, T(0.9));
    apply_adamw(values[i], gradient[i], first[i], second[i], step, adam);
  }
  require_same(dvalues.content(), values, "updates");
  require_same(dsecond.content(), second, "adamw");
}

/// What fixed_order_sum promises.
template <class T>
T tree(const std::vector<T>& parts, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return parts[begin];
  std::size_t left = 1;
  while (left * 2 < end - begin) left *= 2;
  return static_cast<T>(tree(parts, begin, begin + left) + tree(parts, begin + left, end));
}

template <class T>
void try_squares(Trial& trial) {
  const std::int64_t count = trial.below(3) ? trial.size() : 2 * square_block + trial.below(3) - 1;
  const auto x = trial.numbers<T>(count);
  const std::int64_t blocks = square_blocks(count);
  OnDevice<T> dx{x};
  OnDevice<double> sums{static_cast<std::size_t>(blocks)};
  require(detail::cuda::launch_block_sums<T>(dx.data(), count, sums.data(), nullptr));
  require(detail::cuda::launch_sum_of_sums(sums.data(), blocks, nullptr));
  std::vector<double> expected;
  for (std::int64_t first = 0; first < count; first += square_block) {
    std::vector<double> lanes(square_lanes);
    for (std::int64_t i = first; i < std::min(count, first + square_block); ++i) {
      const auto value = static_cast<double>(x[static_cast<std::size_t>(i)]);
      lanes[static_cast<std::size_t>((i - first) % square_lanes)] += value * value;
    }
    for (std::size_t width = square_lanes / 2; width > 0; width /= 2)
      for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    expected.push_back(lanes[0]);
  }
  require(sums.content()[0] == tree(expected, 0, expected.size()), "sum of squares");

  const auto many = trial.numbers<double>(1 + trial.below(3000));
  OnDevice<double> dmany{many};
  require(detail::cuda::launch_sum_of_sums(dmany.data(), static_cast<std::int64_t>(many.size()), nullptr));
  require(dmany.content()[0] == tree(many, 0, many.size()), "tree of sums");
}

template <class T>
void try_softmax(Trial& trial) {
  const std::int64_t rows = 1 + trial.below(trial.below(4) ? 60 : 600), classes = 1 + trial.below(100),
                     samples = 1 + trial.below(rows);
  // What lies between the rows must not be read.
  const std::int64_t stride = classes + trial.below(2) * trial.below(40);
  auto logits = trial.numbers<T>(rows * stride);
  for (std::int64_t i = 0; i < rows * stride; ++i)
    if (i % stride >= classes) logits[static_cast<std::size_t>(i)] = std::numeric_limits<T>::quiet_NaN();
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
  for (auto& label : labels) label = static_cast<std::int32_t>(trial.below(classes));
  const std::int64_t bad = trial.below(5) ? samples : trial.below(samples);
  if (bad < samples) labels[static_cast<std::size_t>(bad)] = static_cast<std::int32_t>(classes);
  const std::int64_t wants_gradient = trial.below(3);
  OnDevice<T> dlogits{logits}, apart{std::vector<T>(logits.size(), std::numeric_limits<T>::quiet_NaN())};
  OnDevice<std::int32_t> dlabels{labels};
  OnDevice<ops::cuda::SoftmaxRow> shares{static_cast<std::size_t>(samples)};
  OnDevice<ops::cuda::SoftmaxAnswer> answer{1};
  T* const gradient = wants_gradient == 0 ? nullptr : wants_gradient == 1 ? apart.data() : dlogits.data();
  require(ops::cuda::launch_softmax<T>({dlogits.data(), dlabels.data(), rows, classes, stride, samples, gradient},
                                       shares.data(), answer.data(), nullptr));
  ops::cuda::SoftmaxAnswer got{};
  // Its end is padding, which the kernels do not write.
  require(cudaMemcpy(&got, answer.data(), sizeof(double) + 2 * sizeof(std::int64_t) + sizeof(std::int32_t),
                     cudaMemcpyDeviceToHost));
  require(got.bad_row == bad, "softmax: bad row");
  if (bad < samples) return;
  double loss = 0;
  for (std::int64_t row = 0; row < samples; ++row) {
    const T* const x = logits.data() + row * stride;
    const T max = *std::max_element(x, x + classes);
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j) sum += std::exp(static_cast<double>(x[j] - max));
    loss += std::log(sum) - static_cast<double>(x[labels[static_cast<std::size_t>(row)]] - max);
  }
  require(std::abs(got.loss_sum - loss) <= 1e-4 * (1 + std::abs(loss)), "softmax: loss");
  if (wants_gradient == 0) return;
  const std::vector<T> d = wants_gradient == 1 ? apart.content() : dlogits.content();
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j)
      sum += static_cast<double>(d[static_cast<std::size_t>(row * stride + j)]);
    require(std::abs(sum) < 1e-4, "softmax: the gradients of a row do not add up to 0");
    for (std::int64_t j = classes; j < stride; ++j)
      require(std::isnan(d[static_cast<std::size_t>(row * stride + j)]), "softmax: wrong padding");
  }
}

template <class T>
void try_gelu(Trial& trial) {
  const std::int64_t count = trial.size();
  const auto x = trial.numbers<T>(count), dy = trial.numbers<T>(count);
  OnDevice<T> dx{x}, ddy{dy}, y{x.size()};
  require(ops::cuda::launch_gelu<T>(dx.data(), y.data(), count, nullptr));
  require(ops::cuda::launch_gelu_gradient<T>(dx.data(), ddy.data(), ddy.data(), count, nullptr));
  std::vector<T> expected = x, gradient = dy;
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected[i] = gelu_of(x[i]);
    gradient[i] *= gelu_derivative(x[i]);
  }
  require_close(y.content(), expected, "gelu");
  require_close(ddy.content(), gradient, "gelu_gradient");
}

/// Rows of a table, repeated or unused; sometimes with an index that is none.
template <class T>
void try_indexed_rows(Trial& trial) {
  const std::int64_t entries = 1 + trial.below(40),
                     width = trial.below(3) ? 1 + trial.below(130) : 255 + trial.below(3);
  const std::int64_t count = trial.below(4) ? 1 + trial.below(130) : 500 + trial.below(700);
  const auto table = trial.numbers<T>(entries * width), rows = trial.numbers<T>(count * width);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
  for (auto& index : indices) index = static_cast<std::int32_t>(trial.below(entries));
  const std::int64_t bad = trial.below(3) ? count : trial.below(count);
  const auto wrong = static_cast<std::int32_t>(trial.below(2) ? entries : -1);
  for (std::int64_t at : {bad, bad + trial.below(300)})
    if (at < count) indices[static_cast<std::size_t>(at)] = wrong;
  OnDevice<std::int32_t> dindices{indices};
  OnDevice<T> dtable{table}, drows{rows}, looked_up{rows};
  OnDevice<ops::cuda::BadIndex> answer{1};
  const ops::cuda::IndexedRows which{.indices = dindices.data(), .count = count, .entries = entries, .width = width};
  require(ops::cuda::launch_check_indices(which, answer.data(), nullptr));
  require(answer.content()[0].position == bad, "check_indices: wrong position");
  require(answer.content()[0].index == (bad < count ? wrong : 0), "check_indices: wrong index");
  require(ops::cuda::launch_gather_rows<T>(which, answer.data(), dtable.data(), looked_up.data(), nullptr));
  require(ops::cuda::launch_scatter_add_rows<T>(which, drows.data(), dtable.data(), nullptr));
  std::vector<T> gathered = rows, sums = table;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(width), column = i % static_cast<std::size_t>(width);
    if (indices[row] < 0 || indices[row] >= entries) continue;
    const std::size_t place = static_cast<std::size_t>(indices[row]) * static_cast<std::size_t>(width) + column;
    if (bad == count) gathered[i] = table[place];
    sums[place] += rows[i];
  }
  require_same(looked_up.content(), gathered, "gather_rows");
  require_same(dtable.content(), sums, "scatter_add_rows");
}

template <class T>
void try_layer_norm(Trial& trial) {
  const std::int64_t rows = trial.below(trial.below(4) ? 20 : 131), width = 1 + trial.below(trial.below(4) ? 70 : 130);
  const auto x = trial.numbers<T>(rows * width), dy = trial.numbers<T>(rows * width);
  const auto gain = trial.numbers<T>(width), bias = trial.numbers<T>(width);
  const T epsilon = T(0.5) + static_cast<T>(trial.below(3));
  OnDevice<T> dx{x}, ddy{dy}, dgain{gain}, dbias{bias}, y{x.size()}, moments{2 * static_cast<std::size_t>(rows)},
      gain_sums{gain.size()}, bias_sums{gain.size()};
  const ops::cuda::NormRows<T> of{.x = dx.data(), .gain = dgain.data(), .rows = rows, .width = width};
  require(ops::cuda::launch_layer_norm<T>(of, dbias.data(), epsilon, y.data(), moments.data(), nullptr));
  require(ops::cuda::launch_layer_norm_sums<T>(of, moments.data(), ddy.data(), gain_sums.data(), bias_sums.data(),
                                               nullptr));
  // In the place of dy, or beside it.
  const bool in_place = trial.below(2) != 0;
  OnDevice<T> apart{x.size()};
  T* const d = in_place ? ddy.data() : apart.data();
  require(ops::cuda::launch_layer_norm_gradient<T>(of, moments.data(), ddy.data(), d, nullptr));

  std::vector<T> expected = x, expected_moments(2 * static_cast<std::size_t>(rows)), gradient = x, d_gain(gain.size()),
                 d_bias(gain.size());
  const std::vector<T> found = moments.content();
  const auto columns = static_cast<std::size_t>(width);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const T* const in = x.data() + row * columns;
    double mean = 0, variance = 0, mean_g = 0, mean_gn = 0;
    for (std::size_t j = 0; j < columns; ++j) mean += static_cast<double>(in[j]) / static_cast<double>(width);
    for (std::size_t j = 0; j < columns; ++j) variance += std::pow(in[j] - mean, 2) / static_cast<double>(width);
    const double inverse = 1 / std::sqrt(variance + static_cast<double>(epsilon));
    expected_moments[2 * row] = static_cast<T>(mean);
    expected_moments[2 * row + 1] = static_cast<T>(inverse);
    for (std::size_t j = 0; j < columns; ++j) {
      const std::size_t i = row * columns + j;
      const double g = static_cast<double>(dy[i]) * gain[j], n = (in[j] - mean) * inverse;
      mean_g += g / static_cast<double>(width);
      mean_gn += g * n / static_cast<double>(width);
      expected[i] = static_cast<T>(n * gain[j] + bias[j]);
      d_gain[j] += dy[i] * ((in[j] - found[2 * row]) * found[2 * row + 1]);
      d_bias[j] += dy[i];
    }
    for (std::size_t j = 0; j < columns; ++j) {
      const std::size_t i = row * columns + j;
      const double g = static_cast<double>(dy[i]) * gain[j], n = (in[j] - mean) * inverse;
      gradient[i] = static_cast<T>(inverse * (g - mean_g - n * mean_gn));
    }
  }
  require_loosely(y.content(), expected, "layer_norm");
  require_loosely(found, expected_moments, "moments");
  require_same(gain_sums.content(), d_gain, "layer_norm gain");
  require_same(bias_sums.content(), d_bias, "layer_norm bias");
  require_loosely(in_place ? ddy.content() : apart.content(), gradient, "layer_norm_gradient");
}

template <class T>
void try_attention(Trial& trial) {
  const std::int64_t context = 1 + trial.below(trial.below(8) ? 40 : 130), matrices = 1 + trial.below(2);
  auto scores = trial.numbers<T>(matrices * context * context), d = trial.numbers<T>(matrices * context * context);
  // So large that exp overflows; and what comes later must not be read.
  const T far = trial.below(2) ? T(1000) : T(0);
  for (std::int64_t i = 0; i < matrices * context * context; ++i) {
    const auto at = static_cast<std::size_t>(i);
    scores[at] += far;
    if (i % context > i / context % context) scores[at] = d[at] = std::numeric_limits<T>::quiet_NaN();
  }
  OnDevice<T> p{scores}, kept{static_cast<std::size_t>(matrices * context)}, again{scores}, q{scores.size()}, own{d};
  require(ops::cuda::launch_causal_softmax<T>(p.data(), p.data(), kept.data(), matrices, context, nullptr));
  require(ops::cuda::launch_causal_probabilities<T>(again.data(), kept.data(), q.data(), matrices, context, nullptr));
  const std::vector<T> found = q.content();
  require(ops::cuda::launch_causal_softmax_gradient<T>(q.data(), own.data(), q.data(), matrices, context, nullptr));
  std::vector<T> expected(scores.size()), gradient(scores.size()), log_sum_exps;
  for (std::int64_t row = 0; row < matrices * context; ++row) {
    const auto first = static_cast<std::size_t>(row * context);
    const std::size_t end = first + static_cast<std::size_t>(row % context) + 1;
    T largest = scores[first];
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, scores[i]);
    double sum = 0, mean = 0;
    for (std::size_t i = first; i < end; ++i) sum += std::exp(static_cast<double>(scores[i] - largest));
    for (std::size_t i = first; i < end; ++i) {
      expected[i] = static_cast<T>(std::exp(static_cast<double>(scores[i] - largest)) / sum);
      mean += static_cast<double>(found[i]) * d[i];
    }
    for (std::size_t i = first; i < end; ++i) gradient[i] = static_cast<T>(found[i] * (d[i] - mean));
    log_sum_exps.push_back(static_cast<T>(static_cast<double>(largest) + std::log(sum)));
  }
  require_close(p.content(), expected, "causal_softmax");
  require_close(kept.content(), log_sum_exps, "log_sum_exps");
  require_loosely(found, expected, "causal_probabilities");
  require_loosely(q.content(), gradient, "causal_softmax_gradient");
}

/// The sum of `terms` in a tree that is drawn, neither part of which is much longer, and the additions that make it.
template <class Sum>
Sum drawn_tree(Trial& trial, std::span<const Sum> terms, std::span<int> additions) {
  if (terms.size() == 1) return terms.front();
  const auto size = static_cast<std::int64_t>(terms.size());
  const auto left = static_cast<std::size_t>(std::max<std::int64_t>(1, size / 4 + trial.below((size + 1) / 2)));
  const Sum first = drawn_tree(trial, terms.first(left), additions.first(left));
  const Sum second = drawn_tree(trial, terms.subspan(left), additions.subspan(left));
  ++additions.back();
  return static_cast<Sum>(first + second);
}

/// Sums of up to the most pieces in any tree.
template <class T>
void try_given_tree(Trial& trial) {
  using lockstep::detail::cuda::Additions;
  using Sum = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
  const auto parts = static_cast<std::size_t>(2 + trial.below(Additions::most_pieces - 1));
  const auto pieces = trial.numbers<T>(static_cast<std::int64_t>(parts));
  const std::vector<Sum> terms(pieces.begin(), pieces.end());
  std::vector<int> additions(parts);
  const std::vector<T> expected{static_cast<T>(drawn_tree<Sum>(trial, terms, additions))};
  Additions packed;
  std::size_t bit = 0;
  for (const int count : additions) {
    for (int i = 0; i < count; ++i, ++bit) packed.words[bit / 64] |= std::uint64_t{1} << bit % 64;
    ++bit;
  }
  OnDevice<T> dpieces{pieces}, sum{1};
  require(lockstep::detail::cuda::launch_tree_sum<T>(dpieces.data(), 1, static_cast<int>(parts), packed, 1, sum.data(),
                                                     1, nullptr));
  require_same(sum.content(), expected, "a given tree of parts");
}

template <class T>
void try_reductions(Trial& trial) {
  using Sum = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
  const std::int64_t count = trial.size();
  const int parts = static_cast<int>(1 + trial.below(9)), divisor = static_cast<int>(1 + trial.below(3));
  const auto pieces = trial.numbers<T>(count * parts);
  const auto x = trial.numbers<T>(count);
  OnDevice<T> dpieces{pieces}, dx{x}, sum{x.size()}, mean{x.size()};
  require(lockstep::detail::cuda::launch_tree_sum<T>(dpieces.data(), count, parts, {}, 1, sum.data(), count, nullptr));
  std::vector<T> expected(x.size());
  const auto at = [&](std::size_t i) {
    std::vector<Sum> terms;
    for (int part = 0; part < parts; ++part)
      terms.push_back(static_cast<Sum>(pieces[static_cast<std::size_t>(part) * x.size() + i]));
    return tree(terms, 0, terms.size());
  };
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = static_cast<T>(at(i));
  require_same(sum.content(), expected, "tree of parts");
  if (divisor > 1) {  // rounded once, at the end
    require(lockstep::detail::cuda::launch_tree_sum<T>(dpieces.data(), count, parts, {}, divisor, mean.data(), count,
                                                       nullptr));
    std::vector<T> means(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      means[i] = static_cast<T>(static_cast<Sum>(at(i) / static_cast<Sum>(divisor)));
    require_same(mean.content(), means, "mean of parts");
  }
  require(lockstep::detail::cuda::launch_add<T>(sum.data(), dx.data(), count, nullptr));
  for (std::size_t i = 0; i < x.size(); ++i)
    expected[i] = static_cast<T>(static_cast<Sum>(static_cast<Sum>(expected[i]) + static_cast<Sum>(x[i])));
  require_same(sum.content(), expected, "addition");
  require(lockstep::detail::cuda::launch_divide<T>(sum.data(), divisor, count, nullptr));
  if (divisor > 1)
    for (T& value : expected)
      value = static_cast<T>(static_cast<Sum>(static_cast<Sum>(value) / static_cast<Sum>(divisor)));
  require_same(sum.content(), expected, "division");
}

void try_all(Trial& trial) {
  for (int round = 0; round < 3; ++round) {
    try_elementwise<float>(trial);
    try_elementwise<double>(trial);
    try_rows<float>(trial);
    try_rows<double>(trial);
    try_updates<float>(trial);
    try_updates<double>(trial);
    try_squares<float>(trial);
    try_squares<double>(trial);
    try_softmax<float>(trial);
    try_softmax<double>(trial);
    try_gelu<float>(trial);
    try_gelu<double>(trial);
    try_indexed_rows<float>(trial);
    try_indexed_rows<double>(trial);
    try_layer_norm<float>(trial);
    try_layer_norm<double>(trial);
    try_attention<float>(trial);
    try_attention<double>(trial);
    try_given_tree<float>(trial);
    try_given_tree<double>(trial);
    try_given_tree<BFloat16>(trial);
    try_given_tree<std::int64_t>(trial);
    try_reductions<float>(trial);
    try_reductions<double>(trial);
    try_reductions<Half>(trial);
    try_reductions<BFloat16>(trial);
    try_reductions<std::int32_t>(trial);
    try_reductions<std::int64_t>(trial);
    try_reductions<std::uint8_t>(trial);
  }
}

}  // namespace

TEST_CASE("lockstep's kernels compute what the host does, and nothing is found, whatever the seed") {
  cusim::test::try_with_seeds(try_all);
}
