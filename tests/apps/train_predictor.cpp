// Which classes a predictor names.
#include <limits>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/models/input/labelled_data.hpp>

#include "apps/lockstep-train/tasks/predictor.hpp"
#include "support/job.hpp"

namespace lockstep::test::train_predictor_cases {

TEST_CASE("classes are named by their probability, of several the lowest number first, and what is no number last") {
  const TemporaryDirectory folder;
  const LabelledData data = LabelledData::load_unlabelled(folder.write("two.csv", "x\n1\n2\n"), {});
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto logits = [&](const SampleBatch&) {
    return std::vector<double>{0, 7, -1000, 7, none, none, 3, none, 3, 3};
  };
  const auto predictor = make_class_predictor(logits, *data.train, {{"a", "b", "c", "d", "e"}, 5}, Stream::host());
  std::vector<double> rows(20);
  predictor->predict({0, 2}, rows);
  const auto numbers = [&](std::int64_t index) {
    const Prediction prediction =
        predictor->read(index, std::span{rows}.subspan(static_cast<std::size_t>(10 * index), 10));
    std::vector<std::int64_t> found;
    for (const Prediction::Class& each : prediction.top) found.push_back(each.number);
    CHECK(prediction.index == index);
    CHECK(prediction.likeliest.number == found.front());
    return found;
  };
  CHECK(numbers(0) == std::vector<std::int64_t>{1, 3, 0, 2, 4});
  CHECK(numbers(1) == std::vector<std::int64_t>{1, 3, 4, 0, 2});
}

}  // namespace lockstep::test::train_predictor_cases
