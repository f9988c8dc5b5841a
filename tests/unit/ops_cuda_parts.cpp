// What the GPU's kernels are made of and a host can run: how products are put to cuBLAS, how many blocks a launch
// takes, and the row of the softmax, with a loop in the place of a warp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/device/cuda/geometry.hpp"
#include "models/ops/cuda/arithmetic_variables.hpp"
#include "models/ops/cuda/column_major.hpp"
#include "models/ops/cuda/softmax_lanes.hpp"
#include "models/ops/elementary_functions.hpp"
#include "models/ops/reference/softmax.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

/// What cuBLAS does with a product, from the words of its documentation: op(A) is of m rows and k columns, element (i,
/// j) of a matrix lies at i + j * leading, and a leading dimension is no less than the number of rows.
void column_major_gemm(const cuda::ColumnMajorProduct& product, const double* first, const double* second,
                       double* result) {
  const auto rows = [](const cuda::ColumnMajor& matrix, Kernels::Transpose transpose) {
    return transpose == Kernels::Transpose::no ? matrix.rows : matrix.columns;
  };
  const auto columns = [](const cuda::ColumnMajor& matrix, Kernels::Transpose transpose) {
    return transpose == Kernels::Transpose::no ? matrix.columns : matrix.rows;
  };
  const auto at = [](const double* memory, const cuda::ColumnMajor& matrix, Kernels::Transpose transpose,
                     std::int64_t i, std::int64_t j) {
    return transpose == Kernels::Transpose::no ? memory[i + j * matrix.leading] : memory[j + i * matrix.leading];
  };
  for (const cuda::ColumnMajor& matrix : {product.first, product.second, product.result})
    REQUIRE(matrix.leading >= matrix.rows);
  const std::int64_t m = product.result.rows;
  const std::int64_t n = product.result.columns;
  const std::int64_t k = columns(product.first, product.transpose_first);
  REQUIRE(rows(product.first, product.transpose_first) == m);
  REQUIRE(rows(product.second, product.transpose_second) == k);
  REQUIRE(columns(product.second, product.transpose_second) == n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += at(first, product.first, product.transpose_first, i, l) *
               at(second, product.second, product.transpose_second, l, j);
      result[i + j * product.result.leading] = sum;
    }
}

/// All lanes of a warp, one after the other between the points where they meet.
template <class T>
struct Warp {
  static constexpr int lanes = 32;

  template <class Value, class Join>
  static std::array<Value, lanes> butterfly(std::array<Value, lanes> values, Join&& join) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const auto before = values;
      for (int lane = 0; lane < lanes; ++lane)
        values[static_cast<std::size_t>(lane)] =
            join(before[static_cast<std::size_t>(lane)], before[static_cast<std::size_t>(lane ^ distance)]);
    }
    return values;
  }

  explicit Warp(const std::vector<T>& x, std::int64_t label) : gradient(x) {
    const auto classes = static_cast<std::int64_t>(x.size());
    std::array<cuda::Largest<T>, lanes> found;
    for (int lane = 0; lane < lanes; ++lane)
      found[static_cast<std::size_t>(lane)] = cuda::lane_largest(x.data(), classes, lane, lanes);
    largest = butterfly(found, cuda::joined<T>);
    std::array<T, lanes> parts;
    for (int lane = 0; lane < lanes; ++lane)
      parts[static_cast<std::size_t>(lane)] =
          cuda::lane_sum(x.data(), classes, lane, lanes, largest[static_cast<std::size_t>(lane)].value);
    sums = butterfly(parts, [](T a, T b) { return a + b; });
    loss = cuda::row_loss(sums[0], largest[0].value, x[static_cast<std::size_t>(label)]);
    correct = cuda::is_correct(largest[0].index, label, loss);
    for (int lane = 0; lane < lanes; ++lane)
      cuda::lane_gradient(gradient.data(), classes, label, lane, lanes, largest[static_cast<std::size_t>(lane)].value,
                          sums[static_cast<std::size_t>(lane)], gradient.data());
  }

  std::array<cuda::Largest<T>, lanes> largest;
  std::array<T, lanes> sums;
  double loss;
  bool correct;
  std::vector<T> gradient;
};

template <class T>
void check_against_reference(const std::vector<T>& x, std::int32_t label) {
  const auto classes = static_cast<std::int64_t>(x.size());
  std::vector<T> expected(x.size());
  const auto reference = loops::row_entropy<LibraryFunctions>(x.data(), classes, label, expected.data());
  loops::row_gradient(expected.data(), classes, label, reference.sum);

  const Warp<T> warp{x, label};
  CHECK(warp.correct == reference.correct);
  CHECK(std::isnan(warp.loss) == std::isnan(reference.loss));
  // Both add up as many numbers of at most 1, each in an order of its own: half an epsilon of the sum for each
  // addition.
  const double terms = static_cast<double>(classes);
  const double relative = terms * std::numeric_limits<T>::epsilon();
  if (std::isinf(reference.loss)) CHECK(warp.loss == reference.loss);
  if (std::isfinite(reference.loss)) CHECK(std::abs(warp.loss - reference.loss) <= 2 * relative);
  for (std::size_t j = 0; j < x.size(); ++j) {
    CHECK(std::isnan(warp.gradient[j]) == std::isnan(expected[j]));
    if (!std::isnan(expected[j]))
      CHECK(std::abs(static_cast<double>(warp.gradient[j]) - static_cast<double>(expected[j])) <= 2 * relative);
  }
  if (std::isnan(reference.loss)) return;
  for (int lane = 0; lane < Warp<T>::lanes; ++lane) {
    CHECK(warp.largest[static_cast<std::size_t>(lane)].index == warp.largest[0].index);
    CHECK(std::memcmp(&warp.sums[static_cast<std::size_t>(lane)], warp.sums.data(), sizeof(T)) == 0);
  }
}

}  // namespace

TEST_CASE("a product put to cuBLAS by columns is the product by rows") {
  const auto reference = make_kernels(Kernels::Choice::reference);
  for (const auto transpose_a : {Kernels::Transpose::no, Kernels::Transpose::yes})
    for (const auto transpose_b : {Kernels::Transpose::no, Kernels::Transpose::yes})
      for (const MatmulSizes sizes : {MatmulSizes{1, 1, 1}, MatmulSizes{2, 3, 5}, MatmulSizes{7, 1, 4},
                                      MatmulSizes{1, 9, 4}, MatmulSizes{6, 6, 6}}) {
        const auto [m, n, k] = sizes;
        CAPTURE(m, n, k, transpose_a == Kernels::Transpose::yes, transpose_b == Kernels::Transpose::yes);
        // Rows with gaps, and without.
        for (const std::int64_t gap : {0, 3}) {
          const Shape rows_of_a = transpose_a == Kernels::Transpose::yes ? Shape{k, m} : Shape{m, k};
          const Shape rows_of_b = transpose_b == Kernels::Transpose::yes ? Shape{n, k} : Shape{k, n};
          const cuda::Strides strides{.a = rows_of_a[1] + gap, .b = rows_of_b[1] + gap, .c = n + gap};
          const Tensor a = noise(DType::f64, {rows_of_a[0], strides.a}, 1);
          const Tensor b = noise(DType::f64, {rows_of_b[0], strides.b}, 2);
          const Tensor expected = filled(DType::f64, {m, strides.c}, 7), c = filled(DType::f64, {m, strides.c}, 7);
          reference->matmul({a.view(), rows_of_a[1]}, transpose_a, {b.view(), rows_of_b[1]}, transpose_b,
                            {expected.view(), n});
          column_major_gemm(cuda::column_major(sizes, transpose_a, transpose_b, strides),
                            b.view().elements<double>().data(), a.view().elements<double>().data(),
                            c.view().elements<double>().data());
          CHECK(same_bits(c.view(), expected.view()));
        }
      }
}

TEST_CASE("a bias of the columns by rows is one of the rows by columns") {
  const MatmulSizes sizes{.m = 3, .n = 5, .k = 2};
  CHECK(cuda::column_major(sizes, Kernels::Transpose::no, Kernels::Transpose::no, {2, 5, 5}).result.rows == sizes.n);
}

TEST_CASE("a launch has at least one block, never more than its limit, and enough for every piece of work") {
  for (const std::int64_t per_block : {1, 8, 32, 256}) {
    for (const std::int64_t count :
         {std::int64_t{0}, std::int64_t{1}, per_block - 1, per_block, per_block + 1, 10 * per_block,
          detail::cuda::most_blocks * per_block, detail::cuda::most_blocks * per_block + 1, std::int64_t{1} << 40}) {
      CAPTURE(per_block, count);
      const std::int64_t blocks = detail::cuda::blocks_for(count, per_block);
      CHECK(blocks >= 1);
      CHECK(blocks <= detail::cuda::most_blocks);
      if (blocks < detail::cuda::most_blocks) {
        CHECK(blocks * per_block >= count);
        CHECK((blocks - 1) * per_block < std::max<std::int64_t>(count, 1));
      }
    }
  }
}

TEMPLATE_TEST_CASE("a warp's softmax is the reference's, for any number of classes", "", float, double) {
  const RandomStream random{5, RandomStream::Purpose::initial_value, 0};
  std::uint64_t drawn = 0;
  for (const std::size_t classes : {1, 2, 3, 10, 31, 32, 33, 63, 64, 65, 100, 256}) {
    CAPTURE(classes);
    std::vector<TestType> x(classes);
    for (TestType& logit : x) logit = static_cast<TestType>(40 * random.uniform(drawn++) - 20);
    for (const std::size_t label : {std::size_t{0}, classes / 2, classes - 1})
      check_against_reference(x, static_cast<std::int32_t>(label));
    // The largest in every lane's place, alone and with an equal one behind and before it.
    for (std::size_t j = 0; j < classes; ++j) {
      auto peaked = x;
      peaked[j] = 50;
      check_against_reference(peaked, static_cast<std::int32_t>(j));
      peaked[classes - 1] = 50;
      check_against_reference(peaked, static_cast<std::int32_t>(j));
      check_against_reference(peaked, static_cast<std::int32_t>(classes - 1));
    }
    check_against_reference(std::vector<TestType>(classes, TestType{7}), 0);
    check_against_reference(std::vector<TestType>(classes, TestType{7}), static_cast<std::int32_t>(classes - 1));
  }
}

TEMPLATE_TEST_CASE("what is not finite reaches a warp's loss wherever it stands", "", float, double) {
  constexpr TestType inf = std::numeric_limits<TestType>::infinity();
  constexpr TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  for (const std::size_t classes : {1, 2, 10, 32, 33, 100})
    for (std::size_t j = 0; j < classes; ++j)
      for (const std::size_t label : {std::size_t{0}, j, classes - 1}) {
        CAPTURE(classes, j, label);
        for (const TestType bad : {nan, inf, -inf}) {
          std::vector<TestType> x(classes, TestType{3});
          x[j] = bad;
          check_against_reference(x, static_cast<std::int32_t>(label));
          if (bad != -inf) CHECK(std::isnan(Warp<TestType>(x, static_cast<std::int64_t>(label)).loss));
        }
        check_against_reference(std::vector<TestType>(classes, -inf), static_cast<std::int32_t>(label));
      }
}

TEMPLATE_TEST_CASE("large logits do not overflow in a warp", "", float, double) {
  for (const TestType size : {1000, 100000}) {
    check_against_reference(std::vector<TestType>(40, size), 3);
    std::vector<TestType> x(40, -size);
    x[35] = size;
    check_against_reference(x, 35);
    CHECK(Warp<TestType>(x, 0).loss == 2 * size);
  }
}

namespace {}  // namespace

TEST_CASE("variables that change cuBLAS's arithmetic are in the fingerprint, where they are set") {
  using Variables = std::map<std::string, const char*>;
  const auto text = [](const Variables& set) {
    return cuda::arithmetic_variables([&](const char* name) {
      const auto found = set.find(name);
      return found == set.end() ? nullptr : found->second;
    });
  };
  CHECK(text({{"CUBLAS_WORKSPACE_CONFIG", ":16:8"}}).empty());
  CHECK(text({{"NVIDIA_TF32_OVERRIDE", "0"}}) == ", NVIDIA_TF32_OVERRIDE=0");
  CHECK(text({{"NVIDIA_TF32_OVERRIDE", "1\n"},
              {"CUBLAS_EMULATE_DOUBLE_PRECISION", "1"},
              {"CUBLAS_EMULATE_SINGLE_PRECISION", "2"}}) ==
        ", CUBLAS_EMULATE_SINGLE_PRECISION=2, CUBLAS_EMULATE_DOUBLE_PRECISION=1, NVIDIA_TF32_OVERRIDE=1\\x0a");
}
