// Every way to write a cluster spec wrong that we could think of, and what the user is told.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <stdlib.h>  // mkdtemp
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/tf_config.hpp"
#include "support/job.hpp"

using namespace lockstep;

namespace {

struct BadSpec {
  std::string text;
  std::vector<std::string> told;
};

std::string message_about(const std::string& text) {
  try {
    parse_tf_config(text, "bad.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const std::vector<BadSpec> bad_specs{
    // Not JSON, or another shape of it.
    {"", {"nothing in it", "expected an object"}},
    {" \n\t ", {"nothing in it"}},
    {R"({"cluster": {"worker": ["a:1"])", {"ends too early", "line 1, column 31"}},
    {"{\"cluster\":\n {\"worker\": [\"a:1", {"ends too early", "line 2, column 18"}},
    {"{\n  \"cluster\": {\"worker\": [\"a:1\",]}\n}", {"not valid JSON at line 2, column 32"}},
    {R"({'cluster': {}})", {"not valid JSON at line 1, column 2"}},
    {R"({"cluster": {"worker": ["a:1"]}} extra)", {"not valid JSON at line 1, column 34"}},
    {"{\"cluster\": {\"worker\": [\"\xff:1\"]}}", {"not valid JSON at line 1, column 26"}},
    {R"({"cluster": {"worker": [NaN]}})", {"not valid JSON"}},
    {"[]", {"expected an object", "got []"}},
    {"4", {"expected an object", "got 4"}},
    {"null", {"expected an object", "got null"}},
    {"[1e999]", {"a number is too large", "expected an object"}},
    // Keys.
    {"{}", {"\"cluster\" is missing"}},
    {R"({"replicas_per_task": 2})", {"\"cluster\" is missing"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replica_per_task": 4})",
     {"unknown key \"replica_per_task\"", "expected cluster, replicas_per_task, environment"}},
    {R"({"worker": ["a:1"]})", {"unknown key \"worker\""}},
    {R"({"cluster": {"worker": ["a:1"]}, "line\nbreak": 4})", {R"(unknown key "line\nbreak")"}},
    {R"({"cluster": {"worker": ["a:1"]}, "cluster": {"worker": ["b:1"]}})", {"key \"cluster\": given twice"}},
    {R"({"cluster": {"worker": ["a:1"], "worker": ["b:1"]}})", {"key \"cluster.worker\": given twice"}},
    {R"({"cluster": {"worker": {"0": "a:1", "0": "b:1"}}})", {"key \"cluster.worker.0\": given twice"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 1, "replicas_per_task": 2})",
     {"key \"replicas_per_task\": given twice"}},
    // Jobs.
    {R"({"cluster": []})", {"key \"cluster\": expected an object", "got []"}},
    {R"({"cluster": "a:1"})", {"key \"cluster\": expected an object", "got \"a:1\""}},
    {R"({"cluster": {}})", {"key \"cluster\": names no chief and no worker"}},
    {R"({"cluster": {"worker": []}})", {"names no chief and no worker"}},
    {R"({"cluster": {"evaluator": ["a:1"]}})", {"names no chief and no worker"}},
    {R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}})",
     {"key \"cluster.ps\": parameter servers", "expected chief, worker or evaluator"}},
    {R"({"cluster": {"workers": ["a:1"]}})", {"unknown job type \"workers\"", "expected chief, worker or evaluator"}},
    {R"({"cluster": {"Worker": ["a:1"]}})", {"unknown job type \"Worker\""}},
    {R"({"cluster": {"chief": ["a:1", "b:1"]}})", {"key \"cluster.chief\": names 2 chiefs", "at most one"}},
    {R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1", "c:1", "d:1"]}})",
     {"key \"cluster.evaluator\": names 3 evaluators", "at most one"}},
    {R"({"cluster": {"worker": "a:1"}})", {"key \"cluster.worker\": expected a list of addresses", "got \"a:1\""}},
    {R"({"cluster": {"worker": null}})", {"key \"cluster.worker\": expected a list", "got null"}},
    {R"({"cluster": {"worker": 3}})", {"key \"cluster.worker\": expected a list", "got 3"}},
    {R"({"cluster": {"worker": {"0": "a:1", "2": "b:1"}}})",
     {"key \"cluster.worker\": has task 2 but no task 1", "2 tasks to be numbered from 0"}},
    {R"({"cluster": {"worker": {"1": "a:1"}}})", {"has task 1 but no task 0"}},
    {R"({"cluster": {"worker": {"zero": "a:1"}}})", {"expected task indices 0, 1, 2", "got \"zero\""}},
    {R"({"cluster": {"worker": {"-1": "a:1"}}})", {"got \"-1\""}},
    {R"({"cluster": {"worker": {"00": "a:1"}}})", {"got \"00\""}},
    {R"({"cluster": {"worker": {"99999999999": "a:1"}}})", {"got \"99999999999\""}},
    {R"({"cluster": {"worker": {"0": 1}}})", {"key \"cluster.worker[0]\": expected host:port", "got 1"}},
    // Addresses.
    {R"({"cluster": {"worker": ["a:1", "b:1", "a:1"]}})",
     {"key \"cluster.worker[2]\": worker:0 and worker:2 have the same address \"a:1\""}},
    {R"({"cluster": {"chief": ["a:1"], "worker": ["A:1"]}})", {"chief:0 and worker:0", "\"A:1\""}},
    {R"({"cluster": {"worker": ["a:1"], "evaluator": ["a:1"]}})", {"worker:0 and evaluator:0"}},
    {R"({"cluster": {"worker": ["[::1]:1", "[0:0::1]:1"]}})", {"worker:0 and worker:1", "\"[0:0::1]:1\""}},
    {R"({"cluster": {"worker": ["a:1", ""]}})", {"key \"cluster.worker[1]\": expected host:port", "got \"\""}},
    {R"({"cluster": {"worker": ["a:1", 2222]}})", {"key \"cluster.worker[1]\": expected host:port", "got 2222"}},
    {R"({"cluster": {"worker": [["a:1"]]}})", {"key \"cluster.worker[0]\"", "got [\"a:1\"]"}},
    {R"({"cluster": {"chief": ["a"]}})", {"key \"cluster.chief[0]\"", "got \"a\""}},
    {R"({"cluster": {"worker": [":2222"]}})", {"got \":2222\""}},
    {R"({"cluster": {"worker": ["a:"]}})", {"got \"a:\""}},
    {R"({"cluster": {"worker": ["a:0"]}})", {"port from 1 to 65535", "got \"a:0\""}},
    {R"({"cluster": {"worker": ["a:65536"]}})", {"got \"a:65536\""}},
    {R"({"cluster": {"worker": ["a:-1"]}})", {"got \"a:-1\""}},
    {R"({"cluster": {"worker": ["a:22x"]}})", {"got \"a:22x\""}},
    {R"({"cluster": {"worker": ["a:022"]}})", {"got \"a:022\""}},
    {R"({"cluster": {"worker": ["a:99999999999999999999"]}})", {"port from 1 to 65535"}},
    {R"({"cluster": {"worker": ["a b:1"]}})", {"got \"a b:1\""}},
    {R"({"cluster": {"worker": ["grpc://a:1"]}})", {"got \"grpc://a:1\""}},
    {R"({"cluster": {"worker": ["a:1,b:1"]}})", {"got \"a:1,b:1\""}},
    {R"({"cluster": {"worker": ["-a:1"]}})", {"got \"-a:1\""}},
    {R"({"cluster": {"worker": ["a..b:1"]}})", {"got \"a..b:1\""}},
    {R"({"cluster": {"worker": ["::1:2222"]}})", {"got \"::1:2222\""}},
    {R"({"cluster": {"worker": ["[::g]:1"]}})", {"got \"[::g]:1\""}},
    {R"({"cluster": {"worker": ["[fe80::1%]:1"]}})", {"got \"[fe80::1%]:1\""}},
    {R"({"cluster": {"worker": ["[]:1"]}})", {"got \"[]:1\""}},
    {R"({"cluster": {"worker": ["a\nb:1"]}})", {R"(got "a\nb:1")"}},
    {R"({"cluster": {"worker": ["a\u0000b:1"]}})", {R"(got "a\u0000b:1")"}},
    {R"({"cluster": {"worker": [")" + std::string(5000, 'x') + R"("]}})", {"xxx…"}},
    // Replicas per task.
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 0})",
     {"key \"replicas_per_task\": expected a positive integer, got 0"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": -4})", {"positive integer, got -4"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 1.5})", {"positive integer, got 1.5"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 4.0})", {"positive integer, got 4.0"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": "4"})", {"positive integer, got \"4\""}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": true})", {"positive integer, got true"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": null})", {"positive integer, got null"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": [4]})", {"positive integer, got [4]"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 1e30})", {"positive integer, got 1e+30"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 1e999})",
     {"key \"replicas_per_task\": the number is too large"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 99999999999})", {"at most 2147483647"}},
    {R"({"cluster": {"worker": ["a:1"]}, "replicas_per_task": 18446744073709551616})", {"positive integer"}},
    {R"({"cluster": {"worker": ["a:1", "b:1"]}, "replicas_per_task": 1073741824})",
     {"key \"replicas_per_task\": 1073741824 replicas in each of 2 tasks", "at most 2147483647 in all"}},
    // The task of TF_CONFIG.
    {R"({"cluster": {"worker": ["a:1"]}, "task": "worker:0"})", {"key \"task\": expected an object"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"index": 0}})", {"key \"task\": \"type\" is missing"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})", {"key \"task\": \"index\" is missing"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
     {"key \"task.type\": expected \"chief\"", "got \"ps\""}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": 1, "index": 0}})", {"key \"task.type\"", "got 1"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}})",
     {"key \"task.index\": expected the number of a task", "got -1"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0x"}})", {"got \"0x\""}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": ""}})", {"got \"\""}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0.5}})", {"got 0.5"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 99999999999}})", {"got 99999999999"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})",
     {"key \"task\": worker:1 is not in the cluster"}},
    {R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}})",
     {"key \"task\": chief:0 is not in the cluster"}},
};

void check_file_refused(const std::filesystem::path& file, const std::string& told) {
  CHECK_THROWS_AS(ClusterSpec::from_file(file), ConfigError);
  CHECK_THROWS_WITH(ClusterSpec::from_file(file), Catch::StartsWith(file.string() + ": ") && Catch::Contains(told));
}

}  // namespace

TEST_CASE("every bad spec is one line that starts with its source and says what was expected",
          "[D-2][D-3][D-4][D-19][D-21]") {
  for (const BadSpec& bad : bad_specs) {
    const std::string message = message_about(bad.text);
    INFO("spec: " << bad.text.substr(0, 200) << "\nmessage: " << message);
    CHECK_THAT(message, Catch::StartsWith("bad.json: "));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 300);
    for (const std::string& piece : bad.told) CHECK_THAT(message, Catch::Contains(piece));
  }
}

TEST_CASE("a spec cut off anywhere is refused, not misread") {
  const std::string whole =
      R"({"cluster": {"chief": ["a:2222"], "worker": {"0": "[::1]:22"}}, "replicas_per_task": 4})";
  REQUIRE(ClusterSpec::parse(whole).world_size() == 8);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    INFO(whole.substr(0, length));
    CHECK_THAT(message_about(whole.substr(0, length)), Catch::Contains("ends too early"));
  }
}

TEST_CASE("a deeply nested text is an error, not a crash") {
  const std::string open(200'000, '[');
  const std::string close(open.size(), ']');
  for (const std::string& text : {open, open + close, "{\"cluster\": " + open + close + "}"})
    CHECK_THAT(message_about(text), Catch::Contains("nested more than 100 levels deep"));
  // In a key that nobody reads: the outer object is the first level.
  const auto with_arrays = [](std::size_t levels) {
    return R"({"cluster": {"worker": ["a:1"]}, "environment": )" + std::string(levels, '[') + "1" +
           std::string(levels, ']') + "}";
  };
  CHECK(message_about(with_arrays(99)).empty());
  CHECK_THAT(message_about(with_arrays(100)), Catch::Contains("nested more than 100 levels deep"));
}

TEST_CASE("a spec that is no readable file is refused by its name") {
  const lockstep::test::TemporaryDirectory folder;
  check_file_refused(folder.path() / "missing.json", "there is no such file");
  check_file_refused(folder.path(), "is a folder, not a regular file");
  check_file_refused(folder.write("empty.json", ""), "the file is empty");
  check_file_refused("/dev/null", "is a device, not a regular file");
  const std::string pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_file_refused(pipe, "is a pipe, not a regular file");
  check_file_refused(folder.write("blank.json", "\n"), "nothing in it");
  check_file_refused(folder.write("file", "{}") / "below.json", "no such file");
  check_file_refused(folder.write("huge.json", std::string((16u << 20) + 1, ' ')), "larger than 16 MiB");
  check_file_refused(folder.write("cut.json", "{\"cluster\""), "ends too early");
  // Opens, but its first page cannot be read, not even by root.
  check_file_refused("/proc/self/mem", "cannot be read");
}

TEST_CASE("a spec in a file is read as written") {
  const lockstep::test::TemporaryDirectory folder;
  const auto file = folder.write("cluster.json", R"({"cluster": {"worker": ["b:2222", "c:2222"]}})");
  const ClusterSpec spec = ClusterSpec::from_file(file);
  CHECK(spec.world_size() == 2);
  CHECK(spec.source() == file.string());
  CHECK(read_cluster_spec(file) == R"({"cluster": {"worker": ["b:2222", "c:2222"]}})");
}
