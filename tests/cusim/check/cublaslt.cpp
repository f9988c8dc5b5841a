// What cusim's cuBLASLt computes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>
#include <cublasLt.h>

#include "cublaslt_calls.hpp"

using namespace cusim::test;

namespace {

double activated(double value, cublasLtEpilogue_t epilogue) {
  if (epilogue & CUBLASLT_EPILOGUE_RELU) return std::max(value, 0.0);
  if (epilogue & CUBLASLT_EPILOGUE_GELU)
    return 0.5 * value * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (value + 0.044715 * value * value * value)));
  return value;
}

/// Small whole numbers: each order of their sums has the same result, a plain loop's.
template <class T>
void compare_with_loop(const Case& of, double alpha = 1, double beta = 0) {
  Matmul<T> matmul{of};
  const auto a = small_numbers<T>(matmul.a.elements(of.batch));
  const auto b = small_numbers<T>(matmul.b.elements(of.batch), 3);
  const auto before = small_numbers<T>(matmul.d.elements(of.batch), 5);
  const auto bias = small_numbers<T>(of.m, 1);
  const OnGpu<T> gpu_a{a};
  const OnGpu<T> gpu_b{b};
  const OnGpu<T> gpu_bias{bias};
  if (of.epilogue & CUBLASLT_EPILOGUE_BIAS)
    matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(gpu_bias.data()));
  using Factor = typename Types<T>::Factor;

  std::vector<T> expected = before;  // gaps stay as they were
  for (std::size_t item = 0; item < of.batch; ++item)
    for (std::size_t i = 0; i < of.m; ++i)
      for (std::size_t j = 0; j < of.n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < of.k; ++l)
          sum += number(a[of.transpose_a ? matmul.a.at(item, l, i) : matmul.a.at(item, i, l)]) *
                 number(b[of.transpose_b ? matmul.b.at(item, j, l) : matmul.b.at(item, l, j)]);
        const std::size_t at = matmul.d.at(item, i, j);
        double value = alpha * sum + beta * number(before[at]);
        if (of.epilogue & CUBLASLT_EPILOGUE_BIAS) value += number(bias[i]);
        expected[at] = stored<T>(activated(value, of.epilogue));
      }
  const bool approximate = std::is_same_v<T, std::uint16_t> || (of.epilogue & CUBLASLT_EPILOGUE_GELU);

  // Each case takes four of the algorithms, another case others.
  const auto algorithms = matmul.algorithms();
  for (std::size_t which = 0; which < std::min<std::size_t>(4, algorithms.size()); ++which) {
    const auto& algorithm = algorithms[which * algorithms.size() / 4 % algorithms.size()];
    const OnGpu<T> gpu_d{before};
    check(matmul.run(gpu_a.data(), gpu_b.data(), gpu_d.data(), gpu_d.data(), &algorithm.algo,
                     static_cast<Factor>(alpha), static_cast<Factor>(beta)));
    const auto d = gpu_d.values();
    for (std::size_t at = 0; at < d.size(); ++at) {
      const double difference = std::abs(number(d[at]) - number(expected[at]));
      const bool agree = approximate ? difference <= 0.02 + 0.02 * std::abs(number(expected[at])) : difference == 0;
      if (agree) continue;
      FAIL_CHECK("m " << of.m << ", n " << of.n << ", k " << of.k << ", element " << at << ": " << number(d[at])
                      << " instead of " << number(expected[at]));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("products of each size and transpose", "", float, double, std::uint16_t) {
  const std::size_t sizes[] = {1, 2, 3, 5, 8, 17, 33};
  for (const std::size_t m : sizes)
    for (const std::size_t n : std::set<std::size_t>{1, 7, m})
      for (const std::size_t k : {std::size_t{1}, std::size_t{9}, std::size_t{33}})
        for (const int transposes : {0, 1, 2, 3})
          compare_with_loop<TestType>({.m = m,
                                       .n = n,
                                       .k = k,
                                       .transpose_a = (transposes & 1) != 0,
                                       .transpose_b = (transposes & 2) != 0,
                                       .gap = m % 3});
}

TEST_CASE("products of more rows than are summed at once") {
  compare_with_loop<float>({.m = 150, .n = 3});
}

TEST_CASE("row-major products") {
  compare_with_loop<float>({.transpose_b = true, .gap = 3, .order = CUBLASLT_ORDER_ROW});
  compare_with_loop<double>({.transpose_a = true, .order = CUBLASLT_ORDER_ROW});
}

TEST_CASE("batches of products") {
  compare_with_loop<float>({.batch = 3});
  compare_with_loop<double>({.transpose_a = true, .gap = 1, .batch = 2});
}

TEST_CASE("alpha and beta") {
  compare_with_loop<float>({}, 2, 3);
  compare_with_loop<double>({.gap = 1, .batch = 2}, -1, 0.5);
}

TEST_CASE("epilogues") {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS,
                              CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    compare_with_loop<float>({.gap = 1, .epilogue = epilogue});
    compare_with_loop<float>({.batch = 2, .epilogue = epilogue});
    compare_with_loop<std::uint16_t>({.epilogue = epilogue});
  }
}

TEST_CASE("what C holds does not matter if beta is zero") {
  Call<float> call{{}};
  check(call.run());  // D was never written
  check(cudaMemset(call.d.data(), 0xff, 80));
  check(call.run());
  for (const float each : call.d.values()) CHECK(!std::isnan(each));
}

TEST_CASE("TF32 rounds what it multiplies") {
  Matmul<float> matmul{{.m = 1, .n = 1, .k = 1}};
  matmul.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  const OnGpu<float> a{std::vector<float>{1 + 0x1p-12f}};
  const OnGpu<float> b{std::vector<float>{1}};
  const OnGpu<float> d{1};
  check(matmul.run(a.data(), b.data(), d.data(), d.data(), &matmul.algorithms().front().algo));
  CHECK(d.values()[0] == 1);
}
