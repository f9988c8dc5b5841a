// Lockstep's own kernels, compiled by cusim's nvcc, against loops of the host: the same bits, and nothing found, for
// many seeds, sizes around those of warps and blocks, and grids that are too small to need no stride.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/base/dtype.hpp>

#include "ops/cuda/launch.hpp"
#include "ops/square_blocks.hpp"
#include "ops/update_rules.hpp"
#include "reduce/cuda/launch.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

/// Ends the process of a trial.
void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(4);
}
void require(cudaError_t result) {
  require(result == cudaSuccess, cudaGetErrorString(result));
}

/// Device memory of a kernel. Without content it has never been written.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_{count} {
    void* made = nullptr;
    require(cudaMalloc(&made, std::max<std::size_t>(count, 1) * sizeof(T)));
    data_ = static_cast<T*>(made);
  }
  explicit OnDevice(const std::vector<T>& content) : OnDevice{content.size()} {
    require(cudaMemcpy(data_, content.data(), content.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { require(cudaFree(data_)); }

  T* data() { return data_; }
  std::vector<T> content() const {
    std::vector<T> copy(count_);
    require(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <class T>
void require_same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  require(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0, what + ": wrong values");
}

/// Sizes and values of one seed.
struct Trial {
  std::mt19937_64 random;

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  }

  /// Around a multiple of a warp, a block or a grid of two blocks, or small.
  std::int64_t size() {
    if (below(2)) return 1 + below(130);
    constexpr std::array<std::int64_t, 6> steps{32, 64, 256, 512, 1024, 2048};
    return steps[static_cast<std::size_t>(below(6))] + below(3) - 1;
  }

  template <class T>
  std::vector<T> numbers(std::int64_t count) {
    std::vector<T> made(static_cast<std::size_t>(count));
    for (T& number : made) {
      const double value = static_cast<double>(below(2001) - 1000) / 70;  // rounded, so that the order of sums shows
      if constexpr (std::is_integral_v<T>)
        number = static_cast<T>(below(1000));
      else
        number = static_cast<T>(static_cast<float>(value));
    }
    return made;
  }
};

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
  require(ops::cuda::launch_sgd<T>(dvalues.data(), dgradient.data(), step, count, nullptr));
  require(ops::cuda::launch_momentum<T>(dvalues.data(), dgradient.data(), dfirst.data(), step, T(0.9), count, nullptr));
  require(ops::cuda::launch_adamw<T>(dvalues.data(), dgradient.data(), dfirst.data(), dsecond.data(), step, adam, count,
                                     nullptr));
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
  require(ops::cuda::launch_block_sums<T>(dx.data(), count, sums.data(), nullptr));
  require(ops::cuda::launch_tree_sum(sums.data(), blocks, nullptr));
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
  require(ops::cuda::launch_tree_sum(dmany.data(), static_cast<std::int64_t>(many.size()), nullptr));
  require(dmany.content()[0] == tree(many, 0, many.size()), "tree of sums");
}

template <class T>
void try_softmax(Trial& trial) {
  const std::int64_t rows = 1 + trial.below(trial.below(4) ? 60 : 600), classes = 1 + trial.below(100),
                     samples = 1 + trial.below(rows);
  const auto logits = trial.numbers<T>(rows * classes);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
  for (auto& label : labels) label = static_cast<std::int32_t>(trial.below(classes));
  const std::int64_t bad = trial.below(5) ? samples : trial.below(samples);
  if (bad < samples) labels[static_cast<std::size_t>(bad)] = static_cast<std::int32_t>(classes);
  const std::int64_t wants_gradient = trial.below(3);
  OnDevice<T> dlogits{logits}, apart{logits.size()};
  OnDevice<std::int32_t> dlabels{labels};
  OnDevice<ops::cuda::SoftmaxRow> shares{static_cast<std::size_t>(samples)};
  OnDevice<ops::cuda::SoftmaxAnswer> answer{1};
  T* const gradient = wants_gradient == 0 ? nullptr : wants_gradient == 1 ? apart.data() : dlogits.data();
  require(ops::cuda::launch_softmax<T>({dlogits.data(), dlabels.data(), rows, classes, samples, gradient},
                                       shares.data(), answer.data(), nullptr));
  ops::cuda::SoftmaxAnswer got{};
  // Its end is padding, which the kernels do not write.
  require(cudaMemcpy(&got, answer.data(), sizeof(double) + 2 * sizeof(std::int64_t) + sizeof(std::int32_t),
                     cudaMemcpyDeviceToHost));
  require(got.bad_row == bad, "softmax: bad row");
  if (bad < samples) return;
  double loss = 0;
  for (std::int64_t row = 0; row < samples; ++row) {
    const T* const x = logits.data() + row * classes;
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
      sum += static_cast<double>(d[static_cast<std::size_t>(row * classes + j)]);
    require(std::abs(sum) < 1e-4, "softmax: the gradients of a row do not add up to 0");
  }
}

template <class T>
void try_reductions(Trial& trial) {
  using Sum = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;
  const std::int64_t count = trial.size();
  const int parts = static_cast<int>(1 + trial.below(9)), divisor = static_cast<int>(1 + trial.below(3));
  const auto pieces = trial.numbers<T>(count * parts);
  const auto x = trial.numbers<T>(count);
  OnDevice<T> dpieces{pieces}, dx{x}, sum{x.size()};
  require(lockstep::detail::cuda::launch_tree_sum<T>(dpieces.data(), count, parts, 1, sum.data(), count, nullptr));
  std::vector<T> expected(x.size());
  const auto at = [&](std::size_t i) {
    std::vector<Sum> terms;
    for (int part = 0; part < parts; ++part)
      terms.push_back(static_cast<Sum>(pieces[static_cast<std::size_t>(part) * x.size() + i]));
    return tree(terms, 0, terms.size());
  };
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = static_cast<T>(at(i));
  require_same(sum.content(), expected, "tree of parts");
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

void try_all(unsigned seed) {
  setenv("CUSIM_SEED", std::to_string(seed).c_str(), 1);
  setenv("CUSIM_MOST_BLOCKS", seed % 2 ? "2" : "0", 1);
  Trial trial{.random = std::mt19937_64{seed}};
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
  for (unsigned seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try_all(seed);
      std::_Exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
  }
}
