// Audits of a program's own loop, on simulated ranks.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/optim/audit.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/meeting_point.hpp"
#include "core/device/gpu_backend.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

std::atomic<int> gpu_reads{0};

/// No GPU is there, but what is said to be in its memory can be read.
const detail::GpuBackend counting_backend{
    .device_count = [] { return 0; },
    .device_uuids = [] { return std::vector<std::string>{}; },
    .why_no_device = []() -> std::string { return "this one only counts"; },
    .read_device =
        [](void* to, const void* from, std::size_t bytes) {
          std::memcpy(to, from, bytes);
          ++gpu_reads;
        },
};

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
    for (step_ = 0; step_ < 6; ++step_) {
      try {
        strategy_.run([&](ReplicaContext& context) { step(context, audit); });
      } catch (const AuditError& error) {
        if (!goes_on) throw;
        found.emplace_back(error.what());
      }
    }
  }

  double weight() const { return w_.local().to_vector<double>()[0]; }
  int computed = 0;                ///< shards
  bool goes_on = false;            ///< after an AuditError
  bool is_computed = false;        ///< after the agreement
  std::vector<std::string> found;  ///< by audits, if it goes on

 private:
  void step(ReplicaContext& context, std::optional<Optimizer::Audit>& audit) {
    const Tensor sum = Tensor::scalar(0.0);
    const std::vector<Optimizer::Gradient> gradients{{sum, w_}};
    Optimizer::Request request{.gradients = gradients, .shards = shards, .audit = audit ? &*audit : nullptr};
    const auto compute = [&](Optimizer::AgreedStep& step) {
      const Optimizer::StepSums sums = add_up(audit, sum);
      step.ready(w_);
      return sums;
    };
    if (is_computed) request.computation = {compute};
    if (!is_computed) request.own = add_up(audit, sum);
    sgd_.apply_gradients(context, request);
  }

  /// This rank's shards.
  Optimizer::StepSums add_up(std::optional<Optimizer::Audit>& audit, const Tensor& sum) {
    const Range own = Range::of_rank(shards, strategy_.num_replicas_in_sync(), strategy_.rank());
    for (std::int64_t shard = own.first; shard < own.last; ++shard) {
      if (audit) {
        audit->compute(shard);
      } else {
        gradient_ = 0.1 * static_cast<double>(shard + 1) * weight();
      }
      sum.view().elements<double>()[0] += gradient_;
    }
    return {.samples = own.size()};
  }

  Strategy& strategy_;
  const Faults& faults_;
  MirroredVariable w_;
  Sgd sgd_{{.learning_rate = 0.1}};
  std::int64_t step_ = 0;
  double sample_ = 0, gradient_ = 0;
};

/// What the audit of each step finds, whether its shards are computed before the agreement or after it. Checks that all
/// ranks say the same, and that none has made the step.
std::string found(int ranks, const std::function<void(int rank, Faults&)>& plant,
                  AuditError::Finding* finding = nullptr) {
  std::vector<std::string> said;
  for (const bool is_computed : {false, true})
    sim::run({.ranks = ranks, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
      Faults faults;
      plant(rank, faults);
      Loop loop{strategy, faults};
      loop.is_computed = is_computed;
      try {
        loop.run(1);
      } catch (const AuditError& error) {
        said.emplace_back(error.what());
        if (rank == 0 && finding) *finding = error.finding();
      }
      CHECK(loop.weight() == 2);
    });
  REQUIRE(said.size() == 2 * static_cast<std::size_t>(ranks));
  for (const std::string& each : said) CHECK(each == said.front());
  return said.front();
}

}  // namespace

const detail::GpuLibrary& detail::gpu_library() {
  static const GpuLibrary library{.backend = &counting_backend};
  return library;
}

TEST_CASE("audits of a loop change no bit of it, and cost no message") {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    INFO(ranks);
    double plain = 0;
    std::uint64_t waits = 0;
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
      const Faults none;
      Loop loop{strategy, none};
      const std::uint64_t before = inside(strategy).group().meeting().waits();
      loop.run(0);
      if (rank == 0) {
        plain = loop.weight();
        waits = inside(strategy).group().meeting().waits() - before;
      }
    });
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
      const Faults none;
      Loop loop{strategy, none};
      const std::uint64_t before = inside(strategy).group().meeting().waits();
      loop.run(2);
      CHECK(loop.weight() == plain);
      CHECK(inside(strategy).group().meeting().waits() - before == waits);
      CHECK(loop.computed == 6 * Range::of_rank(shards, ranks, rank).size() + 3);
    });
  }
}

TEST_CASE("an audit of a loop takes digests only of the two shards that a rank compares, and only in its steps") {
  constexpr int ranks = 2, steps = 6, audits = 2;
  gpu_reads = 0;
  sim::run({.ranks = ranks}, [](Strategy& strategy, int rank) {
    const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    Sgd sgd{{.learning_rate = 1}};
    const Tensor gradient = Tensor::scalar(1.0);
    const TensorView on_gpu{gradient.view().data(), {}, DType::f64, DeviceKind::cuda};
    Optimizer::Audit audit{strategy,
                           {.every = steps / audits, .shards = shards},
                           [&](std::int64_t, Optimizer::Audit::Results& results) { results.add("gradient", on_gpu); }};
    for (int step = 0; step < steps; ++step)
      strategy.run([&](ReplicaContext& context) {
        const std::int64_t own = shards / ranks;
        for (std::int64_t shard = own * rank; shard < own * (rank + 1); ++shard) audit.compute(shard);
        sgd.apply_gradients(context, {.gradients = {{gradient, w}}, .own = 1, .audit = &audit});
      });
  });
  CHECK(gpu_reads == ranks * audits * 2);
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
  const std::string misread = found(4, [](int rank, Faults& faults) {
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

TEST_CASE("a loop that goes on after what an audit has found is audited as before") {
  sim::run({.ranks = 4, .report = [](std::string_view) {}}, [](Strategy& strategy, int rank) {
    Faults faults;
    faults.gradient = [rank](std::int64_t step, std::int64_t, double right) {
      return rank == 2 && step < 2 ? right + 1 : right;
    };
    Loop loop{strategy, faults};
    loop.goes_on = true;
    loop.run(1);
    REQUIRE(loop.found.size() == 2);
    for (const std::string& each : loop.found)
      CHECK_THAT(each, Catch::StartsWith("replica 2") && Catch::Contains("of step 1"));
    CHECK(loop.weight() != 2);
  });
}

TEST_CASE("a sum of digests that is wrong blames nobody") {
  const auto largest = [](std::span<const TensorView> parts, const TensorView& result, Stream&) {
    const auto take = [&]<class T>(T) {
      for (std::int64_t i = 0; i < result.count(); ++i) {
        std::vector<T> of_ranks;
        for (const TensorView& part : parts) of_ranks.push_back(part.elements<T>()[static_cast<std::size_t>(i)]);
        result.elements<T>()[static_cast<std::size_t>(i)] = std::ranges::max(of_ranks);
      }
    };
    result.dtype() == DType::f64 ? take(double{}) : take(std::int64_t{});
  };
  const auto body = [](Strategy& strategy, int) {
    const Faults none;
    Loop loop{strategy, none};
    loop.goes_on = true;
    loop.run(6);
    REQUIRE(loop.found.size() == 1);
    CHECK_THAT(loop.found.front(), Catch::StartsWith("step 6 does not pass its audit, but all replicas have the same"));
  };
  sim::run({.ranks = 4,
            .report = [](std::string_view) {},
            .reductions = {.kind = ReductionOptions::Kind::to_one_rank, .accumulate = largest}},
           body);
}

TEST_CASE("ranks whose audits have other options hear of that, and nobody is accused") {
  using Options = Optimizer::Audit::Options;
  const Options options{.every = 2, .shards = 4};
  for (const Options& other : {Options{.every = 2, .shards = 4, .seed = 1}, Options{.every = 4, .shards = 4},
                               Options{.every = 2, .shards = 4, .first_step = 2}}) {
    sim::run({.ranks = 4, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
      const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
      strategy.seal();
      Sgd sgd{{.learning_rate = 1}};
      Optimizer::Audit audit{strategy, rank == 3 ? other : options,
                             [](std::int64_t shard, Optimizer::Audit::Results& results) {
                               results.add("loss", static_cast<double>(shard));
                             }};
      const auto step = [&] {
        strategy.run([&](ReplicaContext& context) {
          audit.compute(rank);
          sgd.apply_gradients(context, {.gradients = {{Tensor::scalar(1.0), w}}, .own = 1, .audit = &audit});
        });
      };
      step();
      CHECK_THROWS_AS(step(), MismatchError);
    });
  }
}

TEST_CASE("an audit of a run that continues names the run's own step") {
  sim::run({.ranks = 2, .report = [](std::string_view) {}}, [](Strategy& strategy, int rank) {
    const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    Sgd sgd{{.learning_rate = 1}};
    Optimizer::Audit audit{strategy,
                           {.every = 100, .shards = 2, .first_step = 99},
                           [rank](std::int64_t, Optimizer::Audit::Results& results) { results.add("loss", rank); }};
    const auto step = [&](ReplicaContext& context) {
      audit.compute(rank);
      sgd.apply_gradients(context, {.gradients = {{Tensor::scalar(1.0), w}}, .own = 1, .audit = &audit});
    };
    CHECK_THROWS_WITH(strategy.run(step), Catch::Contains("of step 100"));
  });
}

TEST_CASE("gradients in memory that the computation of a shard writes to are this rank's in an audited step") {
  const auto rows_after = [](std::int64_t every) {
    std::vector<double> after;
    sim::run({.ranks = 2}, [&](Strategy& strategy, int rank) {
      const MirroredVariable table = strategy.create_variable({.name = "table"}, [] {
        return Tensor::zeros(DType::f64, {4, 1});
      });
      strategy.seal();
      Sgd sgd{{.learning_rate = 1}};
      const Tensor row = Tensor::zeros(DType::f64, {1, 1}), index = Tensor::zeros(DType::i64, {1});
      Optimizer::Audit audit{
          strategy, {.every = every, .shards = 2}, [&](std::int64_t shard, Optimizer::Audit::Results& results) {
            row.view().elements<double>()[0] = static_cast<double>(shard + 1);
            index.view().elements<std::int64_t>()[0] = shard;
            results.add("gradient", row.view());
          }};
      strategy.run([&](ReplicaContext& context) {
        audit.compute(rank);
        row.view().elements<double>()[0] *= 10;  // or the ranks would only have swapped their rows
        sgd.apply_gradients(context,
                            {.gradients = {{IndexedSlices{row, index, {4, 1}}, table}}, .own = 1, .audit = &audit});
      });
      if (rank == 0) after = table.local().to_vector<double>();
    });
    return after;
  };
  CHECK(rows_after(1) == std::vector{-5.0, -10.0, 0.0, 0.0});
  CHECK(rows_after(2) == rows_after(1));
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
    CHECK_THROWS_WITH(Audit(strategy, {.every = 1, .shards = 8, .first_step = -1}, nothing),
                      "audits from step -1 on; expected 0 or more");
    CHECK_THROWS_WITH(Audit(strategy, {.every = 1, .shards = 1}, nothing),
                      "1 shard for 2 ranks; expected one for each or more");
    Audit audit{strategy, {.every = 1, .shards = 4}, nothing};
    CHECK_THROWS_WITH(audit.compute(2 - 2 * rank), Catch::Contains("expected " + std::to_string(2 * rank) + " to "));
    CHECK_THROWS_WITH(audit.compute(2 * rank), Catch::Contains("expected the same, and one at least"));

    const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    Sgd sgd{{.learning_rate = 1}};
    const auto step = [&](Audit& of) {
      strategy.run([&](ReplicaContext& context) {
        sgd.apply_gradients(context, {.gradients = {{Tensor::scalar(1.0), w}}, .own = 1, .audit = &of});
      });
    };
    CHECK_THROWS_WITH(step(audit), Catch::Contains("expected Audit::compute for each shard of the rank before"));
    // Ranks that add different results hear of it before anything is compared.
    Audit other{strategy, {.every = 1, .shards = 2}, [rank](std::int64_t, Audit::Results& results) {
                  results.add(rank == 0 ? "loss" : "gain", 1);
                }};
    other.compute(rank);
    CHECK_THROWS_AS(step(other), MismatchError);
    Audit late{strategy, {.every = 1, .shards = 2}, [rank](std::int64_t, Audit::Results& results) {
                 for (int i = 0; i <= rank; ++i) results.add("loss", 1);
               }};
    CHECK_THROWS_WITH(strategy.run([&](ReplicaContext& context) {
      const auto compute = [&](Optimizer::AgreedStep& agreed) {
        late.compute(rank);
        agreed.ready(w);
        return Optimizer::StepSums{.samples = 1};
      };
      const std::vector<Optimizer::Gradient> gradients{{Tensor::scalar(1.0), w}};
      sgd.apply_gradients(context, {.gradients = gradients, .computation = {compute}, .audit = &late});
    }),
                      Catch::Contains("have results of other names; here [loss"));
    CHECK(w.local().to_vector<double>()[0] == 1);
  });
}
