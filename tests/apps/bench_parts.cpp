// What lockstep-bench measures with: inputs, their sums, medians, tables.
#include <cmath>
#include <limits>
#include <set>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "apps/lockstep-bench/exact_sums.hpp"
#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/timing.hpp"

using namespace lockstep;
using namespace lockstep::bench;

namespace {

Tensor input_of(DType dtype, std::int64_t count, int rank) {
  const Tensor tensor = Tensor::zeros(dtype, {count});
  fill_input(tensor.view(), rank);
  return tensor;
}

Tensor sum_over(DType dtype, std::int64_t count, int ranks) {
  const Tensor tensor = Tensor::zeros(dtype, {count});
  fill_sum(tensor.view(), ranks);
  return tensor;
}

}  // namespace

TEST_CASE("inputs are small whole numbers that differ between ranks and between elements") {
  constexpr std::int64_t count = 10000;
  const std::vector<float> zero = input_of(DType::f32, count, 0).to_vector<float>();
  const std::vector<float> one = input_of(DType::f32, count, 1).to_vector<float>();
  int same_on_both = 0, same_as_next = 0;
  for (std::size_t i = 0; i < zero.size(); ++i) {
    for (const float value : {zero[i], one[i]}) {
      REQUIRE(value == std::floor(value));
      REQUIRE(value >= -2048);
      REQUIRE(value <= 2047);
    }
    same_on_both += zero[i] == one[i];
    same_as_next += i > 0 && zero[i] == zero[i - 1];
  }
  // Of 4096 values two are the same by chance once in a while.
  CHECK(same_on_both < 20);
  CHECK(same_as_next < 20);
  CHECK(std::set<float>(zero.begin(), zero.end()).size() > 3000);
}

TEST_CASE("an input is the same at an index, however long the tensor") {
  const std::vector<float> all = input_of(DType::f32, 1000, 3).to_vector<float>();
  CHECK(input_of(DType::f32, 10, 3).to_vector<float>() == std::vector<float>(all.begin(), all.begin() + 10));
}

TEST_CASE("the exact sum is that of the inputs, from the first rank or from the last") {
  constexpr int ranks = 5;
  std::vector<float> upwards(1000), downwards(1000);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> up = input_of(DType::f32, 1000, rank).to_vector<float>();
    const std::vector<float> down = input_of(DType::f32, 1000, ranks - 1 - rank).to_vector<float>();
    for (std::size_t i = 0; i < up.size(); ++i) {
      upwards[i] += up[i];
      downwards[i] += down[i];
    }
  }
  const Tensor expected = sum_over(DType::f32, 1000, ranks);
  CHECK(expected.to_vector<float>() == upwards);
  CHECK(expected.to_vector<float>() == downwards);
  CHECK(largest_difference(Tensor::from(upwards, {1000}).view(), expected.view()) == 0);
}

TEST_CASE("one wrong element is found, and so is one that is no number") {
  const DType dtype = DType::f64;
  const Tensor expected = sum_over(dtype, 100, 2), result = sum_over(dtype, 100, 2);
  const auto elements = result.view().elements<double>();
  elements[99] += 0.25;
  CHECK(largest_difference(result.view(), expected.view()) == 0.25);
  elements[0] -= 3;
  CHECK(largest_difference(result.view(), expected.view()) == 3);
  elements[50] = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isinf(largest_difference(result.view(), expected.view())));
}

TEST_CASE("the sum that lacks a rank is wrong nearly everywhere") {
  const std::vector<float> two = sum_over(DType::f32, 1000, 2).to_vector<float>();
  const std::vector<float> three = sum_over(DType::f32, 1000, 3).to_vector<float>();
  int same = 0;
  for (std::size_t i = 0; i < two.size(); ++i) same += two[i] == three[i];
  CHECK(same < 10);
}

TEST_CASE("the median is the middle one, or the mean of the middle two") {
  CHECK(median({7}) == 7);
  CHECK(median({9, 1, 4}) == 4);
  CHECK(median({8, 1, 2, 4}) == 3);
}

TEST_CASE("a table's head stands above its values, and shows the names of the JSON's keys") {
  const Row row{{"bytes", "B", std::int64_t{67108864}},
                {"dtype", "", "f32"},
                {"time", "us", 1234.5678},
                {"rate", "GB/s", 0.01234},
                {"error", "", 0.0},
                {"ratio", "time/mpi", 2.0},
                {"a_rather_long_name", "", 1e-9},
                {"beyond", "", INFINITY}};
  CHECK(table_head(row) ==
        "#      bytes       dtype        time        rate       error       ratio  a_rather_long_name      beyond\n"
        "#        (B)                    (us)      (GB/s)              (time/mpi)                                \n");
  CHECK(table_line(row) ==
        "    67108864         f32     1234.57       0.012           0           2               1e-09         inf\n");
  const auto json = nlohmann::ordered_json::parse(to_json({"all-reduce", 3, "cpu"}, {row, row}));
  CHECK(json["bench"] == "all-reduce");
  CHECK(json["ranks"] == 3);
  CHECK(json["device"] == "cpu");
  CHECK(json["rows"].size() == 2);
  CHECK(json["rows"][1].dump() ==
        R"({"bytes":67108864,"dtype":"f32","time":1234.5678,"rate":0.01234,"error":0.0,"ratio":2.0,)"
        R"("a_rather_long_name":1e-09,"beyond":null})");
}
