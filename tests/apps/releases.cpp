// Holds the promise of CHANGELOG.md: this version reads the files of each release since 0.2 (releases/make), on other
// numbers of ranks too, and goes on with their trainings to the bytes in which they ended then.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-inspect/inspection.hpp"
#include "apps/lockstep-report/page.hpp"
#include "apps/lockstep-report/run.hpp"
#include "apps/lockstep-train/recorded_command.hpp"
#include "apps/simulated_training.hpp"
#include "apps/verified.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

/// A run that a release has left, in a copy, and its data.
struct OldRun {
  TemporaryDirectory scratch;
  fs::path folder, data;
  Json description;

  OldRun(const fs::path& release, const std::string& name, const std::string& data_file)
      : folder{scratch.path() / name}, data{release / data_file} {
    fs::copy(release / name, folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    description = Json::parse(read_file(folder / "run.json"));
  }

  std::string digest() const { return description["result"]["weights_digest"]; }

  /// The words of its command, with the folders of today.
  Arguments command() const {
    Arguments words = description["command"];
    words.erase(words.begin());
    for (std::size_t i = 1; i < words.size(); ++i)
      if (words[i - 1] == "--data")
        words[i] = data;
      else if (words[i - 1] == "--run-dir")
        words[i] = folder;
    return words;
  }
};

void check(const OldRun& run) {
  const QuietLog quiet;
  CAPTURE(run.folder);
  const fs::path checkpoints = run.folder / "checkpoints";
  CHECK(inspect(checkpoints / "step-8").trouble.empty());
  CHECK(report::read_runs({run.folder}).size() == 1);

  const Arguments evaluation{"--data", run.data, "--eval-only", "--kernels", "reference", "--quiet"};
  for (const fs::path& weights : {run.folder / "weights.safetensors", checkpoints / "step-12"}) {
    CAPTURE(weights);
    const Trained evaluated = train_simulated(1, evaluation + Arguments{"--init-from", weights});
    CHECK(evaluated.digest() == run.digest());
    CHECK(evaluated.result["eval_loss"] == run.description["result"]["eval_loss"]);
  }

  const RecordedRun recorded = read_run(run.folder);
  const VerificationResult verified = verify(4, recorded, Range{9, 12}, {.data = run.data});
  CHECK(verified.from == 8);
  CHECK(verified.entries == 5);  // the weights of step 8, too
  CHECK(verified.has_weights);

  // It goes on where a kill would have left it.
  fs::remove_all(checkpoints / "step-12");
  fs::remove(run.folder / "weights.safetensors");
  CHECK(train_simulated(1, run.command() + Arguments{"--resume", "auto"}).digest() == run.digest());
}

}  // namespace

TEST_CASE("checkpoints, exports and folders of runs of each release are read, and trainings end in the same bytes") {
  std::vector<fs::path> releases;
  for (const auto& entry : fs::directory_iterator{std::getenv("LOCKSTEP_RELEASES")})
    if (entry.is_directory()) releases.push_back(entry.path());
  REQUIRE(std::ranges::count(releases, "0.2", &fs::path::filename) == 1);
  for (const fs::path& release : releases) {
    check({release, "table", "table.csv"});
    check({release, "text", "text.txt"});
  }
}
