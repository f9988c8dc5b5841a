// What a run has saved, compared with what it computes: checkpoints and exported weights that somebody has changed.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/forged_ledger.hpp"
#include "apps/image_files.hpp"
#include "apps/simulated_training.hpp"
#include "apps/verified.hpp"
#include "support/quiet_log.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// All tensors of a file, of which that called `name` has one bit changed.
struct Altered {
  std::vector<Tensor> values;
  std::vector<NamedTensor> tensors;
  WeightsMetadata metadata;

  Altered(const std::filesystem::path& file, const std::string& name) {
    const OpenTensorFile whole{file};
    metadata = whole.metadata();
    for (const auto& entry : whole.entries()) {
      values.push_back(whole.read(entry));
      if (entry.name == name) values.back().view().data()[0] ^= std::byte{1};
      tensors.push_back({entry.name, values.back().view()});
    }
  }
};

/// What somebody would do who wants a false checkpoint to look right: changes one bit of the value called `name`, or
/// the manifest, and writes all digests anew.
void forge_checkpoint(
    const std::filesystem::path& checkpoint, const std::string& name,
    const std::function<void(Manifest&)>& change = [](Manifest&) {}) {
  Manifest manifest = read_manifest(checkpoint);
  std::vector<Altered> altered;
  std::vector<TensorFile> files;
  for (const Manifest::File& each : manifest.files) altered.emplace_back(checkpoint / each.name, name);
  for (std::size_t i = 0; i < altered.size(); ++i) files.push_back({manifest.files[i].name, altered[i].tensors});
  manifest.files.clear();
  change(manifest);
  write_checkpoint(checkpoint.parent_path(), std::move(manifest), files);
}

}  // namespace

TEST_CASE("a checkpoint or exported weights that hold something else than the steps yield are named") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::filesystem::path original = folder.path() / "original", path = folder.path() / "run",
                              checkpoints = path / "checkpoints";
  (void)train_simulated(1, recorded(original));
  const auto copy = [&] {
    std::filesystem::remove_all(path);
    std::filesystem::copy(original, path,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  };
  const auto now = [&] { return run_in(path, recorded(path)); };
  const auto refuses = [&](int ranks, const std::string& told) {
    CHECK_THROWS_AS(verify(ranks, now()), AuditError);
    CHECK_THROWS_WITH(verify(ranks, now()), Catch::Contains(told));
    copy();
  };
  copy();
  const VerificationResult whole = verify(2, now());
  CHECK(whole.checkpoints == 3);
  CHECK(whole.has_weights);
  const VerificationResult part = verify(1, now(), Range{5, 8});
  CHECK(part.checkpoints == 1);
  CHECK_FALSE(part.has_weights);

  forge_checkpoint(checkpoints / "step-4", "dense_0/bias");
  refuses(2, "step-4/weights.safetensors has another value of 'dense_0/bias'; expected what step 4 yields");
  forge_checkpoint(checkpoints / "step-8", "dense_1/weight@momentum");
  refuses(1, "step-8/optimizer.safetensors has another value of 'dense_1/weight@momentum'");
  forge_checkpoint(checkpoints / "step-8", {}, [](Manifest& manifest) { manifest.state["fit"] += ' '; });
  refuses(1, "step-8 has another state of the training");
  forge_checkpoint(checkpoints / "step-9", {}, [](Manifest& manifest) { manifest.training.front().second += "0"; });
  refuses(1, "step-9 is of another training");
  const Altered weights{path / "weights.safetensors", "dense_1/bias"};
  write_tensors(path / "weights.safetensors", weights.tensors, weights.metadata);
  refuses(1, "/run/weights.safetensors has another value of 'dense_1/bias'; expected what step 9 yields");

  // What is not even as it was written.
  copy();
  {
    std::fstream file{checkpoints / "step-8/weights.safetensors", std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(-1, std::ios::end).put('\x7e');
  }
  CHECK_THROWS_WITH(verify(1, now()), Catch::Contains("has been altered"));

  // A run whose checkpoints are gone is confirmed by the rest.
  copy();
  std::filesystem::remove_all(checkpoints);
  CHECK(verify(1, now()).checkpoints == 0);
}

TEST_CASE("moving averages of a checkpoint that are not those of the run are found") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const ImageFiles images{{.train = 64, .test = 8, .rows = 8, .columns = 8}};
  const std::filesystem::path path = folder.path() / "run";
  const Arguments arguments{"--data",
                            images.path(),
                            "--model",
                            "convnet",
                            "--batch-norm",
                            "--eval-samples",
                            "1",
                            "--steps",
                            "2",
                            "--ledger",
                            "1",
                            "--global-batch",
                            "8",
                            "--checkpoint-every",
                            "1",
                            "--run-dir",
                            path.string()};
  (void)train_simulated(1, arguments);
  CHECK(verify(2, run_in(path, arguments)).checkpoints == 2);
  forge_checkpoint(path / "checkpoints/step-1", "batch_norm_0/moving_mean");
  CHECK_THROWS_WITH(verify(1, run_in(path, arguments)),
                    Catch::Contains("has another value of 'batch_norm_0/moving_mean'"));
  CHECK_THROWS_WITH(verify(1, run_in(path, arguments), Range{2, 2}),
                    Catch::Contains("step-1: holds other weights than the ledger has for step 1"));
}
