// The pieces of a batch that every rank has.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "tf/estimator/batch_split.hpp"

using namespace lockstep;

namespace {

Tensor rows(std::int64_t count) {
  return Tensor::zeros(DType::f32, {count});
}

/// Row i has one element, i.
SparseTensor sparse_rows(std::int64_t count) {
  std::vector<std::int64_t> places;
  std::vector<float> values;
  for (std::int64_t row = 0; row < count; ++row) {
    places.insert(places.end(), {row, 0});
    values.push_back(static_cast<float>(row));
  }
  return {Tensor::from(places, {count, 2}), Tensor::from(values, {count}), {count, 1}};
}

/// Of the split among two replicas; "" if there is none.
std::string refusal(const detail::RowTensors& features, const detail::RowTensors& labels) {
  try {
    detail::split_batch(features, labels, 0, 2, Stream::host());
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every dense tensor of the features and of the labels must divide, and a sparse one need not",
          "[J-10][J-12]") {
  const std::string odd = "Batch size 3 needs to be divisible by the number of replicas, which is 2.";
  Tensor four = rows(4), three = rows(3), other_three = rows(3);
  CHECK(refusal({&three}, {}) == odd);
  CHECK(refusal({&three, &other_three}, {}) == odd);
  SparseTensor words = sparse_rows(3), other_words = sparse_rows(5);
  CHECK(refusal({&words}, {&three}) == odd);
  CHECK(words.dense_shape == Shape{3, 1});  // nothing is cut before all is checked
  CHECK(refusal({&words, &four}, {&other_words}) == "");
  CHECK(four.shape() == Shape{2});
  CHECK(words.dense_shape == Shape{2, 1});
  CHECK(other_words.dense_shape == Shape{3, 1});
}
