// Cluster specs and TF_CONFIGs that are wrong, or right for another job. The parser's own cases are unit tests; here
// is what a job makes of them.
#include <catch2/catch.hpp>
#include <sys/stat.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

struct BadCluster {
  int ranks;
  std::string text;
  std::vector<std::string> told;
};

Outcome run_with_spec(int ranks, const std::string& file) {
  return run_refused(ranks, short_run() + Arguments{"--cluster-spec", file});
}

Outcome run_with_tf_config(int ranks, const std::string& text) {
  return run_refused(ranks, short_run(), {.environment = {{"TF_CONFIG", text}}});
}

}  // namespace

TEST_CASE("a cluster spec that cannot be read is refused by its name") {
  const TemporaryDirectory folder;
  const std::string missing = folder.path() / "missing.json";
  check_refused(run_with_spec(2, missing), {missing + ": there is no such file", "expected a cluster spec"});
  check_refused(run_with_spec(3, folder.write("empty.json", "")), {"empty.json: the file is empty"});
}

TEST_CASE("a cluster spec that is wrong is refused by file and key") {
  const TemporaryDirectory folder;
  const std::vector<BadCluster> specs{
      {2, R"({"cluster": {"worker": ["a:1", "b:1")", {"the text ends too early, at line 1"}},
      {3, R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}})", {"\"cluster.ps\"", "expected chief, worker"}},
      // Right, but not for so many ranks.
      {3, R"({"cluster": {"worker": ["a:1", "b:1"]}})", {"2 workers make 2 ranks", "the job has 3;", "mpirun -n 2"}},
  };
  for (const BadCluster& bad : specs) {
    INFO("spec: " << bad.text);
    std::vector<std::string> told = bad.told;
    told.push_back(folder.path() / "cluster.json: ");
    check_refused(run_with_spec(bad.ranks, folder.write("cluster.json", bad.text)), told);
  }
}

TEST_CASE("several workers in one process, where nothing reduces among them, are refused", "[D-33]") {
  const TemporaryDirectory folder;
  const std::string spec = folder.write("cluster.json", R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}})");
  check_refused(run_with_spec(1, spec), {"cluster.json: ", "the job has 1;", "expected mpirun -n 2"});
}

TEST_CASE("the chief reads the cluster spec for all: no other rank needs the file", "[D-25]") {
  const char* const program = std::getenv("LOCKSTEP_TRAIN");
  REQUIRE(program);
  const TemporaryDirectory chief, other;
  chief.write("cluster.json", R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}})");
  const auto in = [&](const TemporaryDirectory& folder) {
    return Arguments{"-n", "1", "-wdir", folder.path(), program} + short_run() +
           Arguments{"--cluster-spec", "cluster.json"};
  };
  const Outcome outcome =
      run_command(Arguments{"mpirun"} + in(chief) + Arguments{":"} + in(other), {.environment = mpi_environment()});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("a TF_CONFIG that is wrong is refused by name and key") {
  const std::vector<BadCluster> configs{
      {1, "{", {"the text ends too early"}},
      {3, R"({"cluster": {"worker": ["a:1", "b:1"]}})", {"expected mpirun -n 2"}},
      {2,
       R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}})",
       {"\"task\"", "worker:2 is not in the cluster"}},
  };
  for (const BadCluster& bad : configs) {
    INFO("TF_CONFIG: " << bad.text);
    std::vector<std::string> told = bad.told;
    told.push_back("TF_CONFIG: ");
    check_refused(run_with_tf_config(bad.ranks, bad.text), told);
  }
}

TEST_CASE("the task of TF_CONFIG is ignored where it is the same everywhere, and must be the rank's otherwise",
          "[D-43]") {
  const char* const program = std::getenv("LOCKSTEP_TRAIN");
  REQUIRE(program);
  const auto config = [](int index) {
    return R"(TF_CONFIG={"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": )" +
           std::to_string(index) + "}}";
  };
  const auto start = [&](int first, int second) {
    return run_refused_command(Arguments{"mpirun", "-n", "1", "env", config(first), program} + short_run() +
                               Arguments{":", "-n", "1", "env", config(second), program} + short_run());
  };
  CHECK(start(0, 1).exit_code == 0);
  CHECK(start(1, 1).exit_code == 0);
  check_refused(start(1, 0), {"TF_CONFIG", "\"task\"", "rank 0 was given worker:1; expected worker:0"});
}

TEST_CASE("ranks whose TF_CONFIGs have other clusters are refused, other texts of one cluster are not", "[D-18]") {
  const char* const program = std::getenv("LOCKSTEP_TRAIN");
  REQUIRE(program);
  const auto start = [&](const std::string& first, const std::string& second) {
    return run_refused_command(Arguments{"mpirun", "-n", "1", "env", "TF_CONFIG=" + first, program} + short_run() +
                               Arguments{":", "-n", "1", "env", "TF_CONFIG=" + second, program} + short_run());
  };
  const std::string cluster = R"({"cluster": {"worker": ["a:1", "b:1"]}})";
  CHECK(start(cluster, R"({"cluster": {"worker": {"1": "b:1", "0": "a:1"}}, "rpc_layer": "grpc"})").exit_code == 0);
  check_refused(start(cluster, R"({"cluster": {"worker": ["a:1", "c:1"]}})"),
                {"TF_CONFIG: its cluster is not the one that replica 0 has"});
  check_refused(start(cluster, R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}})"),
                {"TF_CONFIG: its cluster is not the one that replica 0 has"});
}
