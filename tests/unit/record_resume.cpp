// Where a run of `fit` begins after a checkpoint was restored: where that was saved, or it is refused.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "fit_models.hpp"
#include "support/child_process.hpp"
#include "support/file_faults.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"

namespace lockstep::test::record_resume_cases {

namespace fs = std::filesystem;

namespace {

std::vector<double> sums_of_pixels(std::size_t, const SampleBatch& batch) {
  std::vector<double> sums(3);
  const auto pixels = batch.inputs.view().elements<double>();
  for (std::size_t i = 0; i < pixels.size(); ++i) sums[i % 3] += pixels[i];
  return sums;
}

/// A program on one rank: its samples, its model and its optimizer.
struct Program {
  explicit Program(Strategy& its) : strategy{its} {
    strategy.seal();
    sgd.prepare(strategy, model.variables());
  }

  FitResult fit(std::int64_t steps, std::optional<Observer::State> start = {}, Observer* observer = nullptr) {
    Observer nobody;
    FitOptions options{.global_batch = 2, .steps = steps, .shards = 2, .start = std::move(start)};
    return lockstep::fit(strategy, model, sgd, {samples, samples}, options, observer ? *observer : nobody);
  }
  CheckpointManager manager(const fs::path& folder) const {
    return CheckpointManager{strategy, {.folder = folder, .every = 2, .keep = 9}};
  }
  std::vector<double> weights() const { return model.variables().front().local().to_vector<double>(); }

  Strategy& strategy;
  ImageData data = images(7);
  ImageSamples samples{data.train, DType::f64};
  ScriptedModel model{strategy, 3, sums_of_pixels};
  Sgd sgd{{.learning_rate = LearningRate{{.peak = 0.5, .decay_steps = 20}}, .momentum = 0.5}};
};

void run(const std::function<void(Program&)>& body) {
  sim::run({.ranks = 1, .report = [](std::string_view) {}}, [&](Strategy& strategy, int) {
    Program program{strategy};
    body(program);
  });
}

/// Saves after each step for which a checkpoint is due, without a word about where `fit` is.
struct Saver final : Observer {
  explicit Saver(CheckpointManager& its, std::int64_t steps_before = 0) : checkpoints{its}, before{steps_before} {}
  void on_step_end(const State& state) override { checkpoints.after_step(before + state.steps); }
  CheckpointManager& checkpoints;
  std::int64_t before;
};

std::vector<double> weights_after(std::int64_t steps) {
  std::vector<double> weights;
  run([&](Program& program) {
    (void)program.fit(steps);
    weights = program.weights();
  });
  return weights;
}

void train_with_checkpoints(const fs::path& folder, std::int64_t steps) {
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder);
    Saver saver{checkpoints};
    (void)program.fit(steps, {}, &saver);
    checkpoints.finish();
  });
}

}  // namespace

TEST_CASE("fit goes on from the checkpoint that was restored, without a word of the program") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  train_with_checkpoints(folder.path(), 5);
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    REQUIRE(checkpoints.resume_latest()->step == 4);
    const FitResult result = program.fit(9);
    CHECK(program.model.seen.size() == 2 * 5);  // of two shards
    CHECK(result.steps == 9);
    CHECK(program.weights() == weights_after(9));
  });
  // Also where the checkpoint is saved in another method of the observer, and once more after a resume.
  struct Early final : Observer {
    explicit Early(CheckpointManager& its) : checkpoints{its} {}
    void on_step(const Step& report) override { checkpoints.after_step(report.step); }
    CheckpointManager& checkpoints;
  };
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    REQUIRE(checkpoints.resume_latest()->step == 4);
    Early saver{checkpoints};
    (void)program.fit(7, {}, &saver);
    checkpoints.finish();
  });
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    REQUIRE(checkpoints.resume_latest()->step == 6);
    (void)program.fit(9);
    CHECK(program.weights() == weights_after(9));
  });
}

TEST_CASE("no older checkpoint takes the place of one that cannot be read") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  train_with_checkpoints(folder.path(), 5);
  int failures = 0;
  for_each_file_fault("step-4/", EIO, [&](std::int64_t call) {
    CAPTURE(call);
    run([&](Program& program) {
      CheckpointManager checkpoints = program.manager(folder.path());
      try {
        const std::int64_t step = checkpoints.resume_latest().value().step;
        CHECK(step == 4);
      } catch (const CheckpointError& error) {
        ++failures;
        CHECK_THAT(error.what(), Catch::Contains("/step-4/") && Catch::Contains("Input/output error"));
      }
    });
  });
  CHECK(failures > 5);
}

TEST_CASE("a checkpoint without the state of an optimizer is passed over, and a warning says so") {
  const TemporaryDirectory folder;
  train_with_checkpoints(folder.path(), 5);
  sim::run({.ranks = 1, .report = [](std::string_view) {}}, [&](Strategy& strategy, int) {
    ScriptedModel model{strategy, 3, sums_of_pixels};
    strategy.seal();
    CheckpointManager checkpoints{strategy, {.folder = folder.path(), .keep = 9}};
    checkpoints.save(6);
    checkpoints.finish();
  });
  CapturedStderr captured;
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    CHECK(checkpoints.resume_latest()->step == 4);
  });
  CHECK_THAT(captured.text(), Catch::Contains("warning: passed over: checkpoint " + folder.path().string() +
                                              "/step-6/optimizer.safetensors: has no entry "));
}

TEST_CASE("fit that would train other steps than the restored checkpoint's is refused by its name") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  train_with_checkpoints(folder.path(), 4);
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    (void)checkpoints.resume_latest();
    CHECK_THROWS_WITH(program.fit(9, Observer::State{.steps = 2}),
                      Catch::Contains("FitOptions::start has made 2 steps, but the restored checkpoint ") &&
                          Catch::EndsWith("step-4 has made 4; expected the same number, or no start"));
    CHECK_THROWS_AS(program.fit(9, Observer::State{}), InvalidArgument);
    CHECK_THROWS_WITH(program.fit(3), "steps: 3, of which 4 are made; expected at least as many");
    (void)program.fit(9, Observer::State{.steps = 4});
    CHECK(program.weights() == weights_after(9));
  });
  // A loop of the program's own saved these: nothing is known of a run of fit.
  run([&](Program& program) {
    const TemporaryDirectory own;
    CheckpointManager checkpoints = program.manager(own.path());
    checkpoints.save(6);
    checkpoints.finish();
    (void)checkpoints.resume_latest();
    CHECK_THROWS_WITH(program.fit(9), Catch::Contains("step-6 is of step 6 and does not say where fit "
                                                      "continues; expected FitOptions::start, or load_weights"));
    CHECK(program.model.seen.empty());
    (void)program.fit(9, Observer::State{.steps = 6});
    CHECK(program.model.seen.size() == 2 * 3);
  });
}

TEST_CASE("fit after restore_checkpoint is told where it goes on, and begins anew with weights") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "c", before = folder.path() / "before";
  run([&](Program& program) {
    save_checkpoint(program.strategy, before);
    (void)program.fit(4);
    save_checkpoint(program.strategy, file);
    save_weights(program.strategy, folder.path() / "w");
  });
  run([&](Program& program) {
    restore_checkpoint(program.strategy, file);
    CHECK_THROWS_WITH(program.fit(9), Catch::Contains("/c is of step 4 and does not say"));
    (void)program.fit(9, Observer::State{.steps = 4});
    CHECK(program.weights() == weights_after(9));
  });
  run([&](Program& program) {
    restore_checkpoint(program.strategy, before);
    (void)program.fit(9);
    CHECK(program.weights() == weights_after(9));
    (void)program.fit(2);  // another run of the same program
    CHECK(program.model.seen.size() == 2 * 11);
  });
  run([&](Program& program) {
    (void)load_weights(program.strategy, folder.path() / "w");
    (void)program.fit(3);
    CHECK(program.model.seen.size() == 2 * 3);
  });
  // What the program has trained by itself since is not the checkpoint's any more.
  run([&](Program& program) {
    restore_checkpoint(program.strategy, file);
    program.strategy.run([&](ReplicaContext& context) {
      program.sgd.apply_gradients(context, {{Tensor::zeros(DType::f64, {3}), program.model.variables().front()}});
    });
    (void)program.fit(3);
    CHECK(program.model.seen.size() == 2 * 3);
  });
}

TEST_CASE("the second fit of a program goes on as the second, and the first is told that it is not meant") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  std::vector<double> whole;
  const auto both = [&](Program& program, CheckpointManager& checkpoints, std::optional<Observer::State> first) {
    Saver of_first{checkpoints}, of_second{checkpoints, 4};
    (void)program.fit(4, std::move(first), &of_first);
    (void)program.fit(6, {}, &of_second);
    checkpoints.finish();
  };
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    both(program, checkpoints, {});
    whole = program.weights();
  });
  fs::remove_all(folder.path() / "step-10");
  run([&](Program& program) {
    CheckpointManager checkpoints = program.manager(folder.path());
    REQUIRE(checkpoints.resume_latest()->step == 8);
    CHECK_THROWS_WITH(
        both(program, checkpoints, {}),
        Catch::Contains("step-8 was saved in call 2 of fit, and this is call 1; expected FitOptions::start"));
    both(program, checkpoints, Observer::State{.steps = 4});  // which is done
    CHECK(program.model.seen.size() == 2 * 2);
    CHECK(program.weights() == whole);
  });
}

TEST_CASE("a state of fit that no run can have had is refused") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const auto told = [&](const std::string& state, FitOptions::OnDivergence on_divergence,
                        std::optional<Observer::State> start = {}) {
    std::string text = "nothing";
    run([&](Program& program) {
      CheckpointManager checkpoints = program.manager(folder.path());
      checkpoints.save(2, {{"fit", state}});
      checkpoints.finish();
      (void)checkpoints.resume_latest();
      Observer nobody;
      const FitOptions options{
          .global_batch = 2, .steps = 3, .shards = 2, .on_divergence = on_divergence, .start = std::move(start)};
      try {
        (void)lockstep::fit(program.strategy, program.model, program.sgd, {program.samples, program.samples}, options,
                            nobody);
      } catch (const CheckpointError& error) {
        text = error.what();
      }
    });
    return text;
  };
  using enum FitOptions::OnDivergence;
  for (const char* state : {"-2", "2 1 -1", "2 1 nan", "2 1 inf", "", "x"})
    CHECK_THAT(told(state, stop), Catch::Contains("step-2: its state of fit is not the state of a training: '"));
  CHECK_THAT(told("2 nan 1", stop), Catch::EndsWith("step-2: its state of fit has a step with the loss nan"));
  CHECK(told("2 nan 1", proceed) == "nothing");
  CHECK(told("2 1.5 1", stop) == "nothing");
  for (const char* state : {"x", "2 nan 1"}) CHECK(told(state, stop, Observer::State{.steps = 2}) == "nothing");
  for (const char* before : {"x", "", "1x", "-1"})
    run([&](Program& program) {
      CheckpointManager checkpoints = program.manager(folder.path());
      checkpoints.save(2, {{"fit", "2"}, {"fits before", before}});
      checkpoints.finish();
      CHECK_THROWS_WITH(checkpoints.resume_latest(),
                        Catch::EndsWith(fmt::format("step-2: its state has '{}' as \"fits before\"; expected how "
                                                    "many calls of fit there were",
                                                    before)));
    });
  run([&](Program& program) {
    CHECK_THROWS_WITH(program.fit(3, Observer::State{.steps = -1}),
                      "FitOptions::start has made -1 steps; expected the state of a run");
    CHECK_THROWS_AS(
        program.fit(3, Observer::State{.steps = 1, .recent = {{1, std::numeric_limits<double>::quiet_NaN()}}}),
        InvalidArgument);
  });
}

}  // namespace lockstep::test::record_resume_cases
