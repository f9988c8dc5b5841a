// Data are read once on each node, however many ranks train there: by simulated ranks, whose reads this process counts.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/trainer.hpp"
#include "apps/simulated_training.hpp"
#include "support/child_process.hpp"
#include "support/labelled_files.hpp"
#include "support/quiet_log.hpp"
#include "support/token_file.hpp"
#include "unit/gzip.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The bytes that this process has read so far, from wherever the system had them.
std::uint64_t bytes_read() {
  std::ifstream counters{"/proc/self/io"};
  std::string name;
  std::uint64_t read = 0;
  counters >> name >> read;
  REQUIRE(name == "rchar:");
  return read;
}

/// The bytes that a training of four ranks reads.
std::uint64_t read_by_training(const Arguments& arguments, int ranks_per_node) {
  const CommandLine line = parse(arguments);
  const std::uint64_t before = bytes_read();
  sim::run({.ranks = 4, .ranks_per_node = ranks_per_node, .report = [](std::string_view) {}},
           [&](Strategy& strategy, int) {
             (void)Trainer{strategy, "cpu", line.training}.train();
           });
  return bytes_read() - before;
}

constexpr const char* each_reads = "the ranks of a node share no memory for data, so each of them reads all of it: ";

/// The same where memory is shared. A machine that has none left for a moment says so, and is asked again.
std::uint64_t read_and_shared(const Arguments& arguments, int ranks_per_node) {
  std::string refusals;
  for (int attempt = 0; attempt < 3; ++attempt) {
    CapturedStderr said;
    const std::uint64_t read = read_by_training(arguments, ranks_per_node);
    if (said.text().find(each_reads) == std::string::npos) return read;
    refusals += said.text();
  }
  FAIL(refusals);
  return 0;
}

void check_read_once(const Arguments& arguments, std::uint64_t bytes) {
  for (const int nodes : {1, 2}) {
    const std::uint64_t read = read_and_shared(arguments, 4 / nodes);
    INFO(arguments[1] << " on " << nodes << " nodes: " << read << " bytes read of " << bytes);
    CHECK(read >= nodes * bytes);
    CHECK(static_cast<double>(read) <= 1.05 * static_cast<double>(nodes * bytes));
  }
}

const Arguments short_mlp{"--hidden", "1", "--global-batch", "4", "--steps", "1", "--eval-samples", "4", "--quiet"};

const Arguments short_gpt{"--model", "gpt", "--layers",       "1", "--embed",        "4",
                          "--heads", "1",   "--context",      "4", "--global-batch", "4",
                          "--steps", "1",   "--eval-samples", "4", "--quiet"};

/// Of `count` images of one byte.
void write_images(const TemporaryDirectory& folder, const std::string& part, int count) {
  const std::string extent = std::to_string(count) + ", 1000", labels = std::to_string(count) + ",";
  folder.write("x_" + part + ".npy", npy(npy_header("|u1", extent), std::string(1000 * count, part.front())));
  folder.write("y_" + part + ".npy", npy(npy_header("|u1", labels), std::string(count, '\1')));
}

/// The cache of this process's user, as long as it lives.
class CacheHome {
 public:
  explicit CacheHome(const std::string& path) { ::setenv("XDG_CACHE_HOME", path.c_str(), 1); }
  CacheHome(const CacheHome&) = delete;
  ~CacheHome() { ::unsetenv("XDG_CACHE_HOME"); }
};

/// How many indices of data are in a folder.
int indices_in(const std::filesystem::path& folder) {
  int count = 0;
  if (std::filesystem::exists(folder))
    for (const auto& entry : std::filesystem::directory_iterator{folder}) count += entry.path().extension() == ".index";
  return count;
}

}  // namespace

TEST_CASE("samples are read once a node, in memory and on disk") {
  const TemporaryDirectory folder;
  write_images(folder, "train", 8000);
  write_images(folder, "test", 4);
  const Arguments run = Arguments{"--data", folder.path()} + short_mlp;
  check_read_once(run, 8'000'000);
  check_read_once(run + Arguments{"--data-memory", "1K"}, 8'000'000);
}

TEST_CASE("a text is read once a node, plain, packed and on disk") {
  const TemporaryDirectory folder;
  std::string text;
  while (text.size() < 4'000'000) text += std::to_string(text.size()) + " ";
  const Arguments run = Arguments{"--data", folder.write("text", text)} + short_gpt;
  check_read_once(run, text.size());
  check_read_once(run + Arguments{"--data-memory", "1K"}, text.size());
  const std::string packed = test::packed(text);
  check_read_once(Arguments{"--data", folder.write("packed", packed)} + short_gpt, packed.size());
}

TEST_CASE("tokens are read once a node") {
  const TemporaryDirectory folder;
  const std::string file = folder.write("tokens", token_file(std::vector<std::uint16_t>(2'000'000, 7)));
  check_read_once(Arguments{"--data", file, "--vocabulary", "8"} + short_gpt, 4'001'024);
}

TEST_CASE("ranks that cannot share memory read for themselves, and say why") {
  const TemporaryDirectory folder;
  write_images(folder, "train", 8000);
  write_images(folder, "test", 4);
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1 << 20, before.rlim_max};
  CapturedStderr said;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::uint64_t read = read_by_training(Arguments{"--data", folder.path()} + short_mlp, 4);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(read >= 5 * 8'000'000);
  CHECK_THAT(said.text(), Catch::Contains(std::string{each_reads} + "ftruncate: File too large"));
}

TEST_CASE("a training that goes on reads no more of its data than it needs") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  write_images(folder, "train", 8000);
  write_images(folder, "test", 4);
  const Arguments run = Arguments{"--data",           folder.path(),         "--data-memory",      "1K",
                                  "--checkpoint-dir", folder.path() / "run", "--checkpoint-every", "1"} +
                        short_mlp;
  const std::uint64_t first = read_by_training(run, 4);
  CHECK(first >= 8'000'000);
  const std::uint64_t next = read_by_training(run + Arguments{"--resume", "auto"}, 4);
  CHECK(next < first / 4);
  // Not if anything speaks against it.
  for (const auto& entry : std::filesystem::directory_iterator{folder.path() / "run"})
    if (entry.path().extension() == ".index") std::ofstream{entry.path()} << "damaged";
  CHECK(read_by_training(run + Arguments{"--resume", "auto"}, 4) >= 8'000'000);
  CHECK(read_by_training(run + Arguments{"--resume", "auto"}, 4) < first / 4);
  write_images(folder, "train", 8000);
  CHECK(read_by_training(run + Arguments{"--resume", "auto"}, 4) >= 8'000'000);
}

TEST_CASE("without a folder of checkpoints the index is in the cache, and that of an evaluation is never beside them") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path cache = folder.path() / "cache", checkpoints = folder.path() / "run";
  for (const char* const part : {"train", "test"}) write_images(folder, part, 1000);
  const Arguments data{"--data", folder.path(), "--data-memory", "1K"}, run = data + short_mlp;
  constexpr std::uint64_t all = 2'000'000;
  for (const char* const nowhere : {"", "relative"}) {
    const CacheHome home{nowhere};
    for (int again = 0; again < 2; ++again) CHECK(read_by_training(run, 4) >= all);
  }
  const CacheHome home{cache};
  CHECK(read_by_training(run, 4) >= all);
  CHECK(read_by_training(run, 4) < all / 2);
  CHECK(indices_in(cache / "lockstep") == 1);

  (void)train_simulated(1, run + Arguments{"--checkpoint-dir", checkpoints});
  CHECK(indices_in(checkpoints) == 1);
  (void)train_simulated(1, data + Arguments{"--eval-only", "--resume", checkpoints / "latest", "--quiet"});
  CHECK(indices_in(checkpoints) == 1);
  CHECK(indices_in(cache / "lockstep") == 2);
}

TEST_CASE("ranks of a node that are given different data are refused") {
  const QuietLog quiet;
  const TemporaryDirectory one, other;
  for (const TemporaryDirectory* const folder : {&one, &other}) {
    write_images(*folder, "train", 8);
    write_images(*folder, "test", 4);
  }
  const auto train = [&] {
    sim::run({.ranks = 3, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
      const CommandLine line = parse(Arguments{"--data", (rank == 1 ? one : other).path()} + short_mlp);
      (void)Trainer{strategy, "cpu", line.training}.train();
    });
  };
  CHECK_NOTHROW(train());
  write_images(one, "test", 5);
  CHECK_THROWS_WITH(train(), Catch::Contains("data of digest"));
}
