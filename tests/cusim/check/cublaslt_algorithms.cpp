// Which algorithms cusim's cuBLASLt gives, in which orders they may sum, and what it refuses.
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <vector>

#include <catch2/catch.hpp>
#include <cublasLt.h>

#include "cublaslt_calls.hpp"

using namespace cusim::test;

TEST_CASE("an epilogue in f64 is supported or is not, always the same") {
  Matmul<double> matmul{{.epilogue = CUBLASLT_EPILOGUE_RELU}};
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  const auto status = matmul.ask(results);
  CHECK((status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED));
  CHECK(matmul.ask(results) == status);
}

TEST_CASE("a ReLU lets NaN through or makes it zero, always the same for an algorithm") {
  const Case of{.m = 2, .n = 2, .k = 6, .epilogue = CUBLASLT_EPILOGUE_RELU};
  Matmul<float> matmul{of};
  std::vector<float> values = fractions<float>(12);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  const OnGpu<float> a{values};
  const OnGpu<float> b{fractions<float>(12)};
  std::set<bool> seen;
  for (const auto& algorithm : matmul.algorithms()) {
    std::set<bool> hidden;
    for (int time = 0; time < 2; ++time) {
      const OnGpu<float> d{4};
      check(matmul.run(a.data(), b.data(), d.data(), d.data(), &algorithm.algo));
      const float first = d.values()[0];
      CHECK((std::isnan(first) || first == 0));
      hidden.insert(first == 0);
    }
    CHECK(hidden.size() == 1);
    seen.insert(hidden.begin(), hidden.end());
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("algorithms have bits of their own, each always the same but for sums in place") {
  const Case of{.m = 16, .n = 8, .k = 200};
  std::set<std::vector<float>> all;
  const auto values = fractions<float>(3200);
  for (const bool in_place : {false, true}) {
    Case with = of;
    with.schemes = in_place ? CUBLASLT_REDUCTION_SCHEME_INPLACE
                            : CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE;
    Matmul<float> matmul{with};
    bool changes = false;
    for (const auto& algorithm : matmul.algorithms()) {
      std::set<std::vector<float>> bits;
      for (int time = 0; time < 12; ++time) {
        const OnGpu<float> a{values};
        const OnGpu<float> b{std::vector<float>(values.begin(), values.begin() + 1600)};
        const OnGpu<float> d{128};
        check(matmul.run(a.data(), b.data(), d.data(), d.data(), &algorithm.algo));
        bits.insert(d.values());
      }
      if (!in_place) CHECK(bits.size() == 1);
      changes = changes || bits.size() > 1;
      all.insert(bits.begin(), bits.end());
    }
    CHECK(changes == in_place);
  }
  CHECK(all.size() > 10);
}

TEST_CASE("the library answers the same question in the same way") {
  const auto algorithms = [](const Case& of) {
    Matmul<float> matmul{of};
    std::vector<std::vector<std::uint64_t>> all;
    for (const auto& each : matmul.algorithms()) all.emplace_back(std::begin(each.algo.data), std::end(each.algo.data));
    return all;
  };
  CHECK(algorithms({}) == algorithms({}));
  CHECK(algorithms({}) != algorithms({.m = 8}));
}

TEST_CASE("the library keeps to the preference") {
  Matmul<float> all{{.k = 64}};
  bool splits = false;
  for (const auto& each : all.algorithms()) splits = splits || each.workspaceSize > 0;
  CHECK(splits);
  Matmul<float> without{{.k = 64, .workspace = 0}};
  for (const auto& each : without.algorithms()) CHECK(each.workspaceSize == 0);
  Matmul<float> least_aligned{{.k = 64, .alignment = 4}};
  CHECK(least_aligned.algorithms().size() < all.algorithms().size());
  Matmul<float> not_at_all{{.alignment = 2}};
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  CHECK(not_at_all.ask(results) == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("an algorithm for another product, and too little workspace, are refused") {
  Call<float> call{{.k = 64}};
  Call<float> other{{.k = 65}};
  other.algorithm = call.algorithm;
  CHECK(other.run() == CUBLAS_STATUS_INVALID_VALUE);
  call.matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
  CHECK(call.run() == CUBLAS_STATUS_INVALID_VALUE);
  call.matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(call.run() == CUBLAS_STATUS_SUCCESS);
  call.algorithm.data[3] ^= 1;
  CHECK(call.run() == CUBLAS_STATUS_INVALID_VALUE);
  const float one = 1;
  const float zero = 0;
  for (const auto& each : call.matmul.algorithms()) {
    if (each.workspaceSize == 0) continue;
    CHECK(cublasLtMatmul(call.matmul.library, call.matmul.description, &one, call.a.data(), call.matmul.a_layout,
                         call.b.data(), call.matmul.b_layout, &zero, call.d.data(), call.matmul.d_layout, call.d.data(),
                         call.matmul.d_layout, &each.algo, call.matmul.workspace.data(), each.workspaceSize - 1,
                         nullptr) == CUBLAS_STATUS_INVALID_VALUE);
  }
  check(cudaDeviceSynchronize());
}

TEST_CASE("a call without an algorithm gets one") {
  Call<float> call{{}};
  CHECK(call.matmul.run(call.a.data(), call.b.data(), call.d.data(), call.d.data(), nullptr) == CUBLAS_STATUS_SUCCESS);
  check(cudaDeviceSynchronize());
}

TEST_CASE("descriptors that contradict each other are refused") {
  Matmul<float> matmul{{}};
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  matmul.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);  // now A's rows are k
  CHECK(matmul.ask(results) == CUBLAS_STATUS_INVALID_VALUE);
  matmul.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  CHECK(matmul.ask(results) == CUBLAS_STATUS_SUCCESS);
  const std::int64_t leading = 3;
  check(cublasLtMatrixLayoutSetAttribute(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, &leading, sizeof leading));
  CHECK(matmul.ask(results) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatrixLayoutSetAttribute(matmul.a_layout, CUBLASLT_MATRIX_LAYOUT_LD, &leading, 4) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmulDescSetAttribute(matmul.description, CUBLASLT_MATMUL_DESC_SCALE_TYPE, nullptr, 4) ==
        CUBLAS_STATUS_INVALID_VALUE);
  Matmul<float> mixed{{}};
  mixed.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_64F);
  CHECK(mixed.ask(results) == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("a bias without an address is refused") {
  Call<float> call{{}};
  call.matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  CHECK(call.run() == CUBLAS_STATUS_INVALID_VALUE);
}
