// What lockstep-inspect says of checkpoints, and in what it finds them to differ.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <lockstep/training.hpp>

#include "apps/lockstep-inspect/comparison.hpp"
#include "apps/lockstep-inspect/inspection.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep::test::inspect_cases {

using Catch::Contains;

namespace {

struct Saved {
  std::int64_t step = 1;
  std::string seed = "1";
  std::vector<float> w = {1, 2, 3};
  std::string second = "b";  ///< the name of another variable
  WeightsMetadata metadata = {};
};

/// A checkpoint in `folder`, of two variables.
std::filesystem::path save(const std::filesystem::path& folder, const Saved& saved = {}) {
  sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
    (void)strategy.create_variable({.name = "w"}, [&] { return Tensor::from(saved.w, {std::ssize(saved.w)}); });
    (void)strategy.create_variable({.name = saved.second}, [] { return Tensor::scalar(std::int64_t{7}); });
    strategy.seal();
    CheckpointManager checkpoints{
        strategy,
        {.folder = folder, .training = {{"seed", saved.seed}}, .kernels = "some", .metadata = saved.metadata}};
    checkpoints.save(saved.step, {{"fit", std::string(100, 'x')}});
    checkpoints.finish();
  });
  return folder / ("step-" + std::to_string(saved.step));
}

/// Inverts a bit of the file's last byte.
void alter(const std::filesystem::path& file) {
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  std::ofstream{file, std::ios::binary} << bytes;
}

}  // namespace

TEST_CASE("the folder of a run is shown as that of its checkpoints") {
  const TemporaryDirectory folder;
  (void)save(folder.path() / "checkpoints");
  folder.write("run.json", "{}");
  CHECK(inspect(folder.path()).text == inspect(folder.path() / "checkpoints").text);
}

TEST_CASE("a checkpoint is shown with its manifest and its tensors, and an altered tensor is named") {
  const TemporaryDirectory folder;
  const auto checkpoint = save(folder.path());
  const Report report = inspect(checkpoint);
  CHECK(report.trouble.empty());
  for (const char* const told :
       {"step          1\n", "seed          1\n", "kernels       some\n", "xxx… (100 bytes)\n",
        "program       lockstep " LOCKSTEP_VERSION "\n", "weights.safetensors: 2 tensors, 4 elements\n", "w  f32[3]  ",
        "b  i64[]   ", "optimizer.safetensors: 0 tensors, 0 elements\n"})
    CHECK_THAT(report.text, Contains(told));
  // A file alone has no digest to compare with.
  const Report file = inspect(checkpoint / "weights.safetensors");
  CHECK(file.trouble.empty());
  const std::size_t begin = report.text.find("  w  f32[3]  ");
  const std::string line = report.text.substr(begin, report.text.find('\n', begin) + 1 - begin);
  CHECK_THAT(file.text, Contains(line));

  alter(checkpoint / "weights.safetensors");
  const Report altered = inspect(checkpoint);
  CHECK_THAT(altered.trouble, Contains("'w' is not what the manifest says"));
  CHECK_THAT(altered.text, Contains("has been altered: the manifest has " + line.substr(line.size() - 17, 16)));
  alter(checkpoint / "manifest.json");
  CHECK_THROWS_AS(inspect(checkpoint), CheckpointError);
  CHECK_THROWS_AS(inspect(folder.path() / "nothing"), ConfigError);
}

TEST_CASE("metadata are shown and compared, and those that are not the manifest's are named") {
  const TemporaryDirectory folder;
  const auto one = save(folder.path() / "one", {.metadata = {{"model", "small"}}}),
             other = save(folder.path() / "other", {.metadata = {{"model", "large"}}});
  const auto file = one / "weights.safetensors", other_file = other / "weights.safetensors";
  CHECK_THAT(inspect(one).text, Contains("  metadata model  small\n"));
  CHECK_THAT(inspect(file).text, Contains("  metadata model  small\n"));
  const Report checkpoints = compare(one, other), files = compare(file, other_file);
  CHECK_THAT(checkpoints.text, Contains("  metadata model: small | large\n"));
  CHECK_THAT(checkpoints.trouble, Contains("differ: 1 entry of the manifest, 0 of 2 tensors"));
  CHECK_THAT(files.text, Contains("  metadata model: small | large\n"));
  CHECK_THAT(files.trouble, Contains("differ: 1 entry of the metadata, 0 of 2 tensors"));
  CHECK(compare(one, file).trouble.empty());

  std::filesystem::copy_file(other_file, file, std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(inspect(one).trouble, Contains("'metadata' is not what the manifest says"));
}

TEST_CASE("a very long name does not make every line as long") {
  const TemporaryDirectory folder;
  const auto file = save(folder.path(), {.second = std::string(10'000, 'x')}) / "weights.safetensors";
  CHECK(inspect(file).text.size() < 11'000);
  CHECK(compare(file, file).text.size() < 11'000);
}

TEST_CASE("the checkpoints in a folder are listed, the newest first, with what is wrong with each") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  for (const std::int64_t step : {1, 5, 10}) (void)save(folder.path(), {.step = step});
  CHECK(inspect(folder.path()).trouble.empty());
  alter(folder.path() / "step-5" / "weights.safetensors");
  std::filesystem::resize_file(folder.path() / "step-1" / "weights.safetensors", 3);
  std::filesystem::copy_file(folder.path() / "step-10" / "weights.safetensors", folder.path() / "step-7");
  std::filesystem::create_symlink("step-6", folder.path() / "step-6");
  const Report report = inspect(folder.path());
  CHECK_THAT(report.trouble, Contains("4 of 5 checkpoints damaged, such as step-7"));
  std::istringstream lines{report.text};
  std::string line;
  for (const char* const told :
       {": 5 checkpoints", "  step-10       complete  2 tensors", "  step-7        damaged   ",
        "  step-6        damaged   ", "  step-5        damaged   ", "  step-1        damaged   "}) {
    std::getline(lines, line);
    CHECK_THAT(line, Contains(told));
    CHECK(line.ends_with("  (latest)") == line.starts_with("  step-10 "));
  }
}

TEST_CASE("two checkpoints are compared fact by fact and element by element") {
  const TemporaryDirectory folder;
  const auto one = save(folder.path() / "one");
  CHECK(compare(one, save(folder.path() / "same")).trouble.empty());

  const Report values = compare(one, save(folder.path() / "values", {.step = 2, .seed = "3", .w = {1, 2.5F, 1}}));
  CHECK_THAT(values.trouble, Contains("differ: 2 entries of the manifest, 1 of 2 tensors"));
  for (const char* const told :
       {"  step: 1 | 2\n", "  seed: 1 | 3\n", "  b  equal\n", "  w  largest difference 2, in 2 of 3 elements\n"})
    CHECK_THAT(values.text, Contains(told));
  // A NaN beside a number is no small difference, and the sign of a zero is one of bytes.
  CHECK_THAT(compare(one, save(folder.path() / "nan", {.w = {NAN, 2, 9}})).text, Contains("difference nan, in 2 of 3"));
  const auto zero = save(folder.path() / "zero", {.w = {0, 0}}),
             minus = save(folder.path() / "minus", {.w = {-0.0F, 0}});
  CHECK_THAT(compare(zero, minus).text, Contains("largest difference 0, in 1 of 2"));

  const Report others = compare(one, save(folder.path() / "others", {.w = {1}, .second = "c"}));
  for (const char* const told : {"b  only in the first\n", "c  only in the second\n", "w  f32[3] | f32[1]\n"})
    CHECK_THAT(others.text, Contains(told));
  // Of a checkpoint, a file is compared with the weights alone.
  CHECK(compare(one, one / "weights.safetensors").trouble.empty());
  CHECK_THROWS_WITH(compare(folder.path() / "one", one), Contains("is a folder of checkpoints; expected one of them"));
}

TEST_CASE("the program says by its exit code whether all is well, and its help fits 80 columns") {
  const char* const program = std::getenv("LOCKSTEP_INSPECT");
  REQUIRE(program);
  const TemporaryDirectory folder;
  const std::string one = save(folder.path() / "one"), other = save(folder.path() / "other", {.seed = "2"});
  const auto check = [&](const std::vector<std::string>& arguments, int exit_code, const std::string& told) {
    std::vector<std::string> command{program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_command(command);
    CHECK(outcome.exit_code == exit_code);
    CHECK_THAT(exit_code == 0 ? outcome.out : outcome.err, Contains(told));
    CHECK(lines_starting_with(outcome.err, "lockstep: error: ").size() == (exit_code == 0 ? 0 : 1));
    return outcome;
  };
  check({one}, 0, "");
  check({one, one}, 0, "w  equal");
  check({one, other}, 1, "differ: 1 entry of the manifest, 0 of 2 tensors");
  check({}, 2, "no path was given; expected lockstep-inspect PATH [PATH]");
  check({one, one, one}, 2, "3 paths were given");
  check({"--deep", one}, 2, "there is no option --deep");
  check({"--version"}, 0, "lockstep-inspect " LOCKSTEP_VERSION);
  alter(one + "/weights.safetensors");
  check({one}, 1, "is not what the manifest says");
  std::istringstream lines{check({"--help"}, 0, "Usage: lockstep-inspect PATH [PATH]").out};
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("a reader that has seen enough is no failure, and ends the program without a word") {
  const char* const program = std::getenv("LOCKSTEP_INSPECT");
  REQUIRE(program);
  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  ::close(pipe[0]);
  CapturedStderr errors;
  ChildProcess child{[&] {
    ::signal(SIGPIPE, SIG_DFL);
    ::dup2(pipe[1], STDOUT_FILENO);
    return ::execl(program, program, "--help", nullptr);
  }};
  ::close(pipe[1]);
  CHECK(child.wait() == 0);
  CHECK(errors.text().empty());
}

}  // namespace lockstep::test::inspect_cases
