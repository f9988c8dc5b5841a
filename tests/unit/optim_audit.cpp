// Audits of a program's own loop, on simulated ranks.
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/optim/audit.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/sim/sim.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "control/meeting_point.hpp"
#include "strategy/replica_group.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t shards = 8;

/// What a rank gets for a value of a shard; by default, what it is.
struct Faults {
  std::function<double(std::int64_t step, std::int64_t shard, double right)> gradient =
      [](std::int64_t, std::int64_t, double right) { return right; };
  std::function<double(std::int64_t shard, double right)> sample = [](std::int64_t, double right) { return right; };
};

/// A loop of six steps on one variable, whose gradient in a shard depends on the step, the shard and the value.
class Loop {
 public:
  Loop(Strategy& strategy, const Faults& faults)
      : strategy_{strategy},
        faults_{faults},
        w_{strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(2.0); })} {
    strategy.seal();
  }

  /// Every step, or without audits if `every` is 0.
  void run(std::int64_t every) {
    std::optional<Optimizer::Audit> audit;
    const auto compute = [&](std::int64_t shard, Optimizer::Audit::Results& results) {
      sample_ = faults_.sample(shard, 0.1 * static_cast<double>(shard + 1));
      gradient_ = faults_.gradient(step_, shard, sample_ * w_.local().to_vector<double>()[0]);
      results.add("samples", sample_);
      results.add("gradient of 'w'", Tensor::scalar(gradient_).view());
      results.add("loss", gradient_ * sample_);
      ++computed;
    };
    if (every > 0) audit.emplace(strategy_, Optimizer::Audit::Options{.every = every, .shards = shards}, compute);
    for (step_ = 0; step_ < 6; ++step_) strategy_.run([&](ReplicaContext& context) { step(context, audit); });
  }

  double weight() const { return w_.local().to_vector<double>()[0]; }
  int computed = 0;  ///< shards

 private:
  void step(ReplicaContext& context, std::optional<Optimizer::Audit>& audit) {
    const std::int64_t own = shards / strategy_.num_replicas_in_sync();
    double sum = 0;
    for (std::int64_t shard = own * strategy_.rank(); shard < own * (strategy_.rank() + 1); ++shard) {
      if (audit) {
        audit->compute(shard);
      } else {
        gradient_ = 0.1 * static_cast<double>(shard + 1) * weight();
      }
      sum += gradient_;
    }
    const std::vector<Optimizer::Gradient> gradients{{Tensor::scalar(sum), w_}};
    const Optimizer::StepSums sums{.samples = own};
    audit ? sgd_.apply_gradients(context, gradients, sums, *audit) : sgd_.apply_gradients(context, gradients, sums);
  }

  Strategy& strategy_;
  const Faults& faults_;
  MirroredVariable w_;
  Sgd sgd_{{.learning_rate = 0.1}};
  std::int64_t step_ = 0;
  double sample_ = 0, gradient_ = 0;
};

/// What the audit of each step finds. Checks that all ranks say the same, and that none has made the step.
std::string found(int ranks, const std::function<void(int rank, Faults&)>& plant,
                  AuditError::Finding* finding = nullptr) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  sim::run({.ranks = ranks, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
    Faults faults;
    plant(rank, faults);
    Loop loop{strategy, faults};
    try {
      loop.run(1);
    } catch (const AuditError& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
      if (rank == 0 && finding) *finding = error.finding();
    }
    CHECK(loop.weight() == 2);
  });
  for (const std::string& each : said) CHECK(each == said.front());
  return said.front();
}

}  // namespace

TEST_CASE("audits of a loop change no bit of it, and cost no message") {
  for (const int ranks : {1, 2, 4, 8}) {
    INFO(ranks);
    double plain = 0;
    std::uint64_t waits = 0;
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
      const Faults none;
      Loop loop{strategy, none};
      const std::uint64_t before = strategy.group().meeting().waits();
      loop.run(0);
      if (rank == 0) {
        plain = loop.weight();
        waits = strategy.group().meeting().waits() - before;
      }
    });
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int) {
      const Faults none;
      Loop loop{strategy, none};
      const std::uint64_t before = strategy.group().meeting().waits();
      loop.run(2);
      CHECK(loop.weight() == plain);
      CHECK(strategy.group().meeting().waits() - before == waits);
      CHECK(loop.computed == 6 * shards / ranks + 3);
    });
  }
}

TEST_CASE("an audit of a loop names the rank that computes or reads otherwise, and no step is made") {
  AuditError::Finding finding;
  const std::string wrong = found(
      4,
      [](int rank, Faults& faults) {
        if (rank == 2) faults.gradient = [](std::int64_t, std::int64_t, double right) { return right * (1 + 0x1p-50); };
      },
      &finding);
  CHECK_THAT(wrong, Catch::StartsWith("replica 2") && Catch::Contains("of step 1 wrong: gradient of 'w' differs from"));
  CHECK(finding.blamed == std::vector{2});
  CHECK(finding.value == "gradient of 'w'");
  const std::string misread = found(3 + 1, [](int rank, Faults& faults) {
    if (rank == 1) faults.sample = [](std::int64_t, double right) { return right + 1; };
  });
  CHECK_THAT(misread, Catch::StartsWith("replica 1") && Catch::Contains("read other samples than replicas 0, 2 and 3"));
}

TEST_CASE("an audit of a loop names a rank of two, or one alone, that does not repeat its result") {
  for (const int ranks : {1, 2}) {
    const std::string once = found(ranks, [&](int rank, Faults& faults) {
      if (rank != ranks - 1) return;
      faults.gradient = [seen = std::vector<int>(shards)](std::int64_t, std::int64_t shard, double right) mutable {
        return seen[static_cast<std::size_t>(shard)]++ == 0 ? right + 1e-9 : right;
      };
    });
    CHECK_THAT(once, Catch::StartsWith("replica " + std::to_string(ranks - 1)));
  }
}

TEST_CASE("of a shard that is no finite number, an audit compares only that") {
  sim::run({.ranks = 2}, [](Strategy& strategy, int rank) {
    Faults faults;
    faults.gradient = [rank](std::int64_t, std::int64_t, double) {
      return rank == 0 ? std::numeric_limits<double>::quiet_NaN() : -std::numeric_limits<double>::quiet_NaN();
    };
    Loop loop{strategy, faults};
    CHECK_NOTHROW(loop.run(1));
  });
}

TEST_CASE("what an audit of a loop cannot compare is refused") {
  sim::run({.ranks = 2, .report = [](std::string_view) {}}, [](Strategy& strategy, int rank) {
    using Audit = Optimizer::Audit;
    const auto nothing = [](std::int64_t, Audit::Results&) {};
    CHECK_THROWS_WITH(Audit(strategy, {.every = 0, .shards = 8}, nothing),
                      "audits of every 0 steps; expected 1 or more");
    CHECK_THROWS_WITH(Audit(strategy, {.every = 1, .shards = 7}, nothing),
                      "audits of 7 shards on 2 ranks; expected as many on each");
    Audit audit{strategy, {.every = 1, .shards = 4}, nothing};
    CHECK_THROWS_WITH(audit.compute(2 - 2 * rank), Catch::Contains("expected " + std::to_string(2 * rank) + " to "));
    CHECK_THROWS_WITH(audit.compute(2 * rank), Catch::Contains("expected the same, and one at least"));

    const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    Sgd sgd{{.learning_rate = 1}};
    const auto step = [&](Audit& of) {
      strategy.run([&](ReplicaContext& context) {
        sgd.apply_gradients(context, {{Tensor::scalar(1.0), w}}, Optimizer::StepSums{.samples = 1}, of);
      });
    };
    CHECK_THROWS_WITH(step(audit), Catch::Contains("expected Audit::compute for each shard of the rank before"));
    // Ranks that add different results hear of it before anything is compared.
    Audit other{strategy, {.every = 1, .shards = 2}, [rank](std::int64_t, Audit::Results& results) {
                  results.add(rank == 0 ? "loss" : "gain", 1);
                }};
    other.compute(rank);
    CHECK_THROWS_AS(step(other), MismatchError);
    CHECK(w.local().to_vector<double>()[0] == 1);
  });
}
