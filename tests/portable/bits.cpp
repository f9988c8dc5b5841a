// What the portable functions and the loops of the reference kernels compute, as one digest per function and type,
// compared with those in the file that is named, or printed if none is. Prints the lines that differ, and exits 1 if
// there are some.
//
// Numbers come from integers, so that nothing here depends on a library either.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/portable_functions.hpp"
#include "models/ops/elementary_functions.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/reference/loops.hpp"
#include "models/ops/reference/sequence_loops.hpp"
#include "models/ops/reference/softmax.hpp"
#include "sync/update/update_loops.hpp"

// The headers of image kernels need it, and some clang++ do not know the standard library's.
#ifdef __cpp_lib_source_location
#include "models/ops/reference/image_loops.hpp"
#endif

namespace {

using namespace lockstep;
namespace loops = lockstep::ops::loops;
using Functions = lockstep::ops::PortableFunctions;

/// Uniform in [0, 1): Knuth's linear congruential generator of 64 bits.
double draw() {
  static std::uint64_t state = 1;
  state = state * 6364136223846793005 + 1442695040888963407;
  return static_cast<double>(state >> 11) * 0x1p-53;
}

template <class T>
std::vector<T> numbers(std::int64_t count, double low = -1, double high = 1) {
  std::vector<T> drawn(static_cast<std::size_t>(count));
  for (T& each : drawn) each = static_cast<T>(low + (high - low) * draw());
  return drawn;
}

template <class T>
std::vector<T> zeros(std::int64_t count) {
  return std::vector<T>(static_cast<std::size_t>(count));
}

class Lines {
 public:
  /// Fowler, Noll and Vo's hash over the bytes of what a function computed.
  template <class T>
  void add(const std::string& name, const std::vector<T>& results) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const T result : results)
      for (std::size_t i = 0; i < sizeof(T); ++i)
        hash =
            (hash ^ (std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(result) >> 8 * i &
                     0xff)) *
            0x100000001b3;
    char line[100];
    std::snprintf(line, sizeof line, "%s %s %016llx\n", name.c_str(), sizeof(T) == 4 ? "f32" : "f64",
                  static_cast<unsigned long long>(hash));
    text_ += line;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <class Function>
std::vector<double> map(std::vector<double> x, Function&& function) {
  for (double& each : x) each = function(each);
  return x;
}

void add_functions(Lines& lines) {
  constexpr std::int64_t count = 20'000;
  lines.add("exp", map(numbers<double>(count, -750, 715), portable::exp));
  lines.add("exp near 0", map(numbers<double>(count), portable::exp));
  lines.add("log", map(numbers<double>(count, 0, 1e6), portable::log));
  lines.add("log near 1", map(numbers<double>(count, 0.5, 2), portable::log));
  lines.add("tanh", map(numbers<double>(count, -25, 25), portable::tanh));
  lines.add("cos_pi", map(numbers<double>(count, -9, 9), portable::cos_pi));
  std::uint64_t exponent = 0;
  lines.add("power",
            map(numbers<double>(count, 0.9, 1), [&](double x) { return portable::power(x, exponent++ % 2'000); }));
}

template <class T>
void add_dense(Lines& lines) {
  constexpr std::int64_t m = 9, n = 37, k = 65;
  const auto a = numbers<T>(m * k), b = numbers<T>(k * n);
  auto c = zeros<T>(m * n);
  loops::matmul(m, n, k, a.data(), k, 1, b.data(), n, c.data(), n);
  lines.add("matmul", c);

  auto values = numbers<T>(1'000), first = numbers<T>(1'000), second = numbers<T>(1'000, 0, 1);
  const auto gradient = numbers<T>(1'000);
  const detail::StepScalars<T> step{T(0.01), T(96), T(0.7), T(0.1)};
  const detail::AdamWScalars<T> adam{T(0.9), T(0.1), T(0.999), T(0.001), T(0.271), T(0.003), T(1e-8)};
  detail::loops::adamw(values.data(), gradient.data(), first.data(), second.data(), step, adam, 1'000);
  lines.add("adamw", values);
  lines.add("adamw moments", second);
  detail::loops::momentum(values.data(), gradient.data(), first.data(), step, T(0.9), 1'000);
  lines.add("momentum", values);
  auto squares = zeros<double>(1'000);
  detail::loops::add_squares(squares.data(), gradient.data(), 1'000);
  lines.add(sizeof(T) == 4 ? "squares of f32" : "squares of f64", squares);

  auto logits = numbers<T>(500, -9, 9);
  std::vector<double> losses;
  for (std::int64_t row = 0; row < 10; ++row) {
    T* const of_row = logits.data() + 50 * row;
    const auto entropy = loops::row_entropy<Functions>(of_row, 50, 7, of_row);
    losses.push_back(entropy.loss);
    loops::row_gradient(of_row, 50, 7, entropy.sum);
  }
  lines.add(sizeof(T) == 4 ? "cross entropy of f32" : "cross entropy of f64", losses);
  lines.add("cross entropy gradient", logits);
}

template <class T>
void add_sequences(Lines& lines) {
  constexpr std::int64_t width = 75;
  const auto x = numbers<T>(width, -4, 4), gain = numbers<T>(width), bias = numbers<T>(width), dy = numbers<T>(width);
  auto y = zeros<T>(width), moments = zeros<T>(2), dx = zeros<T>(width), d_gain = zeros<T>(width);
  auto d_bias = zeros<T>(width);
  loops::layer_norm_row(x.data(), gain.data(), bias.data(), T(1e-5), width, y.data(), moments.data());
  lines.add("layer norm", y);
  loops::layer_norm_gradient_row(x.data(), gain.data(), moments.data(), dy.data(), width, dx.data(), d_gain.data(),
                                 d_bias.data());
  lines.add("layer norm gradient", dx);
  auto scores = numbers<T>(width, -9, 9), d = numbers<T>(width);
  loops::causal_softmax_row<Functions>(scores.data(), width - 9, width);
  lines.add("softmax", scores);
  loops::causal_softmax_gradient_row(scores.data(), d.data(), width - 9, width);
  lines.add("softmax gradient", d);
  auto activated = x, slope = x;
  for (T& each : activated) each = ops::gelu_of<Functions>(each);
  for (T& each : slope) each = ops::gelu_derivative<Functions>(each);
  lines.add("gelu", activated);
  lines.add("gelu gradient", slope);
}

#ifdef __cpp_lib_source_location
template <class T>
void add_images(Lines& lines) {
  const ops::ConvolutionSizes sizes{
      .images = 2, .height = 8, .width = 7, .inputs = 3, .kernel_height = 3, .kernel_width = 2, .outputs = 5};
  const std::int64_t inputs = 2 * 8 * 7 * 3, outputs = 2 * sizes.rows() * sizes.columns() * 5, weights = 3 * 2 * 3 * 5;
  const auto x = numbers<T>(inputs), weight = numbers<T>(weights), bias = numbers<T>(5), dy = numbers<T>(outputs);
  auto y = zeros<T>(outputs), d_weight = zeros<T>(weights), d_bias = zeros<T>(5), dx = zeros<T>(inputs);
  loops::convolution(sizes, x.data(), weight.data(), bias.data(), y.data());
  lines.add("convolution", y);
  loops::convolution_gradients(sizes, x.data(), dy.data(), d_weight.data(), d_bias.data());
  lines.add("convolution weight gradient", d_weight);
  loops::convolution_input_gradient(sizes, dy.data(), weight.data(), dx.data());
  lines.add("convolution input gradient", dx);

  const ops::ChannelSizes channels{.samples = 4, .positions = 9, .channels = 11};
  const auto rows = numbers<T>(4 * 9 * 11), d_rows = numbers<T>(4 * 9 * 11), gamma = numbers<T>(11);
  const auto beta = numbers<T>(11);
  auto means = zeros<T>(11), variances = zeros<T>(11), normalised = rows, d_gamma = zeros<T>(11), d_beta = zeros<T>(11);
  loops::channel_means(channels, rows.data(), means.data());
  loops::channel_variances(channels, rows.data(), means.data(), 4, variances.data());
  lines.add("variances", variances);
  const auto scale = loops::channel_scale<T>(channels, means.data(), variances.data(), 4, 1e-5);
  loops::batch_norm(channels, rows.data(), scale, gamma.data(), beta.data(), normalised.data());
  lines.add("batch norm", normalised);
  loops::batch_norm_gradients(channels, rows.data(), scale, d_rows.data(), d_gamma.data(), d_beta.data());
  lines.add("batch norm gradients", d_gamma);
  loops::batch_norm_input_gradient(channels, rows.data(), scale, 36, gamma.data(), d_rows.data(), d_gamma.data(),
                                   d_beta.data(), normalised.data());
  lines.add("batch norm input gradient", normalised);
}
#else
template <class T>
void add_images(Lines&) {}
#endif

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  Lines lines;
  add_functions(lines);
  add_dense<float>(lines);
  add_dense<double>(lines);
  add_sequences<float>(lines);
  add_sequences<double>(lines);
  add_images<float>(lines);
  add_images<double>(lines);
  if (argc != 2) {
    std::fputs(lines.text().c_str(), stdout);
    return 0;
  }
  std::ifstream file{argv[1]};
  const auto expected = lines_of({std::istreambuf_iterator<char>{file}, {}}), found = lines_of(lines.text());
  int differ = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i < expected.size() && found[i] == expected[i]) continue;
    std::printf("%s, expected %s\n", found[i].c_str(), i < expected.size() ? expected[i].c_str() : "nothing");
    ++differ;
  }
#ifdef EXPECT_OTHER_BITS
#ifdef __x86_64__
  constexpr int skipped = 77;
  if (!__builtin_cpu_supports("fma")) return skipped;
#endif
  return differ == 0;
#else
  return differ != 0;
#endif
}
