// Training on a GPU, on one that is simulated (tests/support/simulated_gpu.cpp) with the reference's arithmetic:
// whatever is computed must be what the CPU computes, or something was read too early or written too late.
#include <cstdlib>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

/// As long as it lives, jobs run the program with the simulated GPU.
class OnSimulatedGpu {
 public:
  OnSimulatedGpu() : plain_{std::getenv("LOCKSTEP_TRAIN")} {
    setenv("LOCKSTEP_TRAIN", std::getenv("LOCKSTEP_TRAIN_SIMULATED_GPU"), 1);
  }
  OnSimulatedGpu(const OnSimulatedGpu&) = delete;
  ~OnSimulatedGpu() { setenv("LOCKSTEP_TRAIN", plain_.c_str(), 1); }

 private:
  std::string plain_;
};

Trained on_gpu(int ranks, const Arguments& arguments) {
  const OnSimulatedGpu gpu;
  Trained trained = train(ranks, arguments + Arguments{"--device", "cuda", "--allow-shared-gpu"});
  CHECK(trained.result["device"] == "cuda:0");
  return trained;
}

Trained on_cpu(int ranks, const Arguments& arguments) {
  return train(ranks, arguments + Arguments{"--device", "cpu", "--kernels", "reference"});
}

void check_equal(const Trained& one, const Trained& other) {
  CHECK(one.digest() == other.digest());
  CHECK(without_times(one.metrics) == without_times(other.metrics));
}

// 250 leaves shards of 31 and 32 samples, and an epoch of 6,000 images whole.
const Arguments run{"--steps", "26", "--global-batch", "250", "--hidden", "40,20", "--eval-every", "10"};

}  // namespace

TEST_CASE("with eight shards, 1, 2 and 4 ranks with GPUs have the bits of a CPU", "[B-19]") {
  const Arguments shards = run + Arguments{"--shards", "8"};
  const Trained cpu = on_cpu(1, shards);
  for (const int ranks : {1, 2, 4}) {
    INFO(ranks << " ranks");
    const Trained gpu = on_gpu(ranks, shards);
    CHECK(gpu.result["shards"] == 8);
    check_equal(gpu, cpu);
  }
}

TEST_CASE("by itself a GPU takes one shard a rank, and NCCL's order of sums", "[D-34]") {
  const Trained one = on_gpu(1, run);
  CHECK(one.result["shards"] == 1);
  check_equal(one, on_cpu(1, run + Arguments{"--shards", "ranks"}));
  // A sum of two is the same in every order.
  const Trained two = on_gpu(2, run);
  CHECK(two.result["shards"] == 2);
  check_equal(two, on_cpu(2, run + Arguments{"--shards", "ranks"}));
}

TEST_CASE("sgd, f64 and empty shards work there too") {
  const Arguments arguments{"--steps", "10",  "--global-batch", "5",   "--hidden",        "9",    "--shards",     "8",
                            "--dtype", "f64", "--optimizer",    "sgd", "--learning-rate", "0.02", "--eval-every", "7"};
  check_equal(on_gpu(2, arguments), on_cpu(1, arguments));
}

TEST_CASE("AdamW and momentum with clipping, decay and micro-batches work there too") {
  const std::string optimizer = GENERATE("adamw", "momentum");
  const Arguments arguments{"--steps",      "10", "--global-batch", "90",      "--hidden",    "9",
                            "--shards",     "8",  "--optimizer",    optimizer, "--clip-norm", "0.5",
                            "--accumulate", "3",  "--weight-decay", "0.1",     "--schedule",  "cosine"};
  check_equal(on_gpu(2, arguments), on_cpu(1, arguments));
}

TEST_CASE("a language model is refused on a GPU, which has no kernels for it") {
  const OnSimulatedGpu gpu;
  const TemporaryDirectory folder;
  check_refused(run_refused(1, {"--model", "gpt", "--data", folder.write("text", small_text(2000)), "--steps", "1"}),
                {"a gpt cannot be computed with the simulated kernels", "expected those of the CPU"});
}

TEST_CASE("a bit that is flipped in a GPU's memory is found there") {
  const OnSimulatedGpu gpu;
  const Outcome outcome = run_refused(
      3,
      short_run() + Arguments{"--device", "cuda", "--allow-shared-gpu", "--optimizer", "adamw", "--attest-every", "2"},
      {.environment = {{"LOCKSTEP_FAULT", "flip:1:0"}}});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 6);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 ("));
  CHECK_THAT(lines.front(), Catch::EndsWith(") differs from the others in variable 'dense_1/weight'"));
}

TEST_CASE("where one rank finds no GPU, auto is the CPU for all of them, and they are warned once", "[D-30][E-15]") {
  const OnSimulatedGpu gpu;
  const CommandOptions hidden_from_rank_1{.environment = {{"LOCKSTEP_SIMULATED_GPUS", "3,0,3"}}};
  const Outcome outcome = run_job(3, short_run(), hidden_from_rank_1);
  CHECK(outcome.exit_code == 0);
  CHECK(Json::parse(outcome.out)["device"] == "cpu");
  const auto warned = [&] { return lines_starting_with(outcome.err, "[rank 0] warning"); };
  CHECK(warned().size() == 1);
  CHECK_THAT(outcome.err, Catch::Contains("replica 1 (worker:1, host ") &&
                              Catch::Contains(") finds no GPU, though others do: all ranks run on the CPU"));
  check_refused(run_refused(3, short_run() + Arguments{"--device", "cuda"}, hidden_from_rank_1),
                {"--device cuda: this node has no GPU that can be used"});
}

TEST_CASE("the GPUs of a node that no rank uses are logged once", "[E-16]") {
  const OnSimulatedGpu gpu;
  const auto said = [](const char* gpus, int ranks) {
    const Outcome outcome = run_job(ranks, short_run(), {.environment = {{"LOCKSTEP_SIMULATED_GPUS", gpus}}});
    CHECK(outcome.exit_code == 0);
    return outcome.err;
  };
  const std::string told = "GPUs of this node that no rank uses: ";
  const std::string four = said("4", 2);
  CHECK_THAT(four, Catch::Contains("[rank 0]") && Catch::Contains(told + "2, 3\n"));
  CHECK(four.find(told) == four.rfind(told));
  CHECK_THAT(said("2", 2), !Catch::Contains(told));
}

TEST_CASE("auto takes a GPU where there is one; more ranks than GPUs need leave to share it", "[D-5][D-28]") {
  const OnSimulatedGpu gpu;
  CHECK(train(1, {"--steps", "1", "--hidden", "4"}).result["device"] == "cuda:0");
  check_refused(run_refused(2, short_run()),
                {"--device auto: 2 ranks on this node, which has 1 GPU; expected one for each rank, or --device cpu"});
  check_refused(run_refused(1, short_run() + Arguments{"--kernels", "reference"}),
                {"the reference and onednn kernels run on the CPU, but the device is cuda"});
}
