// What lockstep-train says when all goes well: the result, the metrics, the progress, its help.
#include <cmath>
#include <cstdlib>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

using Keys = std::vector<std::string>;

const Keys result_keys{"ranks",      "shards",    "device",        "model",
                       "steps",      "samples",   "seconds",       "samples_per_second",
                       "train_loss", "eval_loss", "eval_accuracy", "weights_digest"};
const Keys train_keys{"kind", "step",          "epoch",         "samples", "batch",
                      "loss", "learning_rate", "gradient_norm", "seconds", "samples_per_second"};
const Keys eval_keys{"kind", "step", "epoch", "loss", "accuracy", "seconds"};
const Keys parts_keys{"replica",    "name",       "host",  "data",    "forward", "backward", "optimizer",
                      "checkpoint", "evaluation", "other", "waiting", "queued",  "late",     "mostly"};

/// The mean over the samples of the steps after `first`.
double mean_loss(const std::vector<Json>& metrics, int first) {
  double loss = 0;
  double samples = 0, before = 0;
  for (const Json& line : metrics) {
    if (line["kind"] != "train") continue;
    const double now = line["samples"].get<double>();
    if (line["step"] > first) {
      loss += line["loss"].get<double>() * (now - before);
      samples += now - before;
    }
    before = now;
  }
  return loss / samples;
}

}  // namespace

TEST_CASE("the result is one line of JSON with every key in order, and nothing else is on stdout") {
  const Trained trained = train(3, {"--hidden", "16", "--steps", "3", "--global-batch", "100"});
  const Json& result = trained.result;
  CHECK(keys_of(result) == result_keys);
  CHECK(result["ranks"] == 3);
  CHECK(result["shards"] == 8);
  CHECK(result["device"] == "cpu");
  CHECK(result["model"] == "mlp");
  CHECK(result["steps"] == 3);
  CHECK(result["samples"] == 300);
  CHECK(result["seconds"].get<double>() > 0);
  CHECK(result["samples_per_second"].get<double>() == Approx(300 / result["seconds"].get<double>()));
  CHECK(result["train_loss"].is_number_float());
  CHECK(result["eval_loss"].is_number_float());
  CHECK(result["eval_accuracy"].get<double>() > 0);
  CHECK(result["eval_accuracy"].get<double>() <= 1);
  CHECK_THAT(trained.digest(), Catch::Matches("[0-9a-f]{16}"));
}

TEST_CASE("the metrics have a line a step and one an evaluation, in order") {
  // 6000 samples in batches of 2500: two whole ones, and one of 1000.
  const Trained trained = train(2, {"--hidden", "16", "--epochs", "2", "--global-batch", "2500"});
  const std::vector<std::pair<std::string, int>> expected{{"train", 1}, {"train", 2}, {"train", 3}, {"eval", 3},
                                                          {"train", 4}, {"train", 5}, {"train", 6}, {"eval", 6}};
  REQUIRE(trained.metrics.size() == expected.size());
  const std::vector<int> samples{2500, 5000, 6000, 6000, 8500, 11000, 12000, 12000};
  double seconds = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Json& line = trained.metrics[i];
    INFO(line.dump());
    const auto& [kind, step] = expected[i];
    CHECK(line["kind"] == kind);
    CHECK(line["step"] == step);
    CHECK(line["epoch"] == (step <= 3 ? 1 : 2));
    CHECK(std::isfinite(line["loss"].get<double>()));
    CHECK(line["seconds"].get<double>() > 0);
    if (kind == "train") {
      CHECK(keys_of(line) == train_keys);
      CHECK(line["samples"] == samples[i]);
      CHECK(line["batch"] == (step % 3 == 0 ? 1000 : 2500));
      CHECK(line["seconds"].get<double>() > seconds);
      seconds = line["seconds"].get<double>();
      CHECK(line["samples_per_second"].get<double>() > 0);
    } else {
      CHECK(keys_of(line) == eval_keys);
      CHECK(line["accuracy"].get<double>() >= 0);
      CHECK(line["accuracy"].get<double>() <= 1);
    }
  }

  SECTION("and the result is their end") {
    const Json& last = trained.metrics.back();
    CHECK(trained.result["eval_loss"] == last["loss"]);
    CHECK(trained.result["eval_accuracy"] == last["accuracy"]);
    CHECK(trained.result["seconds"].get<double>() == seconds);
    CHECK(trained.result["train_loss"].get<double>() == Approx(mean_loss(trained.metrics, 3)).epsilon(1e-12));
  }
}

TEST_CASE("the metrics say where the time of each rank went, and it adds up") {
  const Trained trained =
      train(2, {"--hidden", "16", "--epochs", "2", "--global-batch", "2500", "--attest-every", "2"});
  Keys covered;
  for (const Json& line : trained.parts) {
    INFO(line.dump());
    covered.push_back(fmt::format("{} to {}", line["steps"].get<int>(), line["step"].get<int>()));
    CHECK(keys_of(line) == Keys{"kind", "step", "steps", "seconds", "ranks"});
    REQUIRE(line["ranks"].size() == 2);
    for (int rank = 0; rank < 2; ++rank) {
      const Json& own = line["ranks"][static_cast<std::size_t>(rank)];
      CHECK(keys_of(own) == parts_keys);
      CHECK(own["replica"] == rank);
      CHECK(own["name"] == fmt::format("worker:{}", rank));
      double sum = 0;
      for (const std::string& part : Keys{parts_keys.begin() + 3, parts_keys.end() - 3}) sum += own[part].get<double>();
      if (rank == 0) CHECK(sum == Approx(line["seconds"].get<double>()).epsilon(1e-9));
      for (const char* part : {"data", "forward", "backward", "optimizer", "waiting"})
        CHECK(own[part].get<double>() > 0);
      CHECK((own["late"].get<double>() >= 0 && own["late"].get<double>() <= 1));
    }
  }
  CHECK(covered == Keys{"2 to 2", "1 to 3", "1 to 4", "2 to 6"});
}

TEST_CASE("--eval-every evaluates between, and always at the end") {
  const Trained trained = train(1, {"--hidden", "16", "--steps", "5", "--eval-every", "2"});
  Keys order;
  for (const Json& line : trained.metrics)
    order.push_back(line["kind"].get<std::string>() + " " + std::to_string(line["step"].get<int>()));
  CHECK(order == Keys{"train 1", "train 2", "eval 2", "train 3", "train 4", "eval 4", "train 5", "eval 5"});
  CHECK(trained.result["train_loss"].get<double>() == Approx(mean_loss(trained.metrics, 0)).epsilon(1e-12));
}

TEST_CASE("two equal runs differ in nothing but times") {
  const Arguments arguments{"--hidden", "64,32", "--steps", "30", "--eval-every", "10"};
  const Trained one = train(2, arguments), other = train(2, arguments);
  CHECK(one.digest() == other.digest());
  CHECK(without_times(one.metrics) == without_times(other.metrics));
}

TEST_CASE("the small set is learnt in a few epochs, whatever the seed", "[extended]") {
  const std::string seed = GENERATE("1", "2");
  const Trained trained = train(2, {"--epochs", "4", "--seed", seed});
  CHECK(trained.result["steps"] == 4 * 24);
  CHECK(trained.result["samples"] == 4 * 6000);
  CHECK(trained.result["eval_accuracy"].get<double>() > 0.7);
  CHECK(trained.result["train_loss"].get<double>() < 0.8);
}

TEST_CASE("where nobody watches, progress is plain lines of the chief on stderr") {
  const Outcome outcome = run_job(3, short_run());
  REQUIRE(outcome.exit_code == 0);
  CHECK_THAT(outcome.err, Catch::Contains("training mlp: 3 ranks, 8 shards (2 to 3 on a rank, in up to 2 subtrees: 1.5 "
                                          "times the bytes where gradients are sent, 0.1 MB more memory), 3 steps"));
  CHECK(lines_starting_with(outcome.err, "step 1/3  epoch 1/1  loss ").size() == 1);
  CHECK(lines_starting_with(outcome.err, "step 3/3  epoch 1/1  loss ").size() == 1);
  CHECK(lines_starting_with(outcome.err, "test  step 3  epoch 1  loss ").size() == 1);
  CHECK(outcome.err.find('\r') == std::string::npos);
  CHECK(outcome.err.find('\x1b') == std::string::npos);
}

TEST_CASE("--log-level off leaves progress and what lockstep-run waits for alone, and says nothing else") {
  const Outcome outcome =
      run_job(3, short_run() + Arguments{"--log-level", "off"}, {.environment = {{"LOCKSTEP_SUPERVISED", "1"}}});
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "[rank").empty());
  CHECK(lines_starting_with(outcome.err, "lockstep:") == std::vector<std::string>{"lockstep: the job has begun"});
}

TEST_CASE("--quiet says nothing but what is doubtful about a run, before the training") {
  const TemporaryDirectory folder;
  const std::string host = read_file("/proc/sys/kernel/hostname"), name = host.substr(0, host.find('\n'));
  const std::string spec = R"({"cluster": {"worker": ["elsewhere:1", ")" + name + R"(:1"]}})";
  const std::string threads = std::to_string(sysconf(_SC_NPROCESSORS_ONLN) + 1);
  const Outcome job = run_job(2, short_run() + Arguments{"--quiet", "--shards", "ranks", "--threads", threads,
                                                         "--cluster-spec", folder.write("cluster.json", spec)});
  INFO(job.err);
  REQUIRE(job.exit_code == 0);
  const std::string warning = "[rank 0] warning: ";
  CHECK(lines_starting_with(job.err, "").size() == 2);
  CHECK(lines_starting_with(job.err, warning + "--threads " + threads + ": 2 ranks on a node of ").size() == 1);
  CHECK(lines_starting_with(job.err, warning + (folder.path() / "cluster.json").string() +
                                         ": worker:0 is named to be on elsewhere, but runs on " + name)
            .size() == 1);

  Environment environment = mpi_environment();
  environment["SLURM_NTASKS"] = "2";
  const Outcome alone = run_command(Arguments{std::getenv("LOCKSTEP_TRAIN")} + short_run() + Arguments{"--quiet"},
                                    {.environment = environment});
  INFO(alone.err);
  REQUIRE(alone.exit_code == 0);
  CHECK(lines_starting_with(alone.err, "").size() == 1);
  CHECK(lines_starting_with(alone.err, warning + "SLURM_NTASKS is 2, but this process is a job of 1 rank").size() == 1);
}

TEST_CASE("help has every option, in groups, once for the job") {
  const int ranks = GENERATE(1, 3);
  const Outcome outcome = run_job(ranks, {"--help"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  for (const char* group : {"Data and model:", "Training:", "Ranks and devices:", "Output:"})
    CHECK(lines_starting_with(outcome.out, group).size() == 1);
  for (const char* option : {"--cluster-spec", "--model",   "--hidden",        "--data",      "--classes",
                             "--global-batch", "--epochs",  "--steps",         "--optimizer", "--learning-rate",
                             "--momentum",     "--seed",    "--shards",        "--threads",   "--device",
                             "--eval-every",   "--metrics", "--stall-timeout", "--log-level", "--version"}) {
    INFO(option);
    CHECK(lines_starting_with(outcome.out, std::string{"  "} + option + " ").size() == 1);
  }
}

TEST_CASE("the version is told once for the job") {
  const int ranks = GENERATE(1, 3);
  const Outcome outcome = run_job(ranks, {"--version"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out,
             Catch::Matches("lockstep-train [0-9]+\\.[0-9]+\\.[0-9]+\ncommit .+\nMPI .+\noneDNN .+\nCUDA .+\n"));
}

TEST_CASE("a cluster spec says which task each rank is, in a file or in TF_CONFIG") {
  const TemporaryDirectory folder;
  const std::string spec = R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}})";
  const std::string plain = train(2, {"--hidden", "16", "--steps", "3"}).digest();
  const Arguments with_spec{"--hidden", "16", "--steps", "3", "--cluster-spec", folder.write("cluster.json", spec)};
  CHECK(train(2, with_spec).digest() == plain);
  CHECK(train(2, {"--hidden", "16", "--steps", "3"}, {.environment = {{"TF_CONFIG", spec}}}).digest() == plain);
  // The file counts more.
  CHECK(train(2, with_spec, {.environment = {{"TF_CONFIG", "{"}}}).digest() == plain);
}

TEST_CASE("an output that cannot be written ends the run with one line and exit code 1") {
  const auto in_shell = [](const std::string& arguments) {
    Environment environment = mpi_environment();
    environment["DATA"] = small_data();
    return run_command({"sh", "-c", "exec \"$LOCKSTEP_TRAIN\" " + arguments}, {.environment = environment});
  };
  const std::string run = "--data \"$DATA\" --hidden 4 --steps 1 ", cannot = "standard output cannot be written: ";
  for (const auto& [arguments, why] :
       std::vector<std::pair<std::string, std::string>>{{run + "> /dev/full", cannot + "No space left on device"},
                                                        {run + ">&-", cannot + "Bad file descriptor"},
                                                        {"--help > /dev/full", cannot + "No space left on device"}}) {
    const Outcome outcome = in_shell(arguments);
    INFO(arguments << ": " << outcome.err);
    CHECK(outcome.exit_code == 1);
    CHECK(lines_starting_with(outcome.err, "lockstep:") == std::vector<std::string>{"lockstep: error: " + why});
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("a full disk for metrics ends the job with one line and exit code 7") {
  const int ranks = GENERATE(1, 2);
  const Outcome outcome = run_refused(ranks, short_run() + Arguments{"--metrics", "/dev/full"});
  INFO(ranks << " ranks: " << outcome.err);
  CHECK(outcome.exit_code == 7);
  CHECK(lines_starting_with(outcome.err, "lockstep:") ==
        std::vector<std::string>{"lockstep: error: --metrics /dev/full: cannot be written: No space left on device"});
  CHECK(outcome.out.empty());
}
