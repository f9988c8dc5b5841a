// What lockstep-bench measures with: inputs, their sums, medians, tables, the parts of a step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "apps/lockstep-bench/exact_inputs.hpp"
#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step_clock.hpp"
#include "apps/lockstep-bench/step_run.hpp"
#include "apps/lockstep-bench/step_statistics.hpp"
#include "apps/lockstep-bench/timed_model.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "models/nn/joint_model.hpp"
#include "sync/group/local_group.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/strategy/inside.hpp"

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

/// A clock of tests.
struct Hand {
  std::int64_t milliseconds = 0;

  StepClock::Time time() const { return StepClock::Time{std::chrono::milliseconds{milliseconds}}; }
};

/// A step that is all `part`.
PartTimes step_of(Part part, double milliseconds) {
  PartTimes step;
  step.of(part) = milliseconds;
  return step;
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
        "#     bytes      dtype       time       rate      error      ratio a_rather_long_name     beyond\n"
        "#       (B)                  (us)     (GB/s)            (time/mpi)                              \n");
  CHECK(table_line(row) ==
        "   67108864        f32    1234.57      0.012          0          2              1e-09        inf\n");
  const auto json = nlohmann::ordered_json::parse(to_json({"all-reduce", 3, "cpu"}, {row, row}));
  CHECK(json["bench"] == "all-reduce");
  CHECK(json["ranks"] == 3);
  CHECK(json["device"] == "cpu");
  CHECK(json["rows"].size() == 2);
  CHECK(json["rows"][1].dump() ==
        R"({"bytes":67108864,"dtype":"f32","time":1234.5678,"rate":0.01234,"error":0.0,"ratio":2.0,)"
        R"("a_rather_long_name":1e-09,"beyond":null})");
}

TEST_CASE("what is the same in all rows may stand in the title, and columns may be narrow") {
  const Row row{{"model", "", "mlp", Place::title},
                {"floor", "ms", 2.25, Place::title},
                {"shards", "", std::int64_t{8}, Place::column, 7},
                {"step", "ms", 1.5}};
  CHECK(table_title({"step", 2, "cpu"}, row) ==
        "# lockstep-bench step: 2 ranks, device cpu, model mlp, floor 2.25 ms\n");
  Row long_title(20, row[1]);
  std::istringstream lines{table_title({"step", 2, "cpu"}, long_title)};
  int count = 0, floors = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CHECK(line.size() <= 100);
    CHECK(line.starts_with("# "));
    for (std::size_t at = 0; (at = line.find("floor 2.25 ms", at)) != std::string::npos; ++at) ++floors;
  }
  CHECK((count == 4 && floors == 20));
  CHECK(table_head(row) == "# shards       step\n#              (ms)\n");
  CHECK(table_line(row) == "       8       1.50\n");
  CHECK(nlohmann::ordered_json::parse(to_json({"step", 2, "cpu"}, {row}))["rows"][0]["model"] == "mlp");
}

TEST_CASE("a value that is wider than its column stays apart from the one before") {
  const auto line = [](double wide) {
    return table_line({{"a", "", std::int64_t{1234}, Place::column, 3},
                       {"b", "", wide, Place::column, 5},
                       {"c", "", std::int64_t{7}, Place::column, 3}});
  };
  CHECK(line(1.25) == "1234  1.25   7\n");
  CHECK(line(123.25) == "1234 123.25  7\n");
  CHECK(line(123456789.25) == "1234 123456789.25 7\n");
}

TEST_CASE("every moment is one part's, and that of an interruption not the interrupted part's") {
  Hand hand;
  StepClock clock{[&] { return hand.time(); }};
  hand.milliseconds += 1;
  clock.enter(Part::forward);
  hand.milliseconds += 2;
  clock.enter(Part::backward);
  hand.milliseconds += 4;
  {
    const StepClock::During outer{clock, Part::communication};
    hand.milliseconds += 8;
    {
      const StepClock::During inner{clock, Part::agreement};
      hand.milliseconds += 16;
    }
    hand.milliseconds += 32;
  }
  CHECK(clock.current() == Part::backward);
  hand.milliseconds += 64;
  clock.enter(Part::optimizer);
  hand.milliseconds += 128;
  clock.enter(Part::other);
  hand.milliseconds += 256;
  const PartTimes step = clock.lap();
  CHECK(step == PartTimes{{1, 2, 4 + 64, 0, 8 + 32, 16, 128, 256}});
  CHECK(step.whole() == 511);

  hand.milliseconds += 3;
  CHECK(clock.lap() == step_of(Part::data, 3));
}

TEST_CASE("a typical step is the mean of the middle half by length, from whichever blocks, and adds up") {
  PartTimes mixed = step_of(Part::data, 3);
  mixed.of(Part::forward) = 2;
  const std::vector<Block> blocks{{step_of(Part::data, 1000), step_of(Part::forward, 7)},
                                  {step_of(Part::data, 1), mixed}};
  const PartTimes typical = typical_step(blocks);
  CHECK(typical.of(Part::data) == 1.5);
  CHECK(typical.of(Part::forward) == 4.5);
  CHECK(typical.whole() == 6);  // of 1, 5, 7 and 1000 the middle two
  CHECK(typical_step({{mixed}}) == mixed);
  CHECK(typical_step({{step_of(Part::data, 1), step_of(Part::data, 2), step_of(Part::data, 6)}}).whole() == 3);
}

TEST_CASE("the ratio of two runs is that of the steps of one pair, of the median pair") {
  const auto block = [](double a, double b, double c) {
    return Block{step_of(Part::data, a), step_of(Part::forward, b), step_of(Part::other, c)};
  };
  // Medians 3, 20, 600 to 2, 10, 100: the machine slowed down, by as much for both.
  const std::vector<Block> blocks{block(1, 3, 90), block(20, 19, 21), block(600, 600, 1)};
  const std::vector<Block> others{block(2, 1, 3), block(10, 10, 10), block(100, 99, 9999)};
  CHECK(ratio_of(blocks, others) == 2);
  CHECK(ratio_of(others, others) == 1);
}

TEST_CASE("the interval of a median holds the ranks that the binomial distribution gives") {
  // Conover, Practical Nonparametric Statistics: for 20 values the 6th and the 15th, for 100 the 40th and the 61st.
  for (const auto& [size, low, high] : {std::tuple{6, 1, 6}, {8, 1, 8}, {9, 2, 8}, {20, 6, 15}, {100, 40, 61}}) {
    CAPTURE(size);
    std::vector<double> sample;
    for (int i = size; i > 0; --i) sample.push_back(i);
    const Interval interval = median_interval(sample);
    CHECK(interval.low == low);
    CHECK(interval.high == high);
    CHECK(interval.median == (size + 1) / 2.0);
  }
}

TEST_CASE("a run times each part of a step as often as fit comes to it") {
  const StepModel model = GENERATE(StepModel::mlp, StepModel::convnet, StepModel::gpt);
  CAPTURE(static_cast<int>(model));
  // Whoever looks at it moves it on, so a part's time is how often it was entered and came to be looked at.
  Hand hand;
  StepClock clock{[&] {
    ++hand.milliseconds;
    return hand.time();
  }};
  const RandomSamples samples{model, 4};
  const auto group = make_local_group();
  const auto run_of = [&](int shards) {
    return StepRun{strategy_on(*group, timed_reductions(clock, [&] { hand.milliseconds += 100; })),
                   clock,
                   samples,
                   {.model = model, .global_batch = 4, .shards = shards}};
  };
  StepRun one = run_of(1), two = run_of(2);
  CHECK(one.shards() == 1);
  CHECK(two.shards() == 2);
  CHECK(one.model() == std::vector<std::string>{"mlp", "convnet", "gpt"}[static_cast<std::size_t>(model)]);
  for (StepRun* const run : {&one, &two}) {
    const std::vector<PartTimes> steps = run->block(3);
    REQUIRE(steps.size() == 3);
    for (const PartTimes& step : steps) {
      CHECK(step == steps.front());
      CHECK(step.of(Part::data) == 1);
      // With the model's own beginning.
      CHECK(step.of(Part::forward) >= 2);
      CHECK(step.of(Part::backward) >= 1);
      CHECK(step.of(Part::communication) >= 2);  // the step's sums, and the gradients
      CHECK(step.of(Part::waiting) == 101 * step.of(Part::communication));
      CHECK(step.of(Part::agreement) == 0);  // which nobody told the clock of
      CHECK(step.of(Part::optimizer) == step.of(Part::communication) + 1);
      CHECK(step.of(Part::other) == 1);
    }
  }
}

TEST_CASE("a run's threads end with its block") {
  StepClock clock;
  const RandomSamples samples{StepModel::mlp, 32};
  const auto group = make_local_group();
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks{"/proc/self/task"};
    return std::distance(begin(tasks), end(tasks));
  };
  std::thread{[] {}}.join();  // ThreadSanitizer starts one of its own with the first
  const auto before = threads();
  // The threads share the products of one shard, or compute two.
  for (const int shards : {1, 2}) {
    CAPTURE(shards);
    StepRun run{strategy_on(*group, timed_reductions(clock, [] {})),
                clock,
                samples,
                {.global_batch = 32, .shards = shards, .threads = 2}};
    (void)run.block(1);
    CHECK(threads() == before);
  }
}

TEST_CASE("a model takes as many passes as it has shards, and each is timed") {
  Hand hand;
  StepClock clock{[&] {
    ++hand.milliseconds;
    return hand.time();
  }};
  const RandomSamples samples{StepModel::convnet, 8};
  const auto group = make_local_group();
  StepRun run{strategy_on(*group, timed_reductions(clock, [] {})),
              clock,
              samples,
              {.model = StepModel::convnet, .global_batch = 8, .shards = 4}};
  const PartTimes step = run.block(1).front();
  CHECK(step.of(Part::forward) == 1 + 4);
  // In the last pass, the clock is also read when each gradient is ready, and at the end.
  std::vector<double> ready = run.ready_moments();
  CHECK(step.of(Part::backward) == 4 + static_cast<double>(ready.size()) + 1);
  std::ranges::sort(ready);
  for (std::size_t gradient = 0; gradient < ready.size(); ++gradient)
    CHECK(ready[gradient] == Approx((1.0 + static_cast<double>(gradient)) / (1.0 + static_cast<double>(ready.size()))));
}

TEST_CASE("a model whose shards are computed together is one when it is timed, and another is none") {
  /// Whoever trains it shard by shard takes it for a model that it is not.
  struct Joint final : nn::Model, nn::JointModel {
    std::string_view name() const override { return "joint"; }
    std::span<const Variable> variables() const override { return {}; }
    nn::JointModel* joint() override { return is_joint ? this : nullptr; }
    BatchLoss train_shard(const SampleBatch&, const nn::Model::ShardPlace&, const nn::GradientBuffer&) override {
      return {};
    }
    BatchLoss evaluate_shard(const SampleBatch&) override { return {}; }
    std::vector<std::int64_t> joint_sums() const override { return {3, 4}; }
    Losses train_jointly(const nn::JointBatch& batch, std::span<const nn::GradientBuffer>,
                         DeclaredSums& ranks) override {
      ranks.all_reduce(Tensor::zeros(DType::f32, {3}).view());
      begin(nn::Model::Pass::backward);
      return {BatchLoss{.loss_sum = 2.5, .correct = batch.samples}};
    }
    bool is_joint = true;
  } model;
  Hand hand;
  StepClock clock{[&] {
    ++hand.milliseconds;
    return hand.time();
  }};
  TimedModel timed{model, clock};
  nn::JointModel* const joint = timed.joint();
  REQUIRE(joint);
  CHECK(joint->joint_sums() == std::vector<std::int64_t>{3, 4});

  const auto group = make_local_group();
  const auto reductions = group->make_reductions(timed_reductions(clock, [] {}));
  const SumList list{DType::f32, joint->joint_sums()};
  DeclaredSums ranks{*reductions, list, Stream::host()};
  const SampleBatch::Group shards{};
  const auto results = joint->train_jointly({shards, {}, 7}, {}, ranks);
  REQUIRE(results.size() == 1);
  CHECK(results.front().read().loss_sum == 2.5);
  CHECK(results.front().read().correct == 7);
  CHECK(clock.current() == Part::optimizer);
  const PartTimes times = clock.lap();
  CHECK(times.of(Part::forward) == 2);  // before the sum, and behind it
  CHECK(times.of(Part::communication) == 1);
  CHECK(times.of(Part::backward) == 1);

  model.is_joint = false;
  CHECK(timed.joint() == nullptr);
}

TEST_CASE("random samples are whole, and the same for whoever makes them") {
  for (const StepModel model : {StepModel::mlp, StepModel::gpt}) {
    const RandomSamples samples{model, 5}, again{model, 5};
    CHECK(samples.source().count() == 5);
    const auto filled = [](const RandomSamples& random) {
      SampleBatch batch = random.source().make_batch(5, Stream::host());
      random.source().fill(std::vector<std::int64_t>{0, 1, 2, 3, 4}, batch);
      return batch;
    };
    const SampleBatch batch = filled(samples), other = filled(again);
    CHECK(batch.labels.to_vector<std::int32_t>() == other.labels.to_vector<std::int32_t>());
    const auto labels = batch.labels.to_vector<std::int32_t>();
    CHECK(std::set<std::int32_t>(labels.begin(), labels.end()).size() > 1);
    CHECK(*std::ranges::max_element(labels) < (model == StepModel::gpt ? 256 : 10));
  }
}
