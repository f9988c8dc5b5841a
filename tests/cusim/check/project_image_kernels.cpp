// Lockstep's own kernels for images, as in project_kernels.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "models/ops/cuda/image_launch.hpp"
#include "trial.hpp"

using namespace lockstep::ops;
using namespace cusim::test;

namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

template <class T>
void try_patches(Trial& trial) {
  const std::int64_t kernel_height = 1 + trial.below(3), kernel_width = 1 + trial.below(3);
  const std::int64_t rows = 1 + trial.below(5), columns = 1 + trial.below(6);
  const cuda::Patches of{.images = 1 + trial.below(trial.below(4) ? 4 : 20),
                         .height = rows + kernel_height - 1,
                         .width = columns + kernel_width - 1,
                         .channels = 1 + trial.below(trial.below(4) ? 5 : 40),
                         .kernel_height = kernel_height,
                         .kernel_width = kernel_width,
                         .rows = rows,
                         .columns = columns};
  const std::int64_t patch = kernel_height * kernel_width * of.channels;
  const auto x = trial.numbers<T>(of.images * of.height * of.width * of.channels);
  const auto d = trial.numbers<T>(of.images * rows * columns * patch);
  std::vector<T> patches = d, sums(x.size());
  // Where element `i` of a patch is in the images. The order of a sum is that of the kernel's positions.
  const auto from = [&](std::int64_t number, std::int64_t i) {
    const std::int64_t image = number / columns / rows, row = number / columns % rows, column = number % columns;
    const std::int64_t down = i / of.channels / kernel_width, right = i / of.channels % kernel_width;
    return index(((image * of.height + row + down) * of.width + column + right) * of.channels + i % of.channels);
  };
  for (std::int64_t i = 0; i < patch; ++i)
    for (std::int64_t number = 0; number < of.images * rows * columns; ++number) {
      patches[index(number * patch + i)] = x[from(number, i)];
      sums[from(number, i)] += d[index(number * patch + i)];
    }
  OnDevice<T> dx{x}, dpatches{d.size()}, dd{d}, gathered{x.size()};
  require(cuda::launch_im2col<T>(of, dx.data(), dpatches.data(), nullptr));
  require(cuda::launch_col2im<T>(of, dd.data(), gathered.data(), nullptr));
  require_same(dpatches.content(), patches, "im2col");
  require_same(gathered.content(), sums, "col2im");
}

template <class T>
void try_max_pool(Trial& trial) {
  const cuda::Images of{.images = 1 + trial.below(trial.below(4) ? 4 : 40),
                        .height = 2 + trial.below(5),
                        .width = 2 + trial.below(5),
                        .channels = 1 + trial.below(trial.below(4) ? 5 : 130)};
  const std::int64_t rows = of.height / 2, columns = of.width / 2;
  auto x = trial.numbers<T>(of.images * of.height * of.width * of.channels);
  for (T& value : x) value = std::floor(value / 8);  // many are equal
  const auto dy = trial.numbers<T>(of.images * rows * columns * of.channels);
  std::vector<T> y(dy.size()), gradient(x.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(dy.size()); ++i) {
    const std::int64_t channel = i % of.channels, window = i / of.channels;
    const std::int64_t image = window / columns / rows, row = window / columns % rows * 2,
                       column = window % columns * 2;
    std::size_t best = 0;
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::size_t at =
          index(((image * of.height + row + k / 2) * of.width + column + k % 2) * of.channels + channel);
      if (k == 0 || x[best] < x[at]) best = at;
    }
    y[index(i)] = x[best];
    gradient[best] = dy[index(i)];
  }
  const bool in_place = trial.below(2) != 0;
  OnDevice<T> dx{x}, pooled{dy.size()}, ddy{dy}, apart{x.size()};
  T* const to = in_place ? dx.data() : apart.data();
  require(cuda::launch_max_pool<T>(of, dx.data(), pooled.data(), nullptr));
  require(cuda::launch_max_pool_gradient<T>(of, dx.data(), ddy.data(), to, nullptr));
  require_same(pooled.content(), y, "max_pool");
  require_same(in_place ? dx.content() : apart.content(), gradient, "max_pool_gradient");
}

template <class T>
void try_batch_norm(Trial& trial) {
  const std::int64_t channels = 1 + trial.below(trial.below(4) ? 40 : 130);
  const cuda::ChannelRows of{.rows = trial.below(4) ? trial.below(40) : 250 + trial.below(600), .channels = channels};
  const auto x = trial.numbers<T>(of.rows * channels), dy = trial.numbers<T>(of.rows * channels);
  const auto means = trial.numbers<T>(channels), gamma = trial.numbers<T>(channels), beta = trial.numbers<T>(channels);
  auto variances = trial.numbers<T>(channels);
  for (T& each : variances) each *= each;
  const double samples = static_cast<double>(1 + trial.below(9)), epsilon = 0.5;
  OnDevice<T> dx{x}, ddy{dy}, dmeans{means}, dvariances{variances}, dgamma{gamma}, dbeta{beta}, y{x.size()},
      result{x.size()}, sums{gamma.size()}, squares{gamma.size()}, products{gamma.size()};
  OnDevice<double> parts{index(cuda::channel_parts(of))};
  const cuda::ChannelMoments<T> by{dmeans.data(), dvariances.data(), samples, epsilon};
  require(cuda::launch_channel_sums<T>(of, dx.data(), 3, parts.data(), sums.data(), nullptr));
  require(
      cuda::launch_channel_squares<T>(of, dx.data(), dmeans.data(), samples, 3, parts.data(), squares.data(), nullptr));
  require(cuda::launch_channel_products<T>(of, dx.data(), by, ddy.data(), parts.data(), products.data(), nullptr));
  std::vector<T> sum(gamma.size()), square(gamma.size()), product(gamma.size()), normal = x, gradient = x;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto mean = static_cast<T>(static_cast<double>(means[index(c)]) / samples);
    const auto inverse = static_cast<T>(1 / std::sqrt(static_cast<double>(variances[index(c)]) / samples + epsilon));
    double values = 0, distances = 0, by_dy = 0;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      const std::size_t i = index(row * channels + c);
      const double distance = static_cast<double>(x[i]) - static_cast<double>(means[index(c)]) / samples;
      values += static_cast<double>(x[i]);
      distances += distance * distance;
      by_dy += static_cast<double>(dy[i]) * static_cast<double>(x[i] - mean);
      normal[i] = (x[i] - mean) * (gamma[index(c)] * inverse) + beta[index(c)];
      // The gradients of gamma and beta, as which gamma and beta serve here, are sums over seven rows.
      const auto offset = static_cast<T>(static_cast<double>(beta[index(c)]) / 7);
      const auto slope = static_cast<T>(static_cast<double>(gamma[index(c)]) / 7 * static_cast<double>(inverse));
      gradient[i] = gamma[index(c)] * inverse * (dy[i] - offset - (x[i] - mean) * slope);
    }
    sum[index(c)] = static_cast<T>(values / 3);
    square[index(c)] = static_cast<T>(distances / 3);
    product[index(c)] = static_cast<T>(by_dy * static_cast<double>(inverse));
  }
  require_close(sums.content(), sum, "channel_sums");
  require_close(squares.content(), square, "channel_squares");
  require_loosely(products.content(), product, "channel_products");
  if (of.rows == 0) return;
  const bool in_place = trial.below(2) != 0;
  T* const to = in_place ? ddy.data() : result.data();
  require(cuda::launch_batch_norm<T>(of, dx.data(), by, dgamma.data(), dbeta.data(), y.data(), nullptr));
  require(cuda::launch_batch_norm_gradient<T>(of, dx.data(), by, 7, dgamma.data(), ddy.data(), dgamma.data(),
                                              dbeta.data(), to, nullptr));
  require_same(y.content(), normal, "batch_norm");
  require_same(in_place ? ddy.content() : result.content(), gradient, "batch_norm_gradient");
}

template <class T>
void try_dropout(Trial& trial) {
  const std::int64_t count = trial.size();
  const lockstep::RandomStream stream{trial.random(), lockstep::RandomStream::Purpose::dropout, 3};
  const auto first = static_cast<std::uint64_t>(trial.below(1 << 20)), limit = static_cast<std::uint64_t>(1) << 31;
  const auto x = trial.numbers<T>(count), sum = trial.numbers<T>(count);
  std::vector<std::uint32_t> words(x.size());
  stream.words(first, words);
  std::vector<T> mask, dropped, averages;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mask.push_back(words[i] < limit ? T{0} : T{2});
    dropped.push_back(x[i] * mask[i]);
    averages.push_back(T(0.75) * dropped[i] + (T{1} - T(0.75)) * (sum[i] / T{5}));
  }
  OnDevice<T> dmask{x.size()}, dx{x}, dsum{sum};
  require(
      cuda::launch_dropout_mask<T>(lockstep::PhiloxWords{stream}, first, limit, T{2}, dmask.data(), count, nullptr));
  require(cuda::launch_multiply<T>(dx.data(), dmask.data(), dx.data(), count, nullptr));
  require_same(dmask.content(), mask, "dropout_mask");
  require_same(dx.content(), dropped, "multiply");
  require(cuda::launch_moving_average<T>(dx.data(), dsum.data(), T{5}, T(0.75), count, nullptr));
  require_same(dx.content(), averages, "moving_average");
}

}  // namespace

TEST_CASE("lockstep's kernels for images compute what the host does, and nothing is found, whatever the seed") {
  try_with_seeds([](Trial& trial) {
    for (int round = 0; round < 3; ++round) {
      try_patches<float>(trial);
      try_patches<double>(trial);
      try_max_pool<float>(trial);
      try_max_pool<double>(trial);
      try_batch_norm<float>(trial);
      try_batch_norm<double>(trial);
      try_dropout<float>(trial);
      try_dropout<double>(trial);
    }
  });
}
