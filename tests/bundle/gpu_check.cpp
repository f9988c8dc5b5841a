// What scripts/gpu-check makes of what the programs of a bundle say.
#include <algorithm>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "bundle.hpp"
#include "support/run_tests.hpp"

using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

/// "name ranks" of all checks, in their order.
const Lines all_rows{"probes of CUDA 1",
                     "GPU unit tests 1",
                     "same weights, mlp 1",
                     "same weights, mlp 2",
                     "same weights, mlp 4",
                     "same weights, gpt 1",
                     "same weights, gpt 2",
                     "same weights, gpt 4",
                     "same weights, convnet 1",
                     "same weights, convnet 2",
                     "same weights, convnet 4",
                     "losses, mlp f64 1",
                     "losses, mlp f32 1",
                     "losses, gpt f64 1",
                     "losses, convnet f64 1",
                     "losses, gpt f32 1",
                     "MLP accuracy 1",
                     "step time, mlp 1",
                     "step time, gpt 1",
                     "PyTorch eager, mlp 1",
                     "PyTorch eager, gpt 1",
                     "PyTorch graph, mlp 1",
                     "PyTorch graph, gpt 1",
                     "PyTorch compiled, mlp 1",
                     "PyTorch compiled, gpt 1",
                     "strategy suite 1",
                     "strategy suite 2",
                     "strategy suite 4",
                     "losses, mlp bf16 1",
                     "losses, gpt bf16 1",
                     "fault: rank killed 2",
                     "fault: rank stopped 2",
                     "fault: model too large 1",
                     "fault: no memory 1",
                     "memcheck 1",
                     "all-reduce 1",
                     "all-reduce 2",
                     "all-reduce 4",
                     "merge_call 1",
                     "merge_call 2",
                     "merge_call 4"};

/// The row of a check, by its name and ranks as above.
Json row_of(const Json& table, const std::string& row) {
  for (const Json& each : table["checks"])
    if (each["name"].get<std::string>() + " " + std::to_string(each["ranks"].get<int>()) == row) return each;
  throw std::runtime_error{"no check '" + row + "'"};
}

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
  REQUIRE(running.size() == all_rows.size());
  CHECK(running.front() == "probes of CUDA, ranks: 1");
  CHECK(running.back() == "merge_call, ranks: 4");
}

}  // namespace

TEST_CASE("where every program does its part, every check passes, in one table and in gpu-check.json at any time",
          "[long]") {
  const Bundle bundle;
  const TemporaryDirectory snapshots;
  const Outcome outcome = bundle.check({}, {{"FAKE_SNAPSHOTS", snapshots.path()}});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.err == "");
  const Json table = bundle.table();
  Lines expected = all_rows;
  for (std::string& row : expected) row += " passed";
  CHECK(results(table) == expected);
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
  const auto value = [&](const char* row) { return row_of(table, row)["value"]; };
  const auto unit = [&](const char* row) { return row_of(table, row)["unit"]; };
  CHECK(value("probes of CUDA 1") == 2);
  CHECK(unit("probes of CUDA 1") == "statements hold");
  CHECK(value("GPU unit tests 1") == 30);
  CHECK(value("same weights, mlp 4") == "00112233445566ff");
  CHECK(value("same weights, gpt 4") == "a0b1c2d3e4f50617");
  CHECK(value("losses, gpt f64 1").get<double>() == Approx(1e-15).epsilon(0.2));
  CHECK(value("losses, mlp f32 1").get<double>() == Approx(1e-7).epsilon(0.2));
  CHECK(value("losses, mlp bf16 1").get<double>() == Approx(1e-4).epsilon(0.2));
  CHECK(value("MLP accuracy 1") == 0.851);
  CHECK(value("step time, gpt 1") == 2.0);  // milliseconds
  CHECK(value("PyTorch graph, gpt 1") == 2.5);
  CHECK(unit("PyTorch graph, gpt 1") == "ms a step, 1.25 of lockstep's");
  CHECK(value("fault: rank killed 2").get<std::string>().starts_with("replica 1 (worker:1, host \"b\") is gone: "));
  CHECK(value("fault: rank stopped 2").get<std::string>().starts_with("replica 1 (worker:1, host \"b\") has stopped"));
  CHECK(value("fault: model too large 1").get<std::string>().ends_with("; expected smaller layers"));
  CHECK(value("memcheck 1") == 0);
  CHECK(unit("memcheck 1") == "errors in 30 test cases");
  CHECK(value("all-reduce 1") == "2 of 2 sums exact");
  CHECK(value("merge_call 1") == 3.25);
}

TEST_CASE("every check can fail, says why, and keeps none of the others from running", "[long]") {
  const Bundle bundle;
  const Outcome outcome = bundle.check(
      {}, {{"FAKE", " gone hang unlearned other-bits single diverges coarse overrun wrong-sum immortal "}});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 1);
  CHECK(results(bundle.table()).size() == all_rows.size());
  Lines failed = failures(bundle.table());
  REQUIRE(failed.size() == 21);
  CHECK(failed[0] == "same weights, mlp 2: 'ffeeddccbbaa9900', expected '00112233445566ff' as on 1 rank");
  CHECK(failed[1] == "same weights, gpt 2: 'ffeeddccbbaa9900', expected 'a0b1c2d3e4f50617' as on 1 rank");
  CHECK(failed[2] == "same weights, convnet 2: 'ffeeddccbbaa9900', expected 'a0b1c2d3e4f50617' as on 1 rank");
  CHECK(failed[3] == "losses, mlp f64 1: 1.00e-09 relative, expected at most 2e-12");
  CHECK(failed[4] == "losses, mlp f32 1: 2.00e-02 relative, expected at most 1e-3");
  CHECK(failed[5].starts_with("losses, gpt f64 1: 1.00e-09 relative, expected at most "));
  CHECK(failed[6].starts_with("losses, convnet f64 1: 1.00e-09 relative, expected at most "));
  CHECK(failed[7].starts_with("losses, gpt f32 1: 2.00e-02 relative, expected at most "));
  CHECK(failed[8] == "MLP accuracy 1: 0.8299 of the test images, expected 0.83");
  CHECK(failed[9].starts_with("strategy suite 2: no end within "));
  // The program's own words, not mpirun's.
  CHECK(failed[10] == R"(strategy suite 4: exit code 4: replica 3 (worker:3, host "b") is gone)");
  CHECK(failed[11].starts_with("losses, mlp bf16 1: 5.00e-02 relative, expected at most "));
  CHECK(failed[12].starts_with("losses, gpt bf16 1: 5.00e-02 relative, expected at most "));
  CHECK(failed[13] == "fault: rank killed 2: it ended as if nothing had failed");
  CHECK(failed[15] == "fault: model too large 1: it ended as if nothing had failed");
  CHECK(failed[17] == "memcheck 1: 3");
  CHECK(failed[18] == "all-reduce 1: 1 of 2 sums exact");
  CHECK(failed[20] == "all-reduce 4: 1 of 2 sums exact");
}

TEST_CASE("probes fail by name where the GPU does not do what is documented") {
  const Bundle bundle;
  const Outcome outcome = bundle.check({"--only", "probes"}, {{"FAKE", " undocumented "}});
  CHECK(outcome.exit_code == 1);
  CHECK(failures(bundle.table()) == Lines{"probes of CUDA 1: 1"});
  CHECK(bundle.table()["checks"][0]["unit"] == "do not hold: stream-runs-in-order");
  CHECK(outcome.out.find("    | DIFFERS stream-runs-in-order: expected 1, got 2\n") != std::string::npos);
}

TEST_CASE("losses fail where products are of less precision than asked for, or a training fails") {
  const Bundle bundle;
  const Outcome outcome = bundle.check({"--only", "losses"}, {{"FAKE", " tf32 bf16-fails "}});
  CHECK(outcome.exit_code == 1);
  CHECK(failures(bundle.table()) ==
        Lines{"losses, mlp f32 1: 1.00e-05 relative in the first step, expected at most 1e-6",
              "losses, gpt f32 1: 1.00e-05 relative, expected at most 5e-7",
              R"(losses, mlp bf16 1: exit code 4: replica 0 (worker:0, host "b") failed: a launch of bf16)",
              R"(losses, gpt bf16 1: exit code 4: replica 0 (worker:0, host "b") failed: a launch of bf16)"});
}

TEST_CASE("metrics that lack a step fail what is made of them") {
  const Bundle bundle;
  CHECK(bundle.check({"--only", "losses, mlp f", "--only", "step time"}, {{"FAKE", " short "}}).exit_code == 1);
  CHECK(failures(bundle.table()) == Lines{"losses, mlp f64 1: 49 steps to compare, expected 50",
                                          "losses, mlp f32 1: 49 steps to compare, expected 50",
                                          "step time, mlp 1: no times in the metrics",
                                          "step time, gpt 1: no times in the metrics"});
}

TEST_CASE("a fault must end in its code and in one sentence that names the rank or the size") {
  const Bundle bundle;
  CHECK(bundle.check({"--only", "fault"}, {{"FAKE", " misnamed talkative "}}).exit_code == 1);
  CHECK(
      failures(bundle.table()) ==
      Lines{
          R"(fault: rank stopped 2: replica 0 (worker:0, host "b") has stopped: no sign of life for 10 s; it was in step 5)",
          R"(fault: no memory 1: 2 sentences, expected one: lockstep: replica 0 (worker:0, host "b") failed: twice;lockstep: error: no 8 bytes of memory are left on cuda:0 of rank 0)"});
  CHECK(bundle.check({"--only", "stopped", "--only", "large"}, {{"FAKE", " other-code crammed "}}).exit_code == 1);
  CHECK(
      failures(bundle.table()) ==
      Lines{
          R"(fault: rank stopped 2: exit code 4, expected 5: replica 1 (worker:1, host "b") has stopped: no sign of life for 10 s; it was in step 5)",
          R"(fault: model too large 1: exit code 4, expected 2: replica 0 (worker:0, host "b") failed: no 8 bytes of memory are left on cuda:0 of rank 0)"});
}

TEST_CASE("losses in bf16 are skipped, in the program's words, where it refuses bf16 on a GPU") {
  const Bundle bundle;
  CHECK(bundle.check({"--only", "bf16"}, {{"FAKE", " no-bf16 "}}).exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"losses, mlp bf16 1 skipped", "losses, gpt bf16 1 skipped"});
  CHECK(bundle.table()["checks"][1]["value"] == "an gpt cannot be computed in bf16");
}

TEST_CASE("what PyTorch cannot do here is skipped, and said") {
  const Bundle bundle;
  CHECK(bundle
            .check({"--only", "PyTorch", "--only", "step time, gpt"},
                   {{"FAKE", " uncompiled torch-fails torch-learns-nothing "}})
            .exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"step time, gpt 1 passed", "PyTorch eager, mlp 1 skipped",
                                         "PyTorch eager, gpt 1 skipped", "PyTorch graph, mlp 1 skipped",
                                         "PyTorch graph, gpt 1 skipped", "PyTorch compiled, mlp 1 skipped",
                                         "PyTorch compiled, gpt 1 skipped"});
  CHECK(bundle.table()["checks"][1]["value"] == "PyTorch's loss went from '2.25' to '2.5'");
  CHECK(bundle.table()["checks"][3]["value"] == "exit code 1: RuntimeError: CUDA error: no kernel image");
  CHECK(bundle.table()["checks"][5]["value"] == "PyTorch 1.0 has no torch.compile");
  // Without lockstep's time there is no ratio.
  CHECK(bundle.check({"--only", "PyTorch eager"}).exit_code == 0);
  CHECK(bundle.table()["checks"][0]["unit"] == "ms a step");
}

TEST_CASE("without a PyTorch that sees a GPU, its times are skipped") {
  const Bundle bundle;
  CHECK(bundle.check({"--only", "PyTorch graph"}, {{"FAKE", " no-torch "}}).exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"PyTorch graph, mlp 1 skipped", "PyTorch graph, gpt 1 skipped"});
  CHECK(bundle.table()["checks"][0]["value"] == "no Python with PyTorch for CUDA");
}

TEST_CASE("gpu-peer.py measures PyTorch, and says what it lacks", "[extended]") {
  const Environment one_thread{{"OMP_NUM_THREADS", "1"}};
  if (run_command({"/usr/bin/python3", "-c", "import numpy, torch"}).exit_code != 0)
    return skip("/usr/bin/python3 has no PyTorch");
  const std::string program = from_meson("LOCKSTEP_SCRIPTS") / "gpu-peer.py";
  const Lines tiny{"--device", "cpu", "--batch", "2", "--blocks", "1", "1"};
  const auto run = [&](Lines command) {
    command.insert(command.begin(), {"/usr/bin/python3", program});
    command.insert(command.end(), tiny.begin(), tiny.end());
    return run_command(command, {.environment = one_thread});
  };
  Outcome outcome = run({"graph", "mlp", "gpt"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  const auto lines = lines_starting_with(outcome.out, "{");
  REQUIRE(lines.size() == 2);
  for (const std::string& line : lines) {
    const Json result = Json::parse(line);
    CHECK(result["framework"] == "PyTorch");
    CHECK(result["mode"] == "graph");
    CHECK(result["median_ms"] > 0);
    // As gpu-check reads them.
    CHECK(line.find("\"median_ms\":") != line.npos);
  }
  CHECK(Json::parse(lines[0])["parameters"] == 669706);
  CHECK(Json::parse(lines[0])["last_loss"] < Json::parse(lines[0])["first_loss"]);
  CHECK(Json::parse(lines[1])["model"] == "gpt");
}

TEST_CASE("checks that the time does not suffice for are not run, and say so", "[extended]") {
  const Bundle bundle;
  Outcome outcome = bundle.check({"--seconds", "0"});
  CHECK(outcome.exit_code == 2);
  const Json table = bundle.table();
  CHECK(table["checks"].size() == all_rows.size());
  CHECK(outcome.out.find(fmt::format("no check failed, but {0} of {0} were not run: the 0 s were up",
                                     all_rows.size())) != std::string::npos);
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
  CHECK(bundle.check({"--only", "weights, mlp", "--only", "probes"}).exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"probes of CUDA 1 passed", "same weights, mlp 1 passed",
                                         "same weights, mlp 2 passed", "same weights, mlp 4 passed"});
  const Outcome outcome = bundle.check({"--only", "wheels"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.err.find("--only 'wheels': no check has that in its name; there are probes of CUDA; GPU unit tests; "
                         "same weights, mlp; same weights, gpt; same weights, convnet; losses") != std::string::npos);
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

TEST_CASE("a training run that fell back to the CPU passes no check of the GPU", "[extended]") {
  const Bundle bundle;
  CHECK(bundle.check({}, {{"FAKE", " on-cpu "}}).exit_code == 1);
  const Lines failed = failures(bundle.table());
  // Those of weights, losses, accuracy and times, but not what programs of their own check.
  CHECK(failed.size() == 19);
  for (const std::string& row : failed) CHECK(row.ends_with(": it ran on 'cpu', expected cuda"));
}

TEST_CASE("programs that find no device where there is a GPU are no success", "[extended]") {
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
  CHECK(bundle.check({"--only", "memcheck"}, environment).exit_code == 0);
  CHECK(results(bundle.table()) == Lines{"memcheck 1 skipped"});
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
