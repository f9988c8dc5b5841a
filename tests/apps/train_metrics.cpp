// What an attestation found, as a file beside the metrics.
#include <filesystem>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "models/record/metrics_file.hpp"
#include "support/job.hpp"

using namespace lockstep;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;

namespace {

const DriftError found{"replica 1 (worker:1, host \"b\") differs",
                       DriftError::Drift{.values = {{"variable 'w'", {1, 0xffffffffffffffff, 1}},
                                                    {"optimizer state 'w@momentum'", {0xabc, 2, 0xabc}}},
                                         .blamed = {1}}};

}  // namespace

TEST_CASE("what an attestation found is whole in the file when on_drift returns, and the metrics stay as they are") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsFile file{path};
  file.on_step({.step = 1, .loss = 2});
  const std::string metrics = read_file(path);
  file.on_drift(7, found);
  const std::string expected = R"({
    "step": 7,
    "message": "replica 1 (worker:1, host \"b\") differs",
    "blamed": [1],
    "differing": [
      {"name": "variable 'w'", "digests": ["0000000000000001", "ffffffffffffffff", "0000000000000001"]},
      {"name": "optimizer state 'w@momentum'", "digests": ["0000000000000abc", "0000000000000002", "0000000000000abc"]}
    ]
  })";
  CHECK(nlohmann::ordered_json::parse(read_file(path.string() + ".attestation.json")) ==
        nlohmann::ordered_json::parse(expected));
  CHECK(read_file(path) == metrics);
}

TEST_CASE("a file of something else is kept, and one of metrics replaced") {
  const TemporaryDirectory folder;
  const auto notes = folder.write("notes.txt", "{\"kind\": \"of notes\"}");
  CHECK_THROWS_WITH(MetricsFile{notes}, "--metrics " + notes.string() +
                                            ": holds something else, which would be lost; expected a new file, "
                                            "or one of metrics");
  CHECK_THROWS_AS(MetricsFile{notes}, ConfigError);
  CHECK(read_file(notes) == "{\"kind\": \"of notes\"}");
  const auto path = folder.path() / "metrics.jsonl";
  for (int run = 0; run < 2; ++run) {
    MetricsFile file{path};
    CHECK(read_file(path).empty());
    file.on_step({.step = 1, .loss = 2});
  }
  CHECK_NOTHROW(MetricsFile{folder.write("empty", "")});
  CHECK_NOTHROW(MetricsFile{"/dev/null"});
}

TEST_CASE("a line that is none of metrics is told by its number, and a last one that was cut goes") {
  const TemporaryDirectory folder;
  const std::string first = R"({"kind":"train","step":1,"loss":2.5})", later = R"({"kind":"eval","step":3})";
  const auto read = [&](const std::string& second, std::string_view end = "\n") {
    const auto path = folder.write("metrics.jsonl", first + "\n" + second + std::string{end});
    try {
      const MetricsFile file{path, 2};
    } catch (const ConfigError& error) {
      const std::string told = error.what(), place = "--metrics " + path.string() + ":2: ";
      REQUIRE(told.starts_with(place));
      REQUIRE(told.ends_with("; expected a line of metrics, as lockstep-train writes it, or a new file"));
      return told.substr(place.size(), told.rfind("; expected") - place.size());
    }
    return read_file(path);
  };
  for (const std::string& text : {std::string{}, std::string{"{\"kind\":\"train\",\"st"}, std::string(3, '\0')})
    CHECK_THAT(read(text), Catch::StartsWith("is no JSON from byte "));
  CHECK_THAT(read("\x80\xff"), Catch::StartsWith("is no JSON from byte "));
  CHECK(read(std::string(60'000, '[')) == "is nested more than 32 levels deep");
  CHECK(read("[1]") == "is no JSON object");
  CHECK(read("{}") == "has no \"kind\"");
  CHECK(read(R"({"kind":"train"})") == "has no \"step\"");
  CHECK(read(R"({"kind":7,"step":1})") == "has \"kind\": 7");
  for (const char* step : {"\"1\"", "1.5", "null", "[1]"})
    CHECK(read(R"({"kind":"train","step":)" + std::string{step} + "}") == "has \"step\": " + std::string{step});
  CHECK(read(std::string(5'000'000, 'x')) == "has more than 4194303 bytes");
  CHECK(read(later) == first + "\n");
  for (const char* cut : {R"({"kind":"train","st)", "\x01"}) CHECK(read(cut, "") == first + "\n");
  CHECK(read(R"({"kind":"train","step":2})", "") == first + "\n" + R"({"kind":"train","step":2})" + "\n");
}

TEST_CASE("what is no file is written to or told, and a pipe is not waited for") {
  const TemporaryDirectory folder;
  const std::string pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto told = [](const std::string& path) {
    return Catch::Matchers::Equals("--metrics " + path + "; expected a file that can be written");
  };
  CHECK_THROWS_WITH(MetricsFile{pipe}, told(pipe + ": is a pipe that nobody reads"));
  CHECK_THROWS_WITH(MetricsFile{folder.path()}, told(folder.path().string() + ": Is a directory"));
  const Descriptor reader{::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  MetricsFile{pipe}.on_step({.step = 1, .loss = 2});
  CHECK_THROWS_AS(MetricsFile{"/dev/full"}.on_step({.step = 1, .loss = 2}), CheckpointError);
  char begin[9] = {};
  CHECK(::read(reader.get(), begin, sizeof begin - 1) == 8);
  CHECK(std::string{begin} == R"({"kind":)");
}

TEST_CASE("a file of metrics that another training writes is refused, and nothing is left beside it") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "metrics.jsonl";
  { MetricsFile{path}.on_step({.step = 1, .loss = 2}); }
  for (const std::int64_t steps : {1, 0}) {
    MetricsFile file{path, steps};  // with a line to keep, it is another file under the name
    file.on_step({.step = 2, .loss = 1});
    const std::string before = read_file(path);
    CHECK_THROWS_WITH(MetricsFile(path, 1), "--metrics " + path.string() +
                                                " is in use by another process; expected a file that no other "
                                                "training writes");
    CHECK_THROWS_AS(MetricsFile(path, 1), ConfigError);
    CHECK(read_file(path) == before);
  }
  CHECK_NOTHROW(MetricsFile{path});
  const std::filesystem::directory_iterator names{folder.path()};
  CHECK(std::distance(begin(names), end(names)) == 1);
}

TEST_CASE("what an earlier run found goes when the next one begins its file") {
  const TemporaryDirectory folder;
  const auto old = folder.write("metrics.jsonl.attestation.json", "{\n  \"step\": 7\n}\n");
  const MetricsFile file{folder.path() / "metrics.jsonl"};
  CHECK_FALSE(std::filesystem::exists(old));
}

TEST_CASE("what cannot be removed is refused at the start, and what cannot be written is no other failure") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file{path};
    std::filesystem::create_directory(path.string() + ".attestation.json");
    (void)folder.write("metrics.jsonl.attestation.json/full", "");
    CHECK_NOTHROW(file.on_drift(7, found));
  }
  CHECK_THROWS_AS(MetricsFile{path}, ConfigError);
  CHECK_THROWS_WITH(MetricsFile{path}, Catch::Contains("--metrics " + path.string() + ": ") &&
                                           Catch::Contains("metrics.jsonl.attestation.json: Directory not empty") &&
                                           Catch::EndsWith("; expected a file that can be removed"));
}
