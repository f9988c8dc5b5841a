// cuBLASLt: products of small whole numbers, whose sums are exact in any order, unless a probe is about their bits.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <cublasLt.h>

#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

void ok(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Differs{"CUBLAS_STATUS_SUCCESS", cublasLtGetStatusName(status)};
}

struct Shape {
  std::size_t m = 4;
  std::size_t n = 5;
  std::size_t k = 6;
  bool transpose_a = false;
  bool transpose_b = false;
  std::size_t batch = 1;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::uint64_t workspace = 1 << 20;
  std::uint32_t alignment = 256;

  std::size_t a_size() const { return m * k; }
  std::size_t b_size() const { return k * n; }
  std::size_t d_size() const { return m * n; }
};

template <class T>
class Product {
 public:
  static constexpr bool is_f64 = std::is_same_v<T, double>;

  explicit Product(const Shape& of) : of_{of}, workspace_(of.workspace + 1) {
    ok(cublasLtCreate(&library_));
    ok(cublasLtMatmulDescCreate(&description_, is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                is_f64 ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    make_layout(a_, of.transpose_a ? of.k : of.m, of.transpose_a ? of.m : of.k);
    make_layout(b_, of.transpose_b ? of.n : of.k, of.transpose_b ? of.k : of.n);
    make_layout(d_, of.m, of.n);
    ok(cublasLtMatmulPreferenceCreate(&preference_));
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, of.workspace);
    // As lockstep: sums in place come in any order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK} & ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE});
    for (const auto each : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(each, of.alignment);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    (void)cublasLtMatmulPreferenceDestroy(preference_);
    for (const auto each : {a_, b_, d_}) (void)cublasLtMatrixLayoutDestroy(each);
    (void)cublasLtMatmulDescDestroy(description_);
    (void)cublasLtDestroy(library_);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    ok(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value));
  }
  void set_bias(const T* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias)); }

  cublasStatus_t ask(int wanted, cublasLtMatmulHeuristicResult_t* results, int* count) const {
    return cublasLtMatmulAlgoGetHeuristic(library_, description_, a_, b_, d_, d_, preference_, wanted, results, count);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms() const {
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int count = 0;
    ok(ask(8, results.data(), &count));
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
    expect("there is an algorithm", !results.empty());
    return results;
  }

  template <class Factor>
  void run(const T* a, const T* b, const T* c, T* d, const cublasLtMatmulAlgo_t& algorithm, const Factor& alpha,
           const Factor& beta, cudaStream_t stream) const {
    static_assert(sizeof(Factor) == (is_f64 ? 8 : 4));
    ok(cublasLtMatmul(library_, description_, &alpha, a, a_, b, b_, &beta, c, d_, d, d_, &algorithm, workspace_.data(),
                      of_.workspace, stream));
  }

 private:
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    ok(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value));
  }
  void make_layout(cublasLtMatrixLayout_t& made, std::size_t rows, std::size_t columns) const {
    constexpr cudaDataType type = is_f64 ? CUDA_R_64F : sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF;
    const std::size_t leading = of_.order == CUBLASLT_ORDER_ROW ? columns : rows;
    ok(cublasLtMatrixLayoutCreate(&made, type, rows, columns, static_cast<std::int64_t>(leading)));
    const auto put = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
      ok(cublasLtMatrixLayoutSetAttribute(made, attribute, &value, sizeof value));
    };
    put(CUBLASLT_MATRIX_LAYOUT_ORDER, of_.order);
    put(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(of_.batch));
    put(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(rows * columns));
  }

  Shape of_;
  Array<char> workspace_;
  cublasLtHandle_t library_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

template <class T>
std::vector<T> whole_numbers(std::size_t count, std::size_t from = 0) {
  std::vector<T> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<T>(static_cast<int>((i + from) * 7 % 11) - 5));
  return all;
}

std::vector<float> fractions(std::size_t count, double from = 1) {
  std::vector<float> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<float>(std::sin(static_cast<double>(i) + from)));
  return all;
}

/// alpha * a * b + beta * c, as the host sums it up.
template <class T>
std::vector<T> product_of_host(const Shape& of, const std::vector<T>& a, const std::vector<T>& b, double alpha = 1,
                               double beta = 0, const std::vector<T>& c = {}) {
  const bool row_major = of.order == CUBLASLT_ORDER_ROW;
  const auto at = [&](std::size_t row, std::size_t column, std::size_t rows, std::size_t columns) {
    return row_major ? row * columns + column : column * rows + row;
  };
  std::vector<T> d(of.batch * of.d_size());
  for (std::size_t item = 0; item < of.batch; ++item)
    for (std::size_t i = 0; i < of.m; ++i)
      for (std::size_t j = 0; j < of.n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < of.k; ++l)
          sum += double{a[item * of.a_size() + (of.transpose_a ? at(l, i, of.k, of.m) : at(i, l, of.m, of.k))]} *
                 double{b[item * of.b_size() + (of.transpose_b ? at(j, l, of.n, of.k) : at(l, j, of.k, of.n))]};
        const std::size_t place = item * of.d_size() + at(i, j, of.m, of.n);
        d[place] = static_cast<T>(alpha * sum + (beta == 0 ? 0 : beta * double{c[place]}));
      }
  return d;
}

/// With each of the algorithms.
template <class T>
void compare_with_host(const Shape& of, double alpha = 1, double beta = 0) {
  const auto a = whole_numbers<T>(of.batch * of.a_size());
  const auto b = whole_numbers<T>(of.batch * of.b_size(), 3);
  const auto c = whole_numbers<T>(of.batch * of.d_size(), 5);
  const auto expected = product_of_host(of, a, b, alpha, beta, c);
  const Product<T> product{of};
  const Array<T> gpu_a{a};
  const Array<T> gpu_b{b};
  const Stream stream;
  for (const auto& algorithm : product.algorithms()) {
    const Array<T> gpu_d{c};
    product.run(gpu_a.data(), gpu_b.data(), gpu_d.data(), gpu_d.data(), algorithm.algo, static_cast<T>(alpha),
                static_cast<T>(beta), stream);
    wait(stream);
    expect_all("the product", gpu_d.values(), expected);
  }
}

std::vector<float> with_epilogue(cublasLtEpilogue_t epilogue, const std::vector<float>& bias) {
  const Shape of{.epilogue = epilogue};
  Product<float> product{of};
  const Array<float> a{whole_numbers<float>(of.a_size())};
  const Array<float> b{whole_numbers<float>(of.b_size(), 3)};
  const Array<float> gpu_bias{bias};
  const Array<float> d(of.d_size());
  const Stream stream;
  if (epilogue & CUBLASLT_EPILOGUE_BIAS) product.set_bias(gpu_bias.data());
  product.run(a.data(), b.data(), d.data(), d.data(), product.algorithms().front().algo, 1.0f, 0.0f, stream);
  wait(stream);
  return d.values();
}

/// What the host makes of the product, which the epilogues get.
template <class Epilogue>
std::vector<float> expected_with(const Epilogue& epilogue) {
  const Shape of;
  std::vector<float> d = product_of_host(of, whole_numbers<float>(of.a_size()), whole_numbers<float>(of.b_size(), 3));
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = epilogue(d[i], i % of.m);
  return d;
}

const std::vector<float> bias_of_rows{1, -20, 3, 400};

/// A product that sums eight ones, and has been computed once.
struct SumOfEight {
  SumOfEight() {
    run(1.0f, 0.0f);
    wait(stream);
  }
  void run(const float& alpha, const float& beta) const {
    product.run(a.data(), b.data(), d.data(), d.data(), algorithm, alpha, beta, stream);
  }

  Stream stream;
  Product<float> product{{.m = 1, .n = 1, .k = 8}};
  Array<float> a{std::vector<float>(8, 1)};
  Array<float> b{std::vector<float>(8, 1)};
  Array<float> d{std::vector<float>(1, 0)};
  cublasLtMatmulAlgo_t algorithm = product.algorithms().front().algo;
};

}  // namespace

// cuBLAS, cublasLtMatmul: D = alpha * (A * B) + beta * C, with matrices in column-major order.
PROBE(product_is_column_major) {
  compare_with_host<float>({});
  compare_with_host<double>({});
  compare_with_host<float>({.m = 33, .n = 17, .k = 65});
}

// cuBLAS, CUBLASLT_MATMUL_DESC_TRANSA and TRANSB: an operand is transposed first.
PROBE(product_transposes_operands) {
  compare_with_host<float>({.transpose_a = true});
  compare_with_host<float>({.transpose_b = true});
  compare_with_host<double>({.transpose_a = true, .transpose_b = true});
}

// cuBLAS, CUBLASLT_ORDER_ROW: matrices in row-major order, with the leading dimension that of rows.
PROBE(product_of_row_major_matrices) {
  compare_with_host<float>({.order = CUBLASLT_ORDER_ROW});
}

// cuBLAS, cublasLtMatmul: alpha scales the product, beta the matrix C, which may be D.
PROBE(product_scales_and_adds) {
  compare_with_host<float>({}, 2, 1);
  compare_with_host<double>({}, -1, 3);
}

// cuBLAS, cublasLtMatmul: if beta is zero, C need not be valid: what it holds does not matter.
PROBE(beta_zero_does_not_read_c) {
  const Shape of;
  const auto a = whole_numbers<float>(of.a_size());
  const auto b = whole_numbers<float>(of.b_size(), 3);
  const Product<float> product{of};
  const Array<float> gpu_a{a};
  const Array<float> gpu_b{b};
  const Stream stream;
  for (const auto& algorithm : product.algorithms()) {
    const Array<float> d{std::vector<float>(of.d_size(), std::numeric_limits<float>::quiet_NaN())};
    product.run(gpu_a.data(), gpu_b.data(), d.data(), d.data(), algorithm.algo, 1.0f, 0.0f, stream);
    wait(stream);
    expect_all("the product", d.values(), product_of_host(of, a, b));
  }
}

// cuBLAS, Results reproducibility: on GPUs of one kind, with one stream, the same call has the same bits in each run.
PROBE(same_algorithm_repeats_its_bits) {
  const Shape of{.m = 37, .n = 29, .k = 300};
  const Product<float> product{of};
  const Array<float> a{fractions(of.a_size())};
  const Array<float> b{fractions(of.b_size(), 500)};
  const Stream stream;
  const auto algorithm = product.algorithms().front().algo;
  std::vector<float> first;
  for (int round = 0; round < 5; ++round) {
    const Array<float> d(of.d_size());
    product.run(a.data(), b.data(), d.data(), d.data(), algorithm, 1.0f, 0.0f, stream);
    wait(stream);
    if (round == 0) first = d.values();
    expect_all("the first result", d.values(), first);
  }
}

// cuBLAS, cublasLtMatmulAlgoGetHeuristic: the same question has the same answer.
PROBE(heuristic_repeats_its_answer) {
  const Shape of{.m = 37, .n = 29, .k = 300};
  const Array<float> a{fractions(of.a_size())};
  const Array<float> b{fractions(of.b_size(), 500)};
  const Stream stream;
  std::vector<float> first;
  for (int round = 0; round < 2; ++round) {
    const Product<float> product{of};
    const Array<float> d(of.d_size());
    product.run(a.data(), b.data(), d.data(), d.data(), product.algorithms().front().algo, 1.0f, 0.0f, stream);
    wait(stream);
    if (round == 0) first = d.values();
    expect_all("the first result", d.values(), first);
  }
}

// cuBLAS, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT and STRIDED_BATCH_OFFSET: each item of a batch is the product of the
// matrices that far on.
PROBE(batch_equals_single_products) {
  compare_with_host<float>({.batch = 3});
  compare_with_host<double>({.transpose_b = true, .batch = 2});
}

// cuBLAS, cublasLtEpilogue_t: BIAS adds a vector of as many elements as D has rows to each column; RELU is
// max(x, 0); RELU_BIAS adds first.
PROBE(epilogues_add_and_clamp) {
  expect_all("with a bias", with_epilogue(CUBLASLT_EPILOGUE_BIAS, bias_of_rows),
             expected_with([](float x, std::size_t row) { return x + bias_of_rows[row]; }));
  expect_all("with relu", with_epilogue(CUBLASLT_EPILOGUE_RELU, bias_of_rows),
             expected_with([](float x, std::size_t) { return std::max(x, 0.0f); }));
  expect_all("with both", with_epilogue(CUBLASLT_EPILOGUE_RELU_BIAS, bias_of_rows),
             expected_with([](float x, std::size_t row) { return std::max(x + bias_of_rows[row], 0.0f); }));
}

// cuBLAS, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES and the like: addresses need have no more alignment than was
// given.
PROBE(alignment_of_the_preference_suffices) {
  const Shape of{.alignment = 4};
  const auto a = whole_numbers<float>(of.a_size() + 1);
  const auto b = whole_numbers<float>(of.b_size() + 1, 3);
  const Product<float> product{of};
  const Array<float> gpu_a{a};
  const Array<float> gpu_b{b};
  const Stream stream;
  const auto expected = product_of_host<float>(of, {a.begin() + 1, a.end()}, {b.begin() + 1, b.end()});
  for (const auto& algorithm : product.algorithms()) {
    const Array<float> d{std::vector<float>(of.d_size() + 1, 0)};
    product.run(gpu_a.data() + 1, gpu_b.data() + 1, d.data() + 1, d.data() + 1, algorithm.algo, 1.0f, 0.0f, stream);
    wait(stream);
    const std::vector<float> got = d.values();
    expect_all("the product", std::vector<float>(got.begin() + 1, got.end()), expected);
    expect("before it,", got[0], 0.0f);
  }
}

// cuBLAS, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: no algorithm of the answer needs more.
PROBE(algorithms_keep_to_the_workspace) {
  for (const std::uint64_t most : {0, 1 << 16}) {
    const Product<float> product{{.m = 64, .n = 64, .k = 512, .workspace = most}};
    for (const auto& algorithm : product.algorithms())
      expect("an algorithm needs at most the preferred workspace", algorithm.workspaceSize <= most);
  }
  compare_with_host<float>({.m = 64, .n = 3, .k = 512, .workspace = 0});
}

// cuBLAS, cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INVALID_VALUE if none is wanted.
PROBE(heuristic_refuses_to_give_none) {
  const Product<float> product{{}};
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  expect("the status is", int{product.ask(0, &result, &count)}, int{CUBLAS_STATUS_INVALID_VALUE});
}

// cuBLAS, Scalar parameters: those of the host are read in the call, and may be changed afterwards. cublasLtMatmul: the
// product comes in the stream's order.
PROBE(product_comes_in_order_with_its_scalars) {
  const SumOfEight sum;
  Gate gate{sum.stream};
  float alpha = 2;
  float beta = 0;
  OK(launch_fill(sum.a.data(), 8, 3.0f, sum.stream));
  sum.run(alpha, beta);
  OK(launch_fill(sum.a.data(), 8, 5.0f, sum.stream));
  alpha = beta = 100;
  expect_waits("the stream answers", sum.stream);
  gate.open();
  wait(sum.stream);
  expect("the product is", sum.d.values()[0], 48.0f);
}

// cuBLAS, CUDA Graphs support: products can be captured.
PROBE(products_can_be_captured) {
  const SumOfEight sum;
  Capture capture{sum.stream};
  sum.run(1.0f, 1.0f);
  const Graph graph{capture.end()};
  for (int i = 0; i < 2; ++i) graph.launch(sum.stream);
  wait(sum.stream);
  expect("three products sum to", sum.d.values()[0], 24.0f);
}

// cuBLAS, cublasLtMatmul: matrices of bf16 are multiplied with sums in f32.
PROBE(product_of_bf16_sums_in_f32) {
  // 1 + 256 times 2^-8 is 2 in f32; sums in bf16 would stay at 1.
  const Shape of{.m = 8, .n = 8, .k = 264};
  std::vector<std::uint16_t> a(of.a_size(), 0x3f80);
  std::vector<std::uint16_t> b(of.b_size(), 0);
  for (std::size_t column = 0; column < of.n; ++column) {
    b[column * of.k] = 0x3f80;
    for (std::size_t row = 1; row <= 256; ++row) b[column * of.k + row] = 0x3b80;
  }
  const Product<std::uint16_t> product{of};
  const Array<std::uint16_t> gpu_a{a};
  const Array<std::uint16_t> gpu_b{b};
  const Array<std::uint16_t> d(of.d_size());
  const Stream stream;
  product.run(gpu_a.data(), gpu_b.data(), d.data(), d.data(), product.algorithms().front().algo, 1.0f, 0.0f, stream);
  wait(stream);
  expect_all("the product's bits", d.values(), std::vector<std::uint16_t>(of.d_size(), 0x4000));
}
