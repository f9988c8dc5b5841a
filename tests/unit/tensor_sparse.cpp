// Sparse tensors, and their pieces.
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>

using namespace lockstep;

namespace {

using Indices = std::vector<std::int64_t>;

/// A sparse [7, 3] with five elements, not in order, of which two are in row 6 and none in row 4.
SparseTensor seven_rows() {
  return {.indices = Tensor::from<std::int64_t>({6, 0, 0, 2, 3, 1, 6, 2, 5, 0}, {5, 2}),
          .values = Tensor::from({1.F, 2.F, 3.F, 4.F, 5.F}, {5}),
          .dense_shape = {7, 3}};
}

}  // namespace

TEST_CASE("a sparse tensor is cut along its rows, the first pieces one row larger") {
  struct Expected {
    std::int64_t rows;
    Indices indices;
    std::vector<float> values;
  };
  const std::vector<Expected> expected{
      {3, {0, 2}, {2}},                   // rows 0 to 2
      {2, {0, 1}, {3}},                   // rows 3 and 4
      {2, {1, 0, 1, 2, 0, 0}, {1, 4, 5}}  // rows 5 and 6, in the order of the whole
  };
  for (int piece = 0; piece < 3; ++piece) {
    const SparseTensor part = seven_rows().piece(piece, 3);
    const auto& [rows, indices, values] = expected[static_cast<std::size_t>(piece)];
    CHECK(part.dense_shape == Shape{rows, 3});
    CHECK(part.indices.shape() == Shape{static_cast<std::int64_t>(values.size()), 2});
    CHECK(part.indices.to_vector<std::int64_t>() == indices);
    CHECK(part.values.to_vector<float>() == values);
    CHECK_NOTHROW(part.require_valid());
  }
}

TEST_CASE("pieces beyond the rows are empty, and one piece is the whole") {
  const SparseTensor two{.indices = Tensor::from<std::int64_t>({1}, {1, 1}),
                         .values = Tensor::from({Half{0.5F}}, {1}),
                         .dense_shape = {2}};
  CHECK(two.piece(1, 3).values.to_vector<Half>()[0] == Half{0.5F});
  CHECK(two.piece(2, 3).dense_shape == Shape{0});
  CHECK(two.piece(2, 3).indices.shape() == Shape{0, 1});
  CHECK(seven_rows().piece(0, 1).indices.to_vector<std::int64_t>() == seven_rows().indices.to_vector<std::int64_t>());
}

TEST_CASE("sparse tensors whose parts do not fit are refused, and so are pieces that do not exist") {
  const auto changed = [](auto change) {
    SparseTensor tensor = seven_rows();
    change(tensor);
    return tensor;
  };
  CHECK_THROWS_WITH(changed([](SparseTensor& it) {
                      it.dense_shape = {6, 3};
                    }).require_valid(),
                    "index [6, 0] is outside of a sparse [6, 3]");
  CHECK_THROWS_WITH(changed([](SparseTensor& it) {
                      it.dense_shape = {7, 2};
                    }).require_valid(),
                    "index [0, 2] is outside of a sparse [7, 2]");
  CHECK_THROWS_WITH(changed([](SparseTensor& it) {
                      it.indices = Tensor::from<std::int64_t>({-1, 0}, {1, 2});
                      it.values = Tensor::from({1.F}, {1});
                    }).require_valid(),
                    "index [-1, 0] is outside of a sparse [7, 3]");
  const std::vector<SparseTensor> wrong{changed([](SparseTensor& it) {
                                          it.dense_shape = {7, 3, 1};
                                        }),
                                        changed([](SparseTensor& it) { it.dense_shape = {}; }),
                                        changed([](SparseTensor& it) {
                                          it.dense_shape = {7, -3};
                                        }),
                                        changed([](SparseTensor& it) {
                                          it.values = Tensor::from({1.F, 2.F}, {2});
                                        }),
                                        changed([](SparseTensor& it) {
                                          it.values = Tensor::from({1.F, 2.F, 3.F, 4.F, 5.F}, {5, 1});
                                        }),
                                        changed([](SparseTensor& it) {
                                          it.indices = Tensor::zeros(DType::i32, {5, 2});
                                        })};
  for (const SparseTensor& each : wrong) CHECK_THROWS_AS(each.require_valid(), InvalidArgument);
  CHECK_THROWS_WITH(wrong[3].piece(0, 1),
                    Catch::StartsWith("a sparse [7, 3] of values f32[2] at indices i64[5, 2]: expected"));
  CHECK_THROWS_WITH(seven_rows().piece(2, 2), "piece 2 of 2: expected one from 0 to below their number");
  CHECK_THROWS_AS(seven_rows().piece(-1, 2), InvalidArgument);
  CHECK_THROWS_AS(seven_rows().piece(0, 0), InvalidArgument);
}
