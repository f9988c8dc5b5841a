// cusim's cuBLASLt: what it computes, in which orders it may, and what it refuses.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <cublasLt.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void check(cublasStatus_t status) {
  REQUIRE(status == CUBLAS_STATUS_SUCCESS);
}
void check(cudaError_t error) {
  REQUIRE(error == cudaSuccess);
}

/// GPU memory with a copy of the host's values.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) : count_{count} {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit OnGpu(const std::vector<T>& values) : OnGpu{values.size()} {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() { (void)cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

template <class T>
struct Types {};
template <>
struct Types<float> {
  static constexpr cudaDataType stored = CUDA_R_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  using Factor = float;
};
template <>
struct Types<double> {
  static constexpr cudaDataType stored = CUDA_R_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  using Factor = double;
};
template <>
struct Types<std::uint16_t> {  // bf16
  static constexpr cudaDataType stored = CUDA_R_16BF;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  using Factor = float;
};

double number(float stored) {
  return stored;
}
double number(double stored) {
  return stored;
}
double number(std::uint16_t stored) {
  const std::uint32_t word = std::uint32_t{stored} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// What bf16 can hold.
double small_number(std::size_t at) {
  return static_cast<double>(at * 7 % 11) - 5;
}

template <class T>
T stored(double value) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    const auto single = static_cast<float>(value);
    std::uint32_t word = 0;
    std::memcpy(&word, &single, sizeof word);
    return static_cast<std::uint16_t>(word >> 16);
  } else {
    return static_cast<T>(value);
  }
}

/// The product of a test: sizes, and what differs from the plainest.
struct Case {
  std::size_t m = 4;
  std::size_t n = 5;
  std::size_t k = 6;
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t gap = 0;  ///< elements between the columns of each matrix
  std::size_t batch = 1;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint64_t workspace = 1 << 16;
  std::uint32_t alignment = 16;
};

struct Shape {
  std::size_t rows;
  std::size_t columns;
  std::size_t leading;
  std::size_t stride;
  bool row_major;

  std::size_t at(std::size_t item, std::size_t row, std::size_t column) const {
    return item * stride + (row_major ? row * leading + column : column * leading + row);
  }
  std::size_t elements(std::size_t batch) const { return batch * stride; }
};

Shape shape(const Case& of, std::size_t rows, std::size_t columns) {
  const bool row_major = of.order == CUBLASLT_ORDER_ROW;
  const std::size_t leading = (row_major ? columns : rows) + of.gap;
  return {rows, columns, leading, leading * (row_major ? rows : columns) + 2 * of.gap, row_major};
}

/// Descriptors for a case, and calls with them.
template <class T>
class Matmul {
 public:
  using Factor = typename Types<T>::Factor;

  explicit Matmul(const Case& of)
      : of_{of},
        a{of.transpose_a ? shape(of, of.k, of.m) : shape(of, of.m, of.k)},
        b{of.transpose_b ? shape(of, of.n, of.k) : shape(of, of.k, of.n)},
        d{shape(of, of.m, of.n)},
        workspace{of.workspace} {
    check(cublasLtCreate(&library));
    check(cublasLtMatmulDescCreate(&description, Types<T>::compute, sizeof(Factor) == 8 ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    a_layout = layout(a);
    b_layout = layout(b);
    d_layout = layout(d);
    check(cublasLtMatmulPreferenceCreate(&preference));
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, of.workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, of.schemes);
    for (const auto each : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(each, of.alignment);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  ~Matmul() {
    (void)cublasLtMatmulPreferenceDestroy(preference);
    for (const auto each : {a_layout, b_layout, d_layout}) (void)cublasLtMatrixLayoutDestroy(each);
    (void)cublasLtMatmulDescDestroy(description);
    (void)cublasLtDestroy(library);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
  }
  template <class Value>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  }

  cublasStatus_t ask(std::vector<cublasLtMatmulHeuristicResult_t>& results) {
    results.resize(64);
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(library, description, a_layout, b_layout, d_layout, d_layout,
                                                       preference, 64, results.data(), &count);
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
    return status;
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms() {
    std::vector<cublasLtMatmulHeuristicResult_t> results;
    check(ask(results));
    REQUIRE(!results.empty());
    return results;
  }

  cublasStatus_t run(const T* from_a, const T* from_b, const T* from_c, T* to, const cublasLtMatmulAlgo_t* algorithm,
                     Factor alpha = 1, Factor beta = 0, cudaStream_t stream = nullptr) {
    return cublasLtMatmul(library, description, &alpha, from_a, a_layout, from_b, b_layout, &beta, from_c, d_layout, to,
                          d_layout, algorithm, workspace.data(), of_.workspace, stream);
  }

 private:
  cublasLtMatrixLayout_t layout(const Shape& shape) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, Types<T>::stored, shape.rows, shape.columns,
                                     static_cast<std::int64_t>(shape.leading)));
    const auto put = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      check(cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof value));
    };
    put(CUBLASLT_MATRIX_LAYOUT_ORDER, of_.order);
    if (of_.batch > 1) {
      put(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(of_.batch));
      put(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(shape.stride));
    }
    return made;
  }

  Case of_;

 public:
  Shape a;
  Shape b;
  Shape d;
  OnGpu<std::byte> workspace;
  cublasLtHandle_t library = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr;
  cublasLtMatrixLayout_t b_layout = nullptr;
  cublasLtMatrixLayout_t d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

template <class T>
std::vector<T> small_numbers(std::size_t count, std::size_t from = 0) {
  std::vector<T> numbers(count);
  for (std::size_t at = 0; at < count; ++at) numbers[at] = stored<T>(small_number(at + from));
  return numbers;
}

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

  // Each case takes four of the algorithms, another case others.
  const auto algorithms = matmul.algorithms();
  for (std::size_t which = 0; which < std::min<std::size_t>(4, algorithms.size()); ++which) {
    const auto& algorithm = algorithms[which * algorithms.size() / 4 % algorithms.size()];
    const OnGpu<T> gpu_d{before};
    check(matmul.run(gpu_a.data(), gpu_b.data(), gpu_d.data(), gpu_d.data(), &algorithm.algo,
                     static_cast<Factor>(alpha), static_cast<Factor>(beta)));
    const auto d = gpu_d.values();
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
    for (std::size_t at = 0; at < d.size(); ++at) {
      const double difference = std::abs(number(d[at]) - number(expected[at]));
      const bool agree = approximate ? difference <= 0.02 + 0.02 * std::abs(number(expected[at])) : difference == 0;
      if (agree) continue;
      FAIL_CHECK("m " << of.m << ", n " << of.n << ", k " << of.k << ", element " << at << ": " << number(d[at])
                      << " instead of " << number(expected[at]));
    }
  }
}

/// Runs a hidden test case of this program in a process of its own, which cusim must end with a line with `words`.
void requires_end(const std::string& name, const std::string& words) {
  std::array<char, 4096> self{};
  REQUIRE(::readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  std::FILE* const pipe = ::popen(("'" + std::string{self.data()} + "' '" + name + "' 2>&1").c_str(), "r");
  REQUIRE(pipe);
  std::string output;
  std::array<char, 512> part{};
  while (std::fgets(part.data(), part.size(), pipe)) output += part.data();
  const int status = ::pclose(pipe);
  INFO(output);
  CHECK(output.find(words) != std::string::npos);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 86));
}

template <class T>
struct Call {
  explicit Call(const Case& of)
      : matmul{of},
        a{small_numbers<T>(matmul.a.elements(of.batch))},
        b{small_numbers<T>(matmul.b.elements(of.batch))},
        d{matmul.d.elements(of.batch)},
        algorithm{matmul.algorithms().front().algo} {}

  cublasStatus_t run() { return matmul.run(a.data(), b.data(), d.data(), d.data(), &algorithm); }

  Matmul<T> matmul;
  OnGpu<T> a;
  OnGpu<T> b;
  OnGpu<T> d;
  cublasLtMatmulAlgo_t algorithm;
};

/// Fractions whose sums depend on the order.
template <class T>
std::vector<T> fractions(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t at = 0; at < count; ++at) values[at] = static_cast<T>(std::sin(static_cast<double>(at) + 1));
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("products of each size and transpose", "[cublaslt]", float, double, std::uint16_t) {
  const std::size_t sizes[] = {1, 2, 3, 5, 8, 17, 33};
  for (const std::size_t m : sizes)
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, m})
      for (const std::size_t k : {std::size_t{1}, std::size_t{9}, std::size_t{33}})
        for (const int transposes : {0, 1, 2, 3})
          compare_with_loop<TestType>({.m = m,
                                       .n = n,
                                       .k = k,
                                       .transpose_a = (transposes & 1) != 0,
                                       .transpose_b = (transposes & 2) != 0,
                                       .gap = m % 3});
}

TEST_CASE("products of more rows than are summed at once", "[cublaslt]") {
  compare_with_loop<float>({.m = 150, .n = 3});
}

TEST_CASE("row-major products", "[cublaslt]") {
  compare_with_loop<float>({.transpose_b = true, .gap = 3, .order = CUBLASLT_ORDER_ROW});
  compare_with_loop<double>({.transpose_a = true, .order = CUBLASLT_ORDER_ROW});
}

TEST_CASE("batches of products", "[cublaslt]") {
  compare_with_loop<float>({.batch = 3});
  compare_with_loop<double>({.transpose_a = true, .gap = 1, .batch = 2});
}

TEST_CASE("alpha and beta", "[cublaslt]") {
  compare_with_loop<float>({}, 2, 3);
  compare_with_loop<double>({.gap = 1, .batch = 2}, -1, 0.5);
}

TEST_CASE("epilogues", "[cublaslt]") {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS,
                              CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    compare_with_loop<float>({.gap = 1, .epilogue = epilogue});
    compare_with_loop<float>({.batch = 2, .epilogue = epilogue});
    compare_with_loop<std::uint16_t>({.epilogue = epilogue});
  }
}

TEST_CASE("an epilogue in f64 is supported or is not, always the same", "[cublaslt]") {
  Matmul<double> matmul{{.epilogue = CUBLASLT_EPILOGUE_RELU}};
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  const auto status = matmul.ask(results);
  CHECK((status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED));
  CHECK(matmul.ask(results) == status);
}

TEST_CASE("a ReLU lets NaN through or makes it zero, always the same for an algorithm", "[cublaslt]") {
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

TEST_CASE("algorithms have bits of their own, each always the same but for sums in place", "[cublaslt]") {
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

TEST_CASE("the library answers the same question in the same way", "[cublaslt]") {
  const auto algorithms = [](const Case& of) {
    Matmul<float> matmul{of};
    std::vector<std::vector<std::uint64_t>> all;
    for (const auto& each : matmul.algorithms()) all.emplace_back(std::begin(each.algo.data), std::end(each.algo.data));
    return all;
  };
  CHECK(algorithms({}) == algorithms({}));
  CHECK(algorithms({}) != algorithms({.m = 8}));
}

TEST_CASE("the library keeps to the preference", "[cublaslt]") {
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

TEST_CASE("work waits for its stream, and the factors do not", "[cublaslt]") {
  Matmul<float> matmul{{.m = 1, .n = 1, .k = 1}};
  const OnGpu<float> a{std::vector<float>{2}};
  const OnGpu<float> b{std::vector<float>{3}};
  const OnGpu<float> d{1};
  const auto algorithm = matmul.algorithms().front().algo;
  float alpha = 1;
  float beta = 0;
  check(cublasLtMatmul(matmul.library, matmul.description, &alpha, a.data(), matmul.a_layout, b.data(), matmul.b_layout,
                       &beta, d.data(), matmul.d_layout, d.data(), matmul.d_layout, &algorithm, matmul.workspace.data(),
                       1 << 16, nullptr));
  alpha = beta = 100;
  CHECK(d.values()[0] == 6);
}

TEST_CASE("what C holds does not matter if beta is zero", "[cublaslt]") {
  Call<float> call{{}};
  check(call.run());  // D was never written
  check(cudaMemset(call.d.data(), 0xff, 80));
  check(call.run());
  for (const float each : call.d.values()) CHECK(!std::isnan(each));
}

TEST_CASE("an algorithm for another product, and too little workspace, are refused", "[cublaslt]") {
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

TEST_CASE("a call without an algorithm gets one", "[cublaslt]") {
  Call<float> call{{}};
  CHECK(call.matmul.run(call.a.data(), call.b.data(), call.d.data(), call.d.data(), nullptr) == CUBLAS_STATUS_SUCCESS);
  check(cudaDeviceSynchronize());
}

TEST_CASE("descriptors that contradict each other are refused", "[cublaslt]") {
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

TEST_CASE("a bias without an address is refused", "[cublaslt]") {
  Call<float> call{{}};
  call.matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  CHECK(call.run() == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("TF32 rounds what it multiplies", "[cublaslt]") {
  Matmul<float> matmul{{.m = 1, .n = 1, .k = 1}};
  matmul.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
  const OnGpu<float> a{std::vector<float>{1 + 0x1p-12f}};
  const OnGpu<float> b{std::vector<float>{1}};
  const OnGpu<float> d{1};
  check(matmul.run(a.data(), b.data(), d.data(), d.data(), &matmul.algorithms().front().algo));
  CHECK(d.values()[0] == 1);
}

// --- What ends the process. Each pair: the misuse, run by the second in a process of its own ---

TEST_CASE("misuse: A is in host memory", "[.misuse]") {
  Call<float> call{{}};
  const std::vector<float> host(24);
  alignas(16) float aligned[24] = {};
  (void)call.matmul.run(aligned, call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
}
TEST_CASE("memory of the host ends the process", "[cublaslt]") {
  requires_end("misuse: A is in host memory", "A is not in the GPU's memory");
}

TEST_CASE("misuse: B is too short", "[.misuse]") {
  Call<float> call{{}};
  const OnGpu<float> shorter{small_numbers<float>(29)};
  (void)call.matmul.run(call.a.data(), shorter.data(), call.d.data(), call.d.data(), &call.algorithm);
}
TEST_CASE("an operand behind its allocation ends the process", "[cublaslt]") {
  requires_end("misuse: B is too short", "B ends 4 bytes behind its allocation");
}

TEST_CASE("misuse: A is less aligned than promised", "[.misuse]") {
  Call<float> call{{}};
  const OnGpu<float> longer{small_numbers<float>(25)};
  (void)call.matmul.run(longer.data() + 1, call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
}
TEST_CASE("less alignment than promised ends the process", "[cublaslt]") {
  requires_end("misuse: A is less aligned than promised", "A is aligned to 4 bytes");
}

TEST_CASE("misuse: D overlaps A", "[.misuse]") {
  Call<float> call{{}};
  const OnGpu<float> both{small_numbers<float>(64)};
  (void)call.matmul.run(both.data(), call.b.data(), both.data() + 20, both.data() + 20, &call.algorithm);
}
TEST_CASE("a result over an operand ends the process", "[cublaslt]") {
  requires_end("misuse: D overlaps A", "D overlaps A");
}

TEST_CASE("misuse: A was not written", "[.misuse]") {
  Call<float> call{{}};
  const OnGpu<float> unwritten{24};
  (void)call.matmul.run(unwritten.data(), call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
  (void)cudaDeviceSynchronize();
}
TEST_CASE("an operand that was not written ends the process", "[cublaslt]") {
  requires_end("misuse: A was not written", "cusim: rank");
}

TEST_CASE("misuse: a layout was destroyed", "[.misuse]") {
  Call<float> call{{}};
  check(cublasLtMatrixLayoutDestroy(call.matmul.a_layout));
  (void)call.run();
}
TEST_CASE("a destroyed layout ends the process", "[cublaslt]") {
  requires_end("misuse: a layout was destroyed", "the layout descriptor was destroyed");
}

TEST_CASE("misuse: the factors are in GPU memory", "[.misuse]") {
  Call<float> call{{}};
  const OnGpu<float> factor{std::vector<float>{1}};
  (void)cublasLtMatmul(call.matmul.library, call.matmul.description, factor.data(), call.a.data(), call.matmul.a_layout,
                       call.b.data(), call.matmul.b_layout, factor.data(), call.d.data(), call.matmul.d_layout,
                       call.d.data(), call.matmul.d_layout, &call.algorithm, call.matmul.workspace.data(), 1 << 16,
                       nullptr);
}
TEST_CASE("factors in the GPU's memory end the process", "[cublaslt]") {
  requires_end("misuse: the factors are in GPU memory", "alpha is in the GPU's memory");
}

TEST_CASE("misuse: two products share a workspace in two streams", "[.misuse]") {
  Call<float> call{{.k = 64, .schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
  const OnGpu<float> d{20};
  std::array<cudaStream_t, 2> streams{};
  for (auto& stream : streams) check(cudaStreamCreate(&stream));
  for (const auto& each : call.matmul.algorithms()) {
    if (each.workspaceSize == 0) continue;
    check(call.matmul.run(call.a.data(), call.b.data(), d.data(), d.data(), &each.algo, 1, 0, streams[0]));
    check(call.matmul.run(call.a.data(), call.b.data(), call.d.data(), call.d.data(), &each.algo, 1, 0, streams[1]));
  }
  check(cudaDeviceSynchronize());
}
TEST_CASE("a workspace that streams share ends the process", "[cublaslt]") {
  requires_end("misuse: two products share a workspace in two streams", "without being ordered after cublasLtMatmul");
}

TEST_CASE("misuse: two threads share a workspace in a stream", "[.misuse]") {
  Call<float> call{{.k = 64, .schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
  const OnGpu<float> other{std::vector<float>(call.matmul.a.elements(1), 9)};
  const OnGpu<float> d{20};
  for (const auto& each : call.matmul.algorithms()) {
    if (each.workspaceSize == 0) continue;
    const auto multiply = [&](const OnGpu<float>& from, const OnGpu<float>& to) {
      for (int time = 0; time < 200; ++time)
        (void)call.matmul.run(from.data(), call.b.data(), to.data(), to.data(), &each.algo);
    };
    std::thread thread{[&] { multiply(other, d); }};
    multiply(call.a, call.d);
    thread.join();
    check(cudaDeviceSynchronize());
  }
}
TEST_CASE("a workspace that threads share ends the process", "[cublaslt]") {
  requires_end("misuse: two threads share a workspace in a stream", "the workspace was written between");
}
