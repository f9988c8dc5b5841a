// Arithmetic of kernels compiled with -fmad=false, compared with the host's.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
std::vector<Bits<T>> bits_of(const std::vector<T>& values) {
  std::vector<Bits<T>> all;
  for (const T value : values) all.push_back(std::bit_cast<Bits<T>>(value));
  return all;
}

/// Of all magnitudes, with denormals, zeros and infinities among them.
template <class T>
std::vector<T> random_numbers(unsigned seed, std::size_t count = 1000) {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random{seed};
  std::vector<T> all{
      0, -T{0}, 1, -1, Limits::min(), Limits::denorm_min(), Limits::min() / 3, Limits::max(), Limits::infinity()};
  while (all.size() < count / 2)
    if (const T value = std::bit_cast<T>(static_cast<Bits<T>>(random())); std::isfinite(value)) all.push_back(value);
  while (all.size() < count) all.push_back(static_cast<T>(random()) / static_cast<T>(random() | 1));
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

/// Numbers without those that are none: their bits are not laid down.
template <class T>
void expect_bits(const std::string& what, std::vector<T> got, std::vector<T> expected) {
  for (std::vector<T>* const values : {&got, &expected})
    for (T& value : *values)
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  expect_all(what, bits_of(got), bits_of(expected));
}

template <class T>
std::vector<T> evaluated(Function function, const std::vector<T>& from) {
  const Stream stream;
  const Array<T> in{from};
  const Array<T> out(from.size());
  OK(launch_function(function, in.data(), out.data(), static_cast<int>(from.size()), stream));
  wait(stream);
  return out.values();
}

/// At most `ulps` units in the last place from what is exact.
template <class T, class Exact>
void expect_within(const std::string& what, Function function, const std::vector<T>& from, double ulps,
                   const Exact& exact) {
  const std::vector<T> got = evaluated(function, from);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const long double expected = exact(static_cast<long double>(from[i]));
    const T near = static_cast<T>(expected);
    if (!std::isfinite(near)) continue;
    const long double unit = std::nextafter(std::abs(near), std::numeric_limits<T>::infinity()) - std::abs(near);
    if (std::abs(static_cast<long double>(got[i]) - expected) <= ulps * unit) continue;
    throw Differs{what + " of " + text_of(from[i]) + " within " + text_of(ulps) + " ulp of " + text_of(near),
                  text_of(got[i])};
  }
}

template <class T>
std::vector<T> spread(T from, T to, std::size_t count = 2000) {
  std::vector<T> all;
  for (std::size_t i = 0; i <= count; ++i)
    all.push_back(from + (to - from) * static_cast<T>(i) / static_cast<T>(count));
  return all;
}

template <class T>
void compare_multiply_add() {
  const std::vector<T> a = random_numbers<T>(1);
  const std::vector<T> b = random_numbers<T>(2);
  std::vector<T> c = random_numbers<T>(3);
  // Products that the sum nearly cancels show whether they were rounded.
  for (std::size_t i = 0; i < c.size(); i += 2) c[i] = -(a[i] * b[i]);
  const Array<T> gpu_a{a};
  const Array<T> gpu_b{b};
  const Array<T> gpu_c{c};
  const Array<T> to(a.size());
  const Stream stream;
  OK(launch_multiply_add(gpu_a.data(), gpu_b.data(), gpu_c.data(), to.data(), static_cast<int>(a.size()), stream));
  wait(stream);
  std::vector<T> expected;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const volatile T product = a[i] * b[i];
    expected.push_back(product + c[i]);
  }
  expect_bits("bits of a * b + c", to.values(), expected);
}

template <class T>
void compare_divisions() {
  const std::vector<T> a = random_numbers<T>(4);
  const std::vector<T> b = random_numbers<T>(5);
  const Array<T> gpu_a{a};
  const Array<T> gpu_b{b};
  const Array<T> to(a.size());
  const Stream stream;
  OK(launch_divide(gpu_a.data(), gpu_b.data(), to.data(), static_cast<int>(a.size()), stream));
  wait(stream);
  std::vector<T> expected;
  for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] / b[i]);
  expect_bits("bits of a / b", to.values(), expected);
}

template <class T>
void compare_roots() {
  const std::vector<T> from = random_numbers<T>(6);
  std::vector<T> expected;
  for (const T value : from) expected.push_back(std::sqrt(value));
  expect_bits("bits of a root", evaluated(Function::square_root, from), expected);
}

}  // namespace

// CUDA C++ Programming Guide, Floating-point standard: additions and multiplications are IEEE 754's, to nearest even,
// and with nvcc's -fmad=false they are not contracted; -ftz=false keeps denormals.
PROBE(multiply_and_add_round_twice_f32) {
  compare_multiply_add<float>();
}
PROBE(multiply_and_add_round_twice_f64) {
  compare_multiply_add<double>();
}

// CUDA C++ Programming Guide, Standard functions: with -prec-div=true, the default, divisions are IEEE 754's.
PROBE(division_is_exact_f32) {
  compare_divisions<float>();
}
PROBE(division_is_exact_f64) {
  compare_divisions<double>();
}

// CUDA C++ Programming Guide, Standard functions: with -prec-sqrt=true, the default, so are square roots.
PROBE(square_root_is_exact_f32) {
  compare_roots<float>();
}
PROBE(square_root_is_exact_f64) {
  compare_roots<double>();
}

// CUDA C++ Programming Guide, Standard functions: expf is within 2 units in the last place, exp within 1.
PROBE(exponential_is_as_exact_as_documented) {
  const auto exact = [](long double x) { return std::exp(x); };
  expect_within<float>("expf", Function::exponential, spread(-80.0f, 88.0f), 2, exact);
  expect_within<double>("exp", Function::exponential, spread(-700.0, 700.0), 1, exact);
}

// CUDA C++ Programming Guide, Standard functions: logf and log are within 1 unit in the last place.
PROBE(logarithm_is_as_exact_as_documented) {
  const auto exact = [](long double x) { return std::log(x); };
  expect_within<float>("logf", Function::logarithm, spread(1e-6f, 4.0f), 1, exact);
  expect_within<float>("logf", Function::logarithm, {1e-38f, 1e-30f, 1e30f, 3e38f}, 1, exact);
  expect_within<double>("log", Function::logarithm, spread(1e-6, 4.0), 1, exact);
}

// CUDA C++ Programming Guide, Standard functions: tanhf and tanh are within 2 units in the last place.
PROBE(hyperbolic_tangent_is_as_exact_as_documented) {
  const auto exact = [](long double x) { return std::tanh(x); };
  expect_within<float>("tanhf", Function::hyperbolic_tangent, spread(-10.0f, 10.0f), 2, exact);
  expect_within<double>("tanh", Function::hyperbolic_tangent, spread(-20.0, 20.0), 2, exact);
}

// CUDA C++ Programming Guide, Standard functions, and C's: exp of minus infinity is 0, overflow is infinity, log of 0
// is minus infinity.
PROBE(functions_have_the_usual_limits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  expect_all<float>("expf", evaluated<float>(Function::exponential, {-infinity, 0, 1000, infinity}),
                    {0, 1, infinity, infinity});
  expect_all<float>("logf", evaluated<float>(Function::logarithm, {0, 1, infinity}), {-infinity, 0, infinity});
  expect_all<float>("tanhf", evaluated<float>(Function::hyperbolic_tangent, {-infinity, 0, infinity}), {-1, 0, 1});
}

// CUDA Math API, fmaxf and fminf: of a number and what is none, they give the number.
PROBE(maximum_ignores_what_is_no_number) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  expect_all<float>("fmaxf", evaluated<float>(Function::larger_than_one, {none, 0.5f, 2}), {1, 1, 2});
  expect_all<float>("fminf", evaluated<float>(Function::smaller_than_one, {none, 0.5f, 2}), {1, 0.5f, 1});
}

// CUDA Math API, __float2bfloat16_rn: to nearest, ties to even.
PROBE(bf16_rounds_to_nearest_even) {
  std::vector<float> from = random_numbers<float>(7);
  for (const std::uint32_t tie : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0x7f7f8000u, 0x00008000u})
    from.push_back(std::bit_cast<float>(tie));
  std::vector<std::uint16_t> expected;
  for (const float value : from) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    expected.push_back(static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
  }
  const Array<float> in{from};
  const Array<std::uint16_t> out(from.size());
  const Stream stream;
  OK(launch_to_bf16(in.data(), out.data(), static_cast<int>(from.size()), stream));
  wait(stream);
  expect_all("bits in bf16", out.values(), expected);
}

// CUDA Math API, __bfloat162float: exact.
PROBE(bf16_widens_exactly) {
  std::vector<std::uint16_t> from;
  std::vector<float> expected;
  for (std::uint32_t bits = 0; bits < 0x10000; bits += 7) {
    from.push_back(static_cast<std::uint16_t>(bits));
    expected.push_back(std::bit_cast<float>(bits << 16));
  }
  const Array<std::uint16_t> in{from};
  const Array<float> out(from.size());
  const Stream stream;
  OK(launch_from_bf16(in.data(), out.data(), static_cast<int>(from.size()), stream));
  wait(stream);
  expect_bits("bits in f32", out.values(), expected);
}

// C++ and CUDA Math API, Type casting: conversions to int truncate towards zero; conversions to float and from double
// to float round to nearest even.
PROBE(conversions_round_as_the_host) {
  const Stream stream;
  const std::vector<float> floats{0, 0.99f, -0.99f, 1.5f, -1.5f, 2.5f, 16777217.0f, -2e9f, 1e-40f};
  std::vector<int> ints;
  for (const float value : floats) ints.push_back(static_cast<int>(value));
  const Array<float> gpu_floats{floats};
  const Array<int> to_ints(floats.size());
  OK(launch_to_int(gpu_floats.data(), to_ints.data(), static_cast<int>(floats.size()), stream));
  wait(stream);
  expect_all("conversions to int", to_ints.values(), ints);

  const std::vector<int> large{0, -1, 16777217, 16777219, -33554435, 2147483647, 1234567891};
  std::vector<float> expected;
  for (const int value : large) expected.push_back(static_cast<float>(value));
  const Array<int> gpu_large{large};
  const Array<float> to_floats(large.size());
  OK(launch_from_int(gpu_large.data(), to_floats.data(), static_cast<int>(large.size()), stream));
  wait(stream);
  expect_bits("conversions to float", to_floats.values(), expected);

  const std::vector<double> doubles = random_numbers<double>(8);
  std::vector<float> narrow;
  for (const double value : doubles) narrow.push_back(static_cast<float>(value));
  const Array<double> gpu_doubles{doubles};
  const Array<float> to_narrow(doubles.size());
  OK(launch_narrow(gpu_doubles.data(), to_narrow.data(), static_cast<int>(doubles.size()), stream));
  wait(stream);
  expect_bits("conversions from double", to_narrow.values(), narrow);
}

// C++, as CUDA C++ Programming Guide, C++ language support, takes it over: quotients of integers truncate towards zero,
// shifts to the right keep the sign, unsigned sums wrap around.
PROBE(integers_behave_as_on_the_host) {
  const std::vector<int> a{7, -7, 7, -7, 2147483647, -2147483647, 0, 12345};
  const std::vector<int> b{2, 2, -2, -2, 10, 10, 3, 99999};
  std::vector<int> expected;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (const int value :
         {a[i] / b[i], a[i] % b[i], a[i] >> 3, static_cast<int>(static_cast<unsigned>(a[i]) + 0x7fffffffu)})
      expected.push_back(value);
  const Stream stream;
  const Array<int> gpu_a{a};
  const Array<int> gpu_b{b};
  const Array<int> to(expected.size());
  OK(launch_integers(gpu_a.data(), gpu_b.data(), to.data(), static_cast<int>(a.size()), stream));
  wait(stream);
  expect_all("quotient, remainder, shift, sum", to.values(), expected);
}
