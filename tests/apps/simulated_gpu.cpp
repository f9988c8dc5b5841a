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

TEST_CASE("with eight shards, 1, 2 and 5 ranks with GPUs have the bits of a CPU", "[B-19]") {
  const Arguments shards = run + Arguments{"--shards", "8"};
  const Trained cpu = on_cpu(1, shards);
  for (const int ranks : {1, 2, 5}) {
    INFO(ranks << " ranks");
    const Trained gpu = on_gpu(ranks, shards + Arguments{"--prefetch", std::to_string(ranks - 1)});
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
  check_equal(on_gpu(2, arguments + Arguments{"--prefetch", "2"}), on_cpu(1, arguments));
}

TEST_CASE("a language model with shards has the bits of a CPU there too", "[B-19]") {
  const TemporaryDirectory folder;
  const Arguments gpt = small_gpt(folder) + Arguments{"--steps", "5", "--global-batch", "12", "--shards", "4"};
  const Trained cpu = on_cpu(1, gpt);
  for (const int ranks : {1, 2}) check_equal(on_gpu(ranks, gpt), cpu);
}

TEST_CASE("a model in bf16 has the bits of a CPU there too, and auto takes the GPU for it", "[B-19]") {
  const TemporaryDirectory folder;
  const Arguments bf16{"--precision", "bf16", "--shards", "4", "--steps", "5"};
  // Optimizers round the weights for the next step; the evaluation and clipping read more.
  const Arguments mlp =
      bf16 + Arguments{"--global-batch", "30", "--hidden", "9", "--eval-every", "2", "--clip-norm", "1"};
  check_equal(on_gpu(2, mlp), on_cpu(1, mlp));
  const Arguments gpt = bf16 + small_gpt(folder) + Arguments{"--optimizer", "adamw", "--global-batch", "12"};
  check_equal(on_gpu(2, gpt), on_cpu(1, gpt));
  const OnSimulatedGpu gpu;
  CHECK(train(1, {"--precision", "bf16", "--steps", "1", "--hidden", "4"}).result["device"] == "cuda:0");
}

TEST_CASE("a convnet has the bits of a CPU there too, and auto takes the GPU for it") {
  const Arguments convnet{"--model", "convnet", "--global-batch", "6", "--shards", "4",
                          "--steps", "2",       "--eval-samples", "8"};
  const Arguments dropout{"--dropout", "0.25"};
  for (const char* const norm : {"--batch-norm", "--sync-batch-norm"})
    check_equal(on_gpu(2, convnet + dropout + Arguments{norm}), on_cpu(1, convnet + dropout + Arguments{norm}));
  const Arguments bf16{"--precision", "bf16", "--accumulate", "2"};
  check_equal(on_gpu(2, convnet + bf16), on_cpu(1, convnet + bf16));
  const OnSimulatedGpu gpu;
  CHECK(train(1, convnet).result["device"] == "cuda:0");
}

TEST_CASE("a model must fit into the memory of the GPU that it is trained on") {
  const OnSimulatedGpu gpu;
  const auto mlp = [](const char* hidden) {
    return Arguments{"--data", small_data(), "--steps", "1", "--hidden", hidden};
  };
  const CommandOptions small{.environment = {{"LOCKSTEP_SIMULATED_GPU_BYTES", "4194304"}}};
  check_refused(run_refused(1, mlp("1000"), small), {"--hidden 1000: a model of 795010 weights needs ",
                                                     " and this GPU has 0.00 GiB; expected smaller layers"});
  CHECK(run_job(1, mlp("100"), small).exit_code == 0);
  CHECK(run_job(1, mlp("1000") + Arguments{"--device", "cpu"}, small).exit_code == 0);
  // 100 images of a shard need 51 MB, and 66 MB more for their patches, of 64 MiB.
  const Arguments convnet{"--data", small_data(),     "--model", "convnet",  "--steps",
                          "1",      "--global-batch", "100",     "--shards", "1"};
  check_refused(run_refused(1, convnet, {.environment = {{"LOCKSTEP_SIMULATED_GPU_BYTES", "67108864"}}}),
                {"--model convnet for images of 28 x 28: a model of 1199882 weights needs 0.11 GiB ",
                 " and this GPU has 0.06 GiB; expected smaller images"});
}

TEST_CASE("ranks that each see a GPU of their own take it; those that see the same need leave to share it", "[D-5]") {
  const OnSimulatedGpu gpu;
  const auto seeing = [](const char* gpus) {
    return CommandOptions{.environment = {{"LOCKSTEP_SIMULATED_GPUS", gpus}}};
  };
  const Arguments on_gpu = short_run() + Arguments{"--device", "cuda"};
  CHECK(run_job(2, on_gpu, seeing("a,b")).exit_code == 0);
  check_refused(run_refused(2, on_gpu, seeing("a,a")),
                {"--device cuda: 2 ranks on this node, which has 1 GPU; expected one for each rank, or --device cpu"});
  check_refused(run_refused(2, on_gpu + Arguments{"--compress-gradients", "bf16"}, seeing("a,b")),
                {"compression of gradients on GPUs, which NCCL sends as they are: expected ranks on the host"});
  const Outcome outcome = run_job(2, on_gpu + Arguments{"--allow-shared-gpu"}, seeing("a,a"));
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, Catch::Contains("[rank 0] warning") && Catch::Contains("share a GPU and take turns"));
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
  CHECK_THAT(lines.front(), Catch::Contains(") differs from the others in variable 'dense_1/weight' after step 1: "));
}

namespace {

/// Trains with faults `kind` at operations of rank 1's GPU, from the first to one before the last: the job ends with
/// `exit_code`, and one line names the rank.
void check_faults(const std::string& kind, int faults, int exit_code, const std::string& says) {
  const OnSimulatedGpu gpu;
  const TemporaryDirectory folder;
  const auto train_with = [&](const std::string& fault) {
    const Arguments arguments{"--steps",      "2", "--hidden",       "4", "--shards", "2",   "--global-batch", "8",
                              "--eval-every", "1", "--attest-every", "1", "--device", "cuda"};
    const Arguments files{"--allow-shared-gpu",  "--checkpoint-every", "1", "--checkpoint-dir",
                          folder.path() / fault, "--stall-timeout",    "2"};
    return run_refused(2, Arguments{"--data", small_data()} + arguments + files,
                       {.environment = {{"LOCKSTEP_SIMULATED_GPU_FAULT", fault}}});
  };
  const Outcome whole = train_with("fail:1:0");
  REQUIRE(whole.exit_code == 0);
  const std::string count = "simulated GPU: ";
  const int operations = std::stoi(whole.err.substr(whole.err.find(count) + count.size()));
  REQUIRE(operations > 100);
  for (int i = 0; i < faults; ++i) {
    const std::string fault = kind + ":1:" + std::to_string(1 + i * (operations - 20) / faults);
    const Outcome outcome = train_with(fault);
    INFO(fault << " of " << operations << ": " << outcome.err);
    CHECK(outcome.exit_code == exit_code);
    const auto lines = lines_starting_with(outcome.err, "lockstep:");
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (") && Catch::Contains(says));
  }
}

int device_faults(int usual, int share) {
  const char* const more = std::getenv("LOCKSTEP_DEVICE_FAULTS");
  return more ? std::stoi(more) / share : usual;
}

}  // namespace

TEST_CASE("a GPU that fails is that rank's failure, in whichever of its operations, and the job ends with it",
          "[long]") {
  check_faults("fail", device_faults(4, 1), 4, ") failed: work enqueued earlier on the simulated GPU failed");
}

TEST_CASE("a GPU that hangs is that rank's failure, in whichever of its operations, and the job ends with it",
          "[long]") {
  // Who waits for it may say that it is late before it has given up itself.
  check_faults("hang", device_faults(2, 4), 5, " 2 s");
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
                              Catch::Contains(") finds no GPU, though others do: all ranks run on the CPU "
                                              "(LOCKSTEP_SIMULATED_GPUS names none)"));
  check_refused(run_refused(3, short_run() + Arguments{"--device", "cuda"}, hidden_from_rank_1),
                {"--device cuda: of 3 ranks on this node, 1 sees no GPU that can be used: LOCKSTEP_SIMULATED_GPUS "
                 "names none; expected"});
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

TEST_CASE("ranks take the GPUs that --devices lists, and it is given without --device", "[D-36]") {
  const OnSimulatedGpu gpu;
  const CommandOptions four{.environment = {{"LOCKSTEP_SIMULATED_GPUS", "4"}}};
  const Outcome outcome = run_job(2, short_run() + Arguments{"--devices", "3,GPU-gpu1"}, four);
  CHECK(outcome.exit_code == 0);
  CHECK(Json::parse(outcome.out)["device"] == "cuda:3");
  CHECK_THAT(outcome.err, Catch::Contains("GPUs of this node that no rank uses: 0, 2\n"));
  check_refused(run_refused(2, short_run() + Arguments{"--devices", "0,4"}, four),
                {"--devices: GPU:4 is none of 4 GPUs that a rank of this node sees"});
  check_refused(run_refused(2, short_run() + Arguments{"--devices", "0,1", "--device", "cuda"}, four),
                {"--device cuda and --devices were both given: expected at most one of the two"});
}

TEST_CASE("auto takes a GPU where there is one; more ranks than GPUs need leave to share it", "[D-5][D-28]") {
  const OnSimulatedGpu gpu;
  CHECK(train(1, {"--steps", "1", "--hidden", "4"}).result["device"] == "cuda:0");
  check_refused(run_refused(2, short_run()),
                {"--device auto: 2 ranks on this node, which has 1 GPU; expected one for each rank, or --device cpu"});
  check_refused(run_refused(1, short_run() + Arguments{"--kernels", "reference"}),
                {"the reference and onednn kernels run on the CPU, but the device is cuda"});
}
