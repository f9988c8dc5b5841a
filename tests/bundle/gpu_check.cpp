// scripts/gpu-check in a bundle of fakes (fakes/), on a machine with a fake GPU: what it makes of what the programs
// say. FAKE, words between blanks, is what goes wrong.
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "support/job.hpp"
#include "support/run_tests.hpp"

using namespace lockstep::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

fs::path from_meson(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::runtime_error{std::string{name} + " is not set: run this with `meson test`"};
  return value;
}

class Bundle {
 public:
  explicit Bundle(const std::string& gpu_libraries = "") {
    for (const char* script : {"gpu-check", "gpu-target.sh"})
      fs::copy_file(from_meson("LOCKSTEP_SCRIPTS") / script, path() / script);
    fs::copy(from_meson("LOCKSTEP_FAKES") / "bin", path() / "bin");
    fs::create_directory(path() / "data");
    folder_.write("data/images", "");
    folder_.write("VERSION", "lockstep 1.2.3\ncommit abcdef0\nglibc 2.5\ncuda 13.0\ngpu_archs sm_90\ngpu_libraries " +
                                 gpu_libraries + "\n");
  }

  const fs::path& path() const { return folder_.path(); }
  void write(const fs::path& name, const std::string& contents) const { folder_.write(name, contents); }
  Json table() const { return Json::parse(read_file(path() / "gpu-check.json")); }

  Outcome check(const std::vector<std::string>& arguments = {}, Environment environment = {}) const {
    std::vector<std::string> command{path() / "gpu-check"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command, {.environment = environment_with(std::move(environment))});
  }

  /// What gpu-check finds on a machine with a fake GPU, beside or instead of which `own` says something.
  Environment environment_with(Environment own) const {
    own.emplace("PATH", (from_meson("LOCKSTEP_FAKES") / "tools").string() + ":" + std::getenv("PATH"));
    // No libraries of the one who runs the tests.
    own.emplace("HOME", path());
    own.emplace("LD_LIBRARY_PATH", "");
    return own;
  }

 private:
  TemporaryDirectory folder_;
};

/// "name ranks result" of every row.
std::vector<std::string> results(const Json& table) {
  std::vector<std::string> rows;
  for (const Json& row : table["checks"])
    rows.push_back(row["name"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + " " +
                   row["result"].get<std::string>());
  return rows;
}

/// The failed rows as "name ranks: value".
std::vector<std::string> failures(const Json& table) {
  std::vector<std::string> rows;
  for (const Json& row : table["checks"])
    if (row["result"] == "failed")
      rows.push_back(row["name"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + ": " +
                     (row["value"].is_string() ? row["value"].get<std::string>() : row["value"].dump()));
  return rows;
}

/// A machine that runs these tests may have a GPU: what happens without one cannot be seen there.
bool has_gpu() {
  return fs::exists("/dev/nvidia0");
}

using Lines = std::vector<std::string>;

/// gpu-check.json, as whoever looked at the start of each check found it.
void check_snapshots(const fs::path& folder) {
  Lines running;
  std::size_t rows = 0;
  for (int i = 0; fs::exists(folder / std::to_string(i)); ++i) {
    const Json table = Json::parse(read_file(folder / std::to_string(i)));
    CHECK(table["facts"]["driver"] == "999.10.01");
    const std::string now = table["running"];
    if (!running.empty() && running.back() == now) continue;  // a check may have several jobs
    CHECK(table["checks"].size() == rows);
    if (rows > 0) CHECK(table["checks"][rows - 1]["result"] == "passed");
    running.push_back(now);
    ++rows;
  }
  REQUIRE(running.size() == 19);
  CHECK(running[0] == "probes of CUDA, ranks: 1");
  CHECK(running[18] == "merge_call, ranks: 4");
}

}  // namespace

TEST_CASE("where every program does its part, every check passes, in one table and in gpu-check.json at any time") {
  const Bundle bundle;
  const TemporaryDirectory snapshots;
  const Outcome outcome = bundle.check({}, {{"FAKE_SNAPSHOTS", snapshots.path()}});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  const Json table = bundle.table();
  CHECK(results(table) == Lines{"probes of CUDA 1 passed", "GPU unit tests 1 passed", "strategy suite 1 passed",
                                "strategy suite 2 passed", "strategy suite 4 passed", "MLP accuracy 1 passed",
                                "same weights 1 passed", "same weights 2 passed", "same weights 4 passed",
                                "losses, CPU and GPU, f64 1 passed", "losses, CPU and GPU, f32 1 passed",
                                "memcheck 1 passed", "step time 1 passed", "all-reduce 1 passed", "all-reduce 2 passed",
                                "all-reduce 4 passed", "merge_call 1 passed", "merge_call 2 passed",
                                "merge_call 4 passed"});
  check_snapshots(snapshots.path());
  CHECK(table["running"] == "");
  CHECK(table["version"] == "1.2.3");
  CHECK(table["gpu"] == "NVIDIA \"Fake\" 9000");
  CHECK(table["driver"] == "999.10.01");
  CHECK(table.contains("nccl"));
  for (const Json& row : table["checks"]) {
    CHECK(row.size() == 6);
    CHECK(row["seconds"].is_number());
    CHECK(row["unit"].is_string());
    // The same row for those who read.
    const auto lines = lines_starting_with(outcome.out, row["name"].get<std::string>());
    CHECK(std::ranges::count_if(lines, [](const std::string& line) {
            return line.find(" passed ") != std::string::npos;
          }) == static_cast<long>(lines.size()));
  }
  const auto value = [&](std::size_t row) { return table["checks"][row]["value"]; };
  CHECK(value(0) == 2);
  CHECK(table["checks"][0]["unit"] == "statements hold");
  CHECK(value(1) == 30);
  CHECK(value(5) == 0.851);
  CHECK(value(6) == "00112233445566ff");
  CHECK(value(9).get<double>() == Approx(1e-15).epsilon(0.1));
  CHECK(value(10).get<double>() == Approx(1e-6).epsilon(0.1));
  CHECK(value(11) == 0);
  CHECK(table["checks"][11]["unit"] == "errors in 30 test cases");
  CHECK(value(12) == 2.0);  // milliseconds
  CHECK(value(13) == "2 of 2 sums exact");
  CHECK(value(16) == 3.25);
}

TEST_CASE("every check can fail, says why, and keeps none of the others from running") {
  const Bundle bundle;
  Outcome outcome = bundle.check({}, {{"FAKE", " gone hang unlearned other-bits single diverges overrun wrong-sum "}});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(results(bundle.table()).size() == 19);
  const Lines failed = failures(bundle.table());
  REQUIRE(failed.size() == 10);
  CHECK(failed[0].starts_with("strategy suite 2: no end within "));
  // The program's own words, not mpirun's.
  CHECK(failed[1] == R"(strategy suite 4: exit code 4: replica 3 (worker:3, host "b") is gone)");
  CHECK(failed[2] == "MLP accuracy 1: 0.8299 of the test images, expected 0.83");
  CHECK(failed[3] == "same weights 2: 'ffeeddccbbaa9900', expected '00112233445566ff' as on 1 rank");
  CHECK(failed[4] == "losses, CPU and GPU, f64 1: 1.00e-09 relative, expected at most 2e-12");
  CHECK(failed[5] == "losses, CPU and GPU, f32 1: 2.00e-02 relative, expected at most 1e-3");
  CHECK(failed[6] == "memcheck 1: 3");
  CHECK(failed[7] == "all-reduce 1: 1 of 2 sums exact");
  CHECK(failed[9] == "all-reduce 4: 1 of 2 sums exact");

  outcome = bundle.check({"--only", "probes"}, {{"FAKE", " undocumented "}});
  CHECK(outcome.exit_code == 1);
  CHECK(failures(bundle.table()) == Lines{"probes of CUDA 1: 1"});
  CHECK(bundle.table()["checks"][0]["unit"] == "do not hold: stream-runs-in-order");
  CHECK(outcome.out.find("    | DIFFERS stream-runs-in-order: expected 1, got 2\n") != std::string::npos);

  outcome = bundle.check({}, {{"FAKE", " tf32 "}});
  CHECK(outcome.exit_code == 1);
  CHECK(failures(bundle.table()) ==
        Lines{"losses, CPU and GPU, f32 1: 1.00e-05 relative in the first step, expected at most 1e-6"});

  CHECK(bundle.check({}, {{"FAKE", " short "}}).exit_code == 1);
  CHECK(failures(bundle.table()) == Lines{"losses, CPU and GPU, f64 1: 49 steps to compare, expected 50",
                                          "losses, CPU and GPU, f32 1: 49 steps to compare, expected 50",
                                          "step time 1: no times in the metrics"});
}

TEST_CASE("checks that the time does not suffice for are not run, and say so") {
  const Bundle bundle;
  Outcome outcome = bundle.check({"--seconds", "0"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.find("no check failed, but 19 of 19 were not run: the 0 s were up") != std::string::npos);
  const Json table = bundle.table();
  for (const Json& row : table["checks"]) {
    CHECK(row["result"] == "not run");
    CHECK(row["value"] == "not started: the 0 s were up");
  }
  // What is cut off has not failed, unless it had all the time that it may take.
  outcome = bundle.check({"--seconds", "100", "--only", "unit tests"}, {{"FAKE", " slow "}});
  CHECK(outcome.exit_code == 2);
  CHECK(results(bundle.table()) == Lines{"GPU unit tests 1 not run"});
  CHECK(bundle.table()["checks"][0]["value"].get<std::string>().starts_with("cut off after "));
  CHECK(bundle.check({"--seconds", "1000", "--only", "unit tests"}, {{"FAKE", " slow "}}).exit_code == 1);
  CHECK(failures(bundle.table()).at(0).starts_with("GPU unit tests 1: no end within "));
}

TEST_CASE("only the checks that are asked for run") {
  const Bundle bundle;
  CHECK(bundle.check({"--only", "weights"}).exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"same weights 1 passed", "same weights 2 passed", "same weights 4 passed"});
  const Outcome outcome = bundle.check({"--only", "wheels"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err.find("--only 'wheels': no check has that in its name; there are probes of CUDA; GPU unit tests; "
                         "strategy suite; MLP") != std::string::npos);
}

TEST_CASE("a check that fails shows the end of its log, and one archive has all logs, long ones shortened") {
  const Bundle bundle;
  const Outcome outcome = bundle.check({"--only", "suite"}, {{"FAKE", " verbose gone "}});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out.find("    | mpirun noticed that process rank 3 exited.\n") != std::string::npos);
  CHECK(outcome.out.find("    | 200000\n") != std::string::npos);
  CHECK(outcome.out.find("    | 199000\n") == std::string::npos);

  const TemporaryDirectory unpacked;
  REQUIRE(run_command({"tar", "-C", unpacked.path(), "-xzf", bundle.path() / "gpu-check-logs.tar.gz"}).exit_code == 0);
  CHECK(read_file(unpacked.path() / "logs/strategy-suite-2.log").find("All tests passed") != std::string::npos);
  CHECK(read_file(unpacked.path() / "logs/strategy-suite-4.log").find("is gone") != std::string::npos);
  const std::string verbose = read_file(unpacked.path() / "logs/strategy-suite-1.log");
  CHECK(verbose.size() < 263000);
  CHECK(verbose.find("\n1\n2\n3\n") != std::string::npos);
  CHECK(verbose.find(" bytes left out]\n") != std::string::npos);
  CHECK(verbose.find("\n200000\n") != std::string::npos);
}

TEST_CASE("the facts of the machine come first: GPU, driver, libraries with their versions, loopback") {
  const Bundle bundle{"libmine.so.2 libcublasLt.so.13 libnccl.so.2"};
  const fs::path packages = ".local/lib/python3.99/site-packages";
  fs::create_directories(bundle.path() / "mine");
  fs::create_directories(bundle.path() / packages / "nvidia/cu13/lib");
  fs::create_directories(bundle.path() / packages / "nvidia_cublas-13.1.0.3.dist-info");
  bundle.write("mine/libmine.so.2.7.1", "");
  fs::create_symlink("libmine.so.2.7.1", bundle.path() / "mine/libmine.so.2");
  bundle.write(packages / "nvidia/cu13/lib/libcublasLt.so.13", "");
  bundle.write("mine/libnccl.so.2", "NCCL version 2.99.1+cuda13.0");
  const Environment environment{{"LD_LIBRARY_PATH", (bundle.path() / "mine").string() + ":" +
                                                        (bundle.path() / packages / "nvidia/cu13/lib").string()}};
  const Outcome outcome = bundle.check({"--only", "unit"}, environment);
  INFO(outcome.out << outcome.err);
  const Json facts = bundle.table()["facts"];
  CHECK(facts["GPU"] == "NVIDIA \"Fake\" 9000, 81559 MiB, 9.0");
  CHECK(facts["driver"] == "999.10.01");
  CHECK(facts["libmine.so.2"] == "2.7.1, " + (bundle.path() / "mine/libmine.so.2").string());
  CHECK(facts["libcublasLt.so.13"].get<std::string>().starts_with("13.1.0.3, "));
  CHECK(facts["libnccl.so.2"].get<std::string>().starts_with("2.99.1, "));
  CHECK(bundle.table()["nccl"] == "2.99.1");
  CHECK(facts["loopback"] == "up");
  CHECK(outcome.out.find("  driver             999.10.01\n") < outcome.out.find("GPU unit tests"));

  if (run_command({"unshare", "-n", "true"}).exit_code != 0) return skip("a network without a loopback takes root");
  run_command({"unshare", "-n", bundle.path() / "gpu-check", "--only", "unit"},
              {.environment = bundle.environment_with(environment)});
  CHECK(bundle.table()["facts"]["loopback"].get<std::string>().starts_with("down"));
}

TEST_CASE("a training run that fell back to the CPU passes no check of the GPU") {
  const Bundle bundle;
  CHECK(bundle.check({}, {{"FAKE", " on-cpu "}}).exit_code == 1);
  const Lines failed = failures(bundle.table());
  CHECK(failed.size() == 7);
  for (const std::string& row : failed) CHECK(row.ends_with(": it ran on 'cpu', expected cuda"));
}

TEST_CASE("programs that find no device where there is a GPU are no success") {
  const Bundle bundle;
  const Outcome outcome = bundle.check({}, {{"FAKE", " no-device "}});
  CHECK(failures(bundle.table()) == Lines{"probes of CUDA 1: gpu-probes: no GPU here",
                                          "GPU unit tests 1: gpu-tests: no GPU here",
                                          "memcheck 1: gpu-tests: no GPU here"});
  CHECK(outcome.exit_code == 1);
}

TEST_CASE("without compute-sanitizer the memory check is skipped, and that is no failure") {
  const Bundle bundle;
  fs::create_directory(bundle.path() / "tools");
  fs::copy(from_meson("LOCKSTEP_FAKES") / "tools" / "nvidia-smi", bundle.path() / "tools");
  const Environment environment{{"PATH", (bundle.path() / "tools").string() + ":/usr/bin:/bin"}};
  if (run_command({"bash", "-c", "compgen -G '/usr/local/cuda*/*/compute-sanitizer'"}).exit_code == 0)
    return skip("this machine has compute-sanitizer");
  CHECK(bundle.check({}, environment).exit_code == 0);
  CHECK(results(bundle.table())[11] == "memcheck 1 skipped");
}

TEST_CASE("without a GPU it says so in one line, with its version and what else is missing, and exits with 77") {
  if (has_gpu()) return skip("this machine has a GPU");
  const Environment environment{{"PATH", "/usr/bin:/bin"}};
  Outcome outcome = Bundle{}.check({}, environment);
  CHECK(outcome.exit_code == 77);
  CHECK(outcome.out ==
        "gpu-check: lockstep 1.2.3 (abcdef0), CUDA 13.0 for sm_90: no GPU: nvidia-smi names none, and "
        "there is no /dev/nvidia0\n");
  outcome = Bundle{"libneither.so.13 libnor.so.2"}.check({}, environment);
  CHECK(outcome.exit_code == 77);
  CHECK(std::ranges::count(outcome.out, '\n') == 1);
  CHECK(outcome.out.find("no GPU") != std::string::npos);
  CHECK(outcome.out.find("lacks libneither.so.13 libnor.so.2: not in ") != std::string::npos);
}

TEST_CASE("a GPU without the libraries is one line that names them, and the version that is there instead") {
  const Bundle bundle{"libneither.so.13 libc.so.6"};
  fs::create_directories(bundle.path() / ".local/lib/python3.99/site-packages/nvidia/neither/lib");
  const fs::path other = ".local/lib/python3.99/site-packages/nvidia/neither/lib/libneither.so.12";
  bundle.write(other, "");
  const Outcome outcome = bundle.check();
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  CHECK(std::ranges::count(outcome.err, '\n') == 1);
  CHECK(outcome.err.find("lacks libneither.so.13: not in ") != std::string::npos);
  CHECK(outcome.err.find("there is " + (bundle.path() / other).string()) != std::string::npos);
}

TEST_CASE("libraries are found in LD_LIBRARY_PATH, in the loader's cache and in PyTorch's packages") {
  const Bundle bundle{"libwheel.so.13 libmine.so.2 libc.so.6"};
  const fs::path wheel = ".local/lib/python3.99/site-packages/nvidia/cu13/lib", mine = "mine";
  fs::create_directories(bundle.path() / wheel);
  fs::create_directories(bundle.path() / mine);
  bundle.write(wheel / "libwheel.so.13", "");
  bundle.write(mine / "libmine.so.2", "");
  bundle.write("bin/show", "#!/bin/sh\necho \"$LD_LIBRARY_PATH\"\n");
  fs::permissions(bundle.path() / "bin/show", fs::perms::owner_all);
  const std::string own = bundle.path() / mine;
  const Outcome outcome = bundle.check({"--run", "1", "show"}, {{"LD_LIBRARY_PATH", own}});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  // The bundle's own before the target's.
  CHECK(outcome.out == (bundle.path() / "lib").string() + ":" + (bundle.path() / wheel).string() + ":" + own + "\n");
  CHECK(outcome.err == "");
}

TEST_CASE("a program is started where the libraries are missing, and is told so") {
  const Bundle bundle{"libneither.so.13 libc.so.6"};
  bundle.write("bin/show", "#!/bin/sh\necho started\n");
  fs::permissions(bundle.path() / "bin/show", fs::perms::owner_all);
  const Outcome outcome = bundle.check({"--run", "1", "show"});
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "started\n");
  CHECK(outcome.err.starts_with("gpu-check: liblockstep-cuda.so lacks libneither.so.13: not in "));
  CHECK(std::ranges::count(outcome.err, '\n') == 1);
}

TEST_CASE("outside a bundle, and with options that it does not know, gpu-check says what was expected") {
  const Outcome outside = run_command({from_meson("LOCKSTEP_SCRIPTS") / "gpu-check"});
  CHECK(outside.exit_code == 1);
  CHECK(outside.err.find("this is no bundle") != std::string::npos);
  CHECK(Bundle{}.check({"--fast"}).err.find("unknown option '--fast'") != std::string::npos);
  CHECK(Bundle{}.check({"--output"}).err.find("--output has no value") != std::string::npos);
  CHECK(Bundle{}.check({"--seconds", "soon"}).err.find("--seconds 'soon': expected a whole number") !=
        std::string::npos);
  CHECK(Bundle{}.check({"--output", ""}).err.find("--output has no value") != std::string::npos);
}
