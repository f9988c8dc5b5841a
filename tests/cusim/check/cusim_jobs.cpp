// Training on GPUs made of CPUs, as jobs: what each fault of a GPU ends in, that the bits do not depend on the number
// of ranks, and how much a step asks of the GPU.
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/labelled_files.hpp"
#include "support/token_file.hpp"
#include "support/training_job.hpp"

using namespace lockstep::test;
using Catch::Contains;
using Catch::StartsWith;

namespace {

const Arguments small{"--device", "cuda", "--hidden",       "4", "--global-batch", "8",
                      "--steps",  "3",    "--eval-samples", "8"};

/// What a job must end in if a GPU, or NCCL on it, fails or hangs.
struct Ending {
  std::string fault;  ///< of the last rank, without that
  int exit_code;
  std::string begin;  ///< of the only line
  std::string says;
  int ranks = 2;
  std::string patience_ms = "50";  ///< after which the GPU works by itself
};

Outcome run_with(const std::string& fault, int ranks = 2, const std::string& patience_ms = "50") {
  // Jobs that hang, or whose NCCL fails to start, wait for this timeout. All others must stay below it, even on a busy
  // machine.
  const bool hangs = fault.find("kind=hang") != fault.npos || fault.find("ncclCommInitRankConfig") != fault.npos;
  return run_refused(ranks,
                     Arguments{"--data", small_data()} + small +
                         Arguments{"--shards", ranks == 4 ? "4" : "2", "--stall-timeout", hangs ? "3" : "60"},
                     {.environment = {{"CUSIM_DEVICES", std::to_string(ranks)},
                                      {"CUSIM_PATIENCE_MS", patience_ms},
                                      {"CUSIM_FAULTS", fmt::format("rank={} {}", ranks - 1, fault)}}});
}

void check(const Ending& ending) {
  const Outcome outcome = run_with(ending.fault, ending.ranks, ending.patience_ms);
  INFO(ending.fault << "\n" << outcome.err);
  CHECK(outcome.exit_code == ending.exit_code);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), StartsWith(ending.begin) && Contains(ending.says));
  CHECK(lines_starting_with(outcome.err, "cusim:").empty());
  CHECK_THAT(outcome.err, !Contains("warning:"));
  CHECK(processes_left(outcome.marker).empty());
}

const std::string rank_1 = "lockstep: replica 1 (worker:1, host ";
const std::string late_work = ") failed: work enqueued earlier on cuda:1 of rank 1 failed: an illegal memory access";

std::map<std::string, double> counts_of(const Outcome& outcome, const std::filesystem::path& file, int rank) {
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  std::istringstream lines{read_file(file)};
  for (std::string line; std::getline(lines, line);)
    if (const Json counts = Json::parse(line); counts["rank"] == rank)
      return counts.get<std::map<std::string, double>>();
  FAIL("no counts of rank " << rank);
  return {};
}

/// How often the last rank did what in one more step of the model that the arguments say.
std::map<std::string, double> in_a_step(int ranks, const std::string& shards, const Arguments& model,
                                        bool traced = false) {
  const TemporaryDirectory folder;
  std::map<std::string, double> counts[2];
  for (const int more : {0, 1}) {
    const std::filesystem::path file = folder.path() / std::to_string(more);
    Arguments arguments =
        model + Arguments{"--device", "cuda", "--shards", shards, "--steps", more ? "6" : "3", "--eval-samples", "8"};
    if (traced) arguments = arguments + Arguments{"--run-dir", file.string() + "-run", "--trace"};
    const Outcome outcome = run_job(
        ranks, arguments,
        {.environment = {{"CUSIM_DEVICES", std::to_string(ranks)}, {"CUSIM_COUNTS", file}, {"CUSIM_CHECKS", "none"}}});
    counts[more] = counts_of(outcome, file, ranks - 1);
  }
  for (auto& [name, number] : counts[1]) number = (number - counts[0][name]) / 3;
  return counts[1];
}

Trained on_gpus(int ranks, const Arguments& arguments) {
  Environment environment{{"CUSIM_DEVICES", std::to_string(ranks)}};
  // The kernels of more ranks are those of one, on fewer shards.
  if (ranks > 1) environment["CUSIM_CHECKS"] = "none";
  return train(ranks, arguments + Arguments{"--device", "cuda", "--eval-samples", "8"}, {.environment = environment});
}

/// On a GPU, on so many others, and on a CPU. `nearness` is how much of its loss the CPU's may differ by.
void check_on(const std::vector<int>& numbers, const Arguments& arguments, double nearness) {
  const Trained alone = on_gpus(1, arguments);
  for (const int ranks : numbers) {
    const Trained trained = on_gpus(ranks, arguments);
    CHECK(trained.digest() == alone.digest());
    CHECK(trained.result["train_loss"] == alone.result["train_loss"]);
  }
  const Trained cpu = train(1, arguments + Arguments{"--device", "cpu", "--kernels", "reference"});
  const double expected = cpu.result["train_loss"];
  CHECK(std::abs(alone.result["train_loss"].get<double>() - expected) <= nearness * expected);
}

// The largest sums here have 784 terms, and rounding in another order changes one by less than 784 half units in the
// last place of f32, 2^-24 each: 5e-5 of it. A few steps hardly amplify that.
constexpr double f32_nearness = 5e-5;

// Where such a sum lies in the middle between two numbers of bf16, another order may round it to the other one, 2^-8
// away. That happens to less than one in a thousand of the activations that a loss is made of.
constexpr double bf16_nearness = 0x1p-12;

Arguments shards_of_gpt(const TemporaryDirectory& folder) {
  return small_gpt(folder) + Arguments{"--steps", "3", "--global-batch", "8", "--shards", "4"};
}

/// Of tokens, so many that rows of logits have padding on a GPU.
Arguments shards_of_token_gpt(const TemporaryDirectory& folder) {
  std::vector<std::uint16_t> tokens;
  for (std::uint32_t i = 0; i < 2000; ++i) tokens.push_back(static_cast<std::uint16_t>((i * i + i / 7) % 77));
  return {"--model",        "gpt", "--data",   folder.write("tokens", token_file(tokens)),
          "--vocabulary",   "77",  "--layers", "2",
          "--embed",        "16",  "--heads",  "2",
          "--context",      "8",   "--steps",  "3",
          "--global-batch", "8",   "--shards", "4"};
}

Arguments small_mlp_options() {
  return {"--data", small_data(), "--hidden", "8", "--global-batch", "16"};
}

Arguments tiny_gpt(const TemporaryDirectory& folder) {
  return {"--model",        "gpt", "--data",  folder.write("text", small_text(4000)),
          "--layers",       "1",   "--embed", "8",
          "--context",      "8",   "--heads", "2",
          "--global-batch", "8"};
}

/// Of images of 9 x 8 positions, in three classes: so small that a simulated GPU takes no second for a step.
class SmallImages {
 public:
  SmallImages() {
    for (const std::string part : {"train", "test"}) {
      const int count = part == "train" ? 96 : 8;
      std::vector<std::uint8_t> pixels;
      std::vector<std::int32_t> labels;
      for (int i = 0; i < count * positions; ++i) pixels.push_back(static_cast<std::uint8_t>((i * i + i / 7) % 251));
      for (int i = 0; i < count; ++i) labels.push_back(i % 3);
      const std::string number = std::to_string(count);
      folder_.write("x_" + part + ".npy", npy("|u1", number + ", 9, 8", pixels));
      folder_.write("y_" + part + ".npy", npy("<i4", number + ",", labels));
    }
  }

  Arguments convnet() const { return {"--model", "convnet", "--data", folder_.path(), "--global-batch", "10"}; }

 private:
  static constexpr int positions = 72;
  TemporaryDirectory folder_;
};

const Arguments norm_and_dropout{"--batch-norm", "--dropout", "0.25"};
const Arguments few_shards{"--shards", "4", "--steps", "3"};

/// What it counts in a step.
std::map<std::string, double> check_step(int ranks, const std::string& shards, const Arguments& model) {
  const auto counts = in_a_step(ranks, shards, model);
  CAPTURE(ranks, shards, model);
  CHECK(counts.at("host waits") == 1);
  CHECK(counts.at("allocations") == 0);
  return counts;
}

}  // namespace

TEST_CASE("a launch that fails is told with its GPU") {
  check({"call=cudaLaunchKernelExC nth=20 kind=error", 4, rank_1, "failed on cuda:1 of rank 1: unknown error"});
}

TEST_CASE("the memory of a copy outlives it, though the event after it cannot be made") {
  check({"call=cudaEventCreateWithFlags nth=4 kind=error", 1,
         "lockstep: error: cudaEventCreateWithFlags failed on cuda:0", "", 1, "-1"});
}

TEST_CASE("work that fails is not blamed on the call that finds it") {
  check({"call=cudaLaunchKernelExC nth=20 kind=late", 4, rank_1, late_work});
}

TEST_CASE("work that fails is told once, though several calls find it") {
  check({"call=cudaEventCreateWithFlags nth=12 kind=late", 4, rank_1, late_work});
}

TEST_CASE("work that fails in the setup is told once, though NCCL sees a rank go") {
  check({"call=cudaStreamIsCapturing kind=late", 4, rank_1, late_work});
}

TEST_CASE("want of GPU memory is told with the bytes asked for") {
  check({"call=cudaMallocAsync nth=100 kind=memory", 4, rank_1, " bytes of memory are left on cuda:1 of rank 1"});
}

TEST_CASE("want of pinned memory is told with the bytes asked for") {
  check({"call=cudaMallocHost kind=memory", 4, rank_1, ") failed: the host has no 12544 bytes of pinned memory left"});
}

TEST_CASE("a collective that fails in its call is its rank's") {
  check({"call=ncclRecv nth=2 kind=error", 4, rank_1, ") failed: ncclRecv failed on cuda:1 of rank 1: "});
}

TEST_CASE("a collective that fails later is its rank's") {
  check({"call=ncclSend nth=2 kind=late", 4, rank_1, " on cuda:1 of rank 1: unhandled system error"});
}

TEST_CASE("a start of NCCL that fails on a rank is that rank's") {
  check({"call=ncclCommInitRankConfig kind=error", 4, rank_1,
         ") failed: NCCL did not start: ncclCommInitRankConfig failed on cuda:1 of rank 1"});
}

TEST_CASE("a start of NCCL that ends on no rank is nobody's") {
  check(
      {"call=ncclCommInitRankConfig kind=hang", 5, "lockstep: error: NCCL did not start on any rank: ", " after 3 s"});
}

TEST_CASE("a GPU that hangs in the start of NCCL is its rank's") {
  check({"call=cudaMemcpyAsync kind=hang", 5, rank_1, "the copy before the first all-reduce was not done on rank 1"});
}

TEST_CASE("a call that hangs in the start of NCCL is its rank's") {
  check({"call=cudaStreamCreateWithFlags nth=2 kind=hang", 5, rank_1,
         "NCCL did not start: a call before ncclCommInitRankConfig has not returned on cuda:1 of rank 1"});
}

TEST_CASE("work that hangs is its rank's") {
  // Who waits for it may say that it is late before it has given up itself.
  check({"call=cudaLaunchKernelExC nth=20 kind=hang", 5, rank_1, " 3 s"});
}

TEST_CASE("a call that hangs in the middle is its rank's", "[extended]") {
  check({"call=cublasLtMatmulDescCreate kind=hang", 5, rank_1, " 3 s"});
}

TEST_CASE("a call that hangs while a collective is enqueued is its rank's") {
  check({"call=cudaEventCreateWithFlags nth=14 kind=hang", 5, rank_1,
         ") is stuck: a call to its GPU's driver has not returned for 3 s; it was in step 1, waiting at sum #1"});
}

TEST_CASE("a call that hangs ends a job of one rank") {
  check({"call=cublasLtMatmulDescCreate kind=hang", 5, "lockstep: replica 0 (worker:0, host ",
         ") is stuck: a call to its GPU's driver has not returned for 3 s; it was in step 1", 1});
}

TEST_CASE("a call that hangs in the start ends a job of one rank") {
  check({"call=cudaGetDeviceCount kind=hang", 5, "lockstep: replica 0 is stuck: ", "it was before the first step", 1});
}

TEST_CASE("a collective that hangs on one rank is that rank's") {
  check({"call=ncclRecv nth=2 kind=hang", 5, rank_1, ") is late: sum #2 of the step ("});
}

TEST_CASE("a collective whose call hangs is its rank's", "[extended]") {
  check({"call=ncclGroupEnd nth=2 kind=hang", 5, rank_1, " it was in step 2, waiting at sum #1"});
}

TEST_CASE("a collective that hangs on every rank is nobody's") {
  check({"call=ncclSend nth=2 kind=hang", 5, "lockstep: error: sum #1 of the step (",
         " 3 s, and no rank is late for it; this was "});
}

TEST_CASE("a collective that hangs on some ranks is blamed on none of them alone", "[long][extended]") {
  check({"call=ncclSend nth=5 kind=hang", 5, "lockstep: error: sum #1 of the step (", " 3 s", 4});
}

TEST_CASE("a call that hangs at the end is its rank's") {
  check({"call=cudaStreamDestroy kind=hang", 5, "lockstep: replica 1 is late: ", "while the job was ending"});
}

TEST_CASE("an end of NCCL that hangs costs a warning, not the result") {
  const Outcome outcome = run_with("call=ncclCommDestroy kind=hang");
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
  CHECK_THAT(outcome.err, Contains("[rank 1] warning: ncclCommDestroy on cuda:1 of rank 1 is stuck"));
  CHECK(processes_left(outcome.marker).empty());
}

TEST_CASE("a GPU that works at random moments ends no job") {
  const Outcome outcome =
      run_job(2, Arguments{"--data", small_data()} + small + Arguments{"--shards", "2", "--stall-timeout", "10"},
              {.environment = {{"CUSIM_DEVICES", "2"}, {"CUSIM_ORDER", "thread"}, {"CUSIM_SEED", "7"}}});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("an mlp has the same bits on 1, 2 and 4 GPUs, and a CPU's loss", "[training]") {
  check_on({2, 4}, {"--hidden", "20", "--global-batch", "50", "--shards", "4", "--steps", "4"}, f32_nearness);
}

TEST_CASE("an mlp in bf16 has the same bits on 1, 2 and 4 GPUs, and nearly a CPU's loss", "[extended]") {
  check_on({2, 4}, {"--precision", "bf16", "--hidden", "20", "--global-batch", "50", "--shards", "4", "--steps", "4"},
           bf16_nearness);
}

TEST_CASE("a language model in bf16 has the same bits on 1 and 2 GPUs, and nearly a CPU's loss", "[training]") {
  const TemporaryDirectory folder;
  check_on({2}, shards_of_token_gpt(folder) + Arguments{"--precision", "bf16"}, bf16_nearness);
}

TEST_CASE("a language model has the same bits on 1, 2 and 4 GPUs, and a CPU's loss, in bf16 too", "[extended]") {
  const TemporaryDirectory folder;
  check_on({2, 4}, shards_of_gpt(folder), f32_nearness);
  check_on({2, 4}, shards_of_gpt(folder) + Arguments{"--precision", "bf16"}, bf16_nearness);
}

TEST_CASE("a convnet has the same bits on 1 and 2 GPUs, and a CPU's loss", "[training]") {
  check_on({2}, SmallImages{}.convnet() + few_shards + norm_and_dropout, f32_nearness);
}

TEST_CASE("a convnet has the same bits on 1, 2 and 4 GPUs, in bf16 and with batch norm over all of them too",
          "[extended]") {
  const SmallImages images;
  const Arguments convnet = images.convnet() + few_shards, bf16{"--precision", "bf16"};
  check_on({2, 4}, convnet, f32_nearness);
  check_on({2, 4}, convnet + norm_and_dropout, f32_nearness);
  check_on({2, 4}, convnet + Arguments{"--sync-batch-norm"}, f32_nearness);
  check_on({2, 4}, convnet + bf16, bf16_nearness);
  // After the second step, batch norm has amplified a different rounding to more than that, as between two CPUs'
  // kernels.
  check_on({2, 4}, images.convnet() + Arguments{"--shards", "4", "--steps", "2"} + bf16 + norm_and_dropout,
           bf16_nearness);
}

TEST_CASE("a step waits for its GPU once and allocates nothing, with shards, ranks and micro-batches", "[training]") {
  const TemporaryDirectory folder;
  check_step(1, "2", tiny_gpt(folder) + Arguments{"--accumulate", "2", "--precision", "bf16"});
  check_step(2, "4", SmallImages{}.convnet() + norm_and_dropout);
}

TEST_CASE("an mlp's step waits for its GPU once, and a trace of the GPUs' streams costs neither a wait nor an event",
          "[training]") {
  const auto plain = check_step(2, "2", small_mlp_options());
  CHECK(plain.at("launches") <= 14);
  CHECK(plain.at("copies") <= 4);
  auto traced = in_a_step(2, "2", small_mlp_options(), true);
  CHECK(traced.at("cudaEventElapsedTime") > 10);
  for (const char* const call :
       {"host waits", "allocations", "launches", "copies", "cudaEventCreateWithFlags", "cudaEventDestroy"})
    CHECK(traced.at(call) == plain.at(call));
}

TEST_CASE("a trace has a row for each stream of each GPU, until a GPU refuses to tell its times", "[training]") {
  const std::string fault = GENERATE("", "rank=1 call=cudaEventElapsedTime nth=20 kind=error");
  const TemporaryDirectory folder;
  const Arguments arguments{"--data",  small_data(),   "--shards", "2", "--run-dir", folder.path() / "run",
                            "--trace", "--eval-every", "2"};
  const Outcome outcome =
      run_job(2, arguments + small, {.environment = {{"CUSIM_DEVICES", "2"}, {"CUSIM_FAULTS", fault}}});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "[rank 1] warning: the trace has no more spans of the GPU").size() ==
        (fault.empty() ? 0 : 1));
  const Json picture = Json::parse(read_file(folder.path() / "run/trace/all-ranks.trace"));
  std::map<int, std::map<int, std::map<std::string, int>>> names;  // by rank and stream
  for (const Json& event : picture.at("traceEvents"))
    if (event.contains("cat") && (event.at("cat") == "kernel" || event.at("cat") == "gpu_user_annotation"))
      ++names[event.at("pid")][event.at("tid").get<int>() - 240][event.at("name")];
  for (const double error : picture.at("lockstep").at("device_clock_error_us")) CHECK(error >= 0.5);
  CHECK(names[0][0]["forward"] > 3);  // also of evaluations
  for (const char* const once : {"backward", "optimizer"}) CHECK(names[0][0][once] == 3);
  CHECK(names[0][0]["dense_0"] > 6);
  CHECK(names[0][1]["ncclKernel_all_gather bucket_0"] == 3);
  CHECK((names[1][0]["optimizer"] == 3) == fault.empty());
}

TEST_CASE("a step waits for its GPU once and allocates nothing, whatever the model, the shards and the ranks",
          "[extended]") {
  const TemporaryDirectory folder;
  const auto alone = check_step(1, "1", small_mlp_options());
  CHECK(alone.at("launches") <= 13);
  CHECK(alone.at("copies") <= 3);
  check_step(1, "8", small_mlp_options());
  // The norm of the gradient comes with the losses.
  check_step(2, "8", small_mlp_options() + Arguments{"--clip-norm", "0.5"});
  check_step(1, "4", tiny_gpt(folder));
  check_step(1, "2", small_mlp_options() + Arguments{"--precision", "bf16"});
  const SmallImages images;
  check_step(1, "4", images.convnet() + Arguments{"--precision", "bf16", "--batch-norm"});
  check_step(2, "4", images.convnet() + Arguments{"--sync-batch-norm", "--accumulate", "2"});
}
