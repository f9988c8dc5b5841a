// The phases of a step: in which order ranks take them, and what becomes of a rank that fails.
#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "sync/step/rows.hpp"
#include "sync/step/synchronous_step.hpp"

using namespace lockstep;

namespace {

constexpr int ranks = 3;

using Phases = std::vector<std::string>;

/// A step of one gradient, in which rank r brings r + 1. Notes its phases, and what they find there.
struct Noted {
  Phases phases = {};
  Tensor gradient = Tensor::from({0.0}, {1});
  std::int64_t counted = 0;
  std::vector<GradientBucket> buckets = {{gradient.view(), 1}};

  SynchronousStep step(int rank, bool is_applied = true) {
    gradient.view().elements<double>()[0] = rank + 1;
    SynchronousStep step{.agree = "a step", .buckets = buckets};
    step.sum = [this](const RankSums&) { note("sum"); };
    step.measure = [this] { note("measure"); };
    step.count = [this, rank] {
      phases.emplace_back("count");
      counted = rank + 1;
      return std::vector<TensorView>{{reinterpret_cast<std::byte*>(&counted), {1}, DType::i64}};
    };
    step.decide = [this, is_applied] {
      phases.push_back("decide: " + std::to_string(counted));
      return is_applied;
    };
    step.update = [this](const RankSums&) { note("update"); };
    step.audit = [this] { phases.emplace_back("audit"); };
    return step;
  }

  SynchronousStep computed_step(int rank, bool is_applied = true) {
    SynchronousStep step = this->step(rank, is_applied);
    step.compute = [this](DeclaredSums& sums) {
      note("compute");
      CHECK(sums.ready(0));
    };
    step.complete = [this] { note("complete"); };
    return step;
  }

 private:
  void note(const std::string& phase) {
    phases.push_back(phase + ": " + std::to_string(static_cast<int>(gradient.to_vector<double>().front())));
  }
};

/// What each rank notes of a step.
std::vector<Phases> phases_of(const std::function<SynchronousStep(Noted&, int rank)>& step_of) {
  std::vector<Phases> all(ranks);
  const auto body = [&](Strategy& strategy, int rank) {
    Noted noted;
    const SynchronousStep step = step_of(noted, rank);
    try {
      strategy.run([&](ReplicaContext& context) {
        noted.phases.emplace_back(make_step(context, step, Here::current()) ? "updated" : "not updated");
      });
    } catch (const PeerError&) {
      noted.phases.emplace_back("told");
    } catch (const std::out_of_range& error) {
      noted.phases.emplace_back(error.what());
    }
    all[static_cast<std::size_t>(rank)] = noted.phases;
  };
  sim::run({.ranks = ranks, .report = [](std::string_view) {}}, body);
  return all;
}

}  // namespace

TEST_CASE("a step is computed, summed, measured and counted before the ranks decide on it") {
  for (const bool is_applied : {true, false}) {
    const auto all = phases_of([&](Noted& noted, int rank) { return noted.computed_step(rank, is_applied); });
    for (int rank = 0; rank < ranks; ++rank) {
      Phases expected{
          "compute: " + std::to_string(rank + 1), "sum: 6", "measure: 6", "complete: 6", "count", "decide: 6"};
      if (is_applied) expected.emplace_back("update: 6");
      expected.insert(expected.end(), {"audit", is_applied ? "updated" : "not updated"});
      CHECK(all[static_cast<std::size_t>(rank)] == expected);
    }
  }
}

TEST_CASE("gradients that are ready before the step are counted and decided on before they are summed") {
  const auto all = phases_of([&](Noted& noted, int rank) { return noted.step(rank); });
  for (const Phases& each : all)
    CHECK(each == Phases{"count", "decide: 6", "sum: 6", "measure: 6", "update: 6", "audit", "updated"});
}

TEST_CASE("a rank that fails brings zeros, no rank decides, and the step says when the others hear of it") {
  for (const bool closes : {false, true})
    for (const bool fails_late : {false, true}) {
      CAPTURE(closes, fails_late);
      const auto all = phases_of([&](Noted& noted, int rank) {
        SynchronousStep step = noted.computed_step(rank);
        if (rank == 1 && !fails_late) step.compute = [](DeclaredSums&) { throw std::out_of_range{"failed"}; };
        if (rank == 1 && fails_late) step.complete = [] { throw std::out_of_range{"failed"}; };
        if (closes) step.close = "the end";
        return step;
      });
      const std::string sum = fails_late ? ": 6" : ": 4";
      for (const int rank : {0, 2}) {
        Phases expected{"compute: " + std::to_string(rank + 1), "sum" + sum, "measure" + sum, "complete" + sum,
                        "count"};
        if (!closes) expected.emplace_back("not updated");  // it hears of it at the end of the run
        expected.emplace_back("told");
        CHECK(all[static_cast<std::size_t>(rank)] == expected);
      }
      CHECK(all[1].back() == "failed");
    }
}

TEST_CASE("rows add up in the order of their parts, and in a tree") {
  const double half = 0x1p-53;  // of what 1 can be increased by
  const auto part = [](const std::vector<double>& values, const std::vector<std::int64_t>& indices) {
    const std::int64_t rows = std::ssize(indices);
    return IndexedSlices{Tensor::from(values, {rows}), Tensor::from(indices, {rows}), {9}};
  };
  const std::vector<IndexedSlices> parts{part({1, 4}, {7, 2}), part({half}, {7}), part({half, 1, half}, {7, 3, 7})};
  const IndexedSlices sum = sum_rows(parts);
  CHECK(sum.indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 3, 7});
  CHECK(sum.values.to_vector<double>() == std::vector<double>{4, 1, 1});  // one by one each half is lost
  RowTree tree;
  for (const IndexedSlices& each : {part({1}, {7}), part({}, {}), part({half}, {7}), part({half}, {7})})
    tree.push(each);
  CHECK(tree.finish().values.to_vector<double>() == std::vector<double>{1 + 2 * half});
}

TEST_CASE("rows of several gradients travel as one message of each rank, or in parts") {
  for (const std::int64_t most : {1000, 24, 8}) {
    CAPTURE(most);
    const auto body = [&](Strategy& strategy, int rank) {
      const std::int64_t rows = 2 * rank;
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < rows; ++i) indices.push_back(i);
      const auto own = [&]<class T>(T value) {
        const std::vector<T> values(static_cast<std::size_t>(2 * rows), value);
        return IndexedSlices{Tensor::from(values, {rows, 2}), Tensor::from(indices, {rows}), {9, 2}};
      };
      RowExchange exchange{rank, ranks, most};
      exchange.pack({own(1.0 + rank), own(1.F + static_cast<float>(rank))}, std::array{DType::f64, DType::bf16});
      // Two numbers of rows; for each row two indices, two f64 and two bf16.
      CHECK(exchange.counts()[static_cast<std::size_t>(rank)] == 16 + rows * (16 + 16 + 4));
      SynchronousStep step{.agree = "rows"};
      step.count = [&] {
        return std::vector<TensorView>{{reinterpret_cast<std::byte*>(exchange.counts().data()), {ranks}, DType::i64}};
      };
      step.update = [&](const RankSums& sums) {
        const std::vector<std::vector<IndexedSlices>> all = exchange.exchange(sums);
        REQUIRE(all.size() == 2);
        for (const std::vector<IndexedSlices>& gradient : all) REQUIRE(gradient.size() == ranks);
        for (std::size_t r = 0; r < ranks; ++r) {
          const std::vector<double> expected(4 * r, 1.0 + static_cast<double>(r));
          CHECK(all[0][r].indices.count() == static_cast<std::int64_t>(2 * r));
          CHECK(all[0][r].values.to_vector<double>() == expected);
          CHECK(all[1][r].values.to_vector<float>() == std::vector<float>(expected.begin(), expected.end()));
        }
      };
      strategy.run([&](ReplicaContext& context) { CHECK(make_step(context, step, Here::current())); });
    };
    sim::run({.ranks = ranks}, body);
  }
}
