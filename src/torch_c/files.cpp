// What models write to files, and read from them.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/torch.h>

#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"
#include "torch_c/calls.hpp"

// The functions themselves, which take a place.
#undef lockstep_model_save
#undef lockstep_model_checkpoint
#undef lockstep_model_restore

namespace lockstep::in_c {
namespace {

namespace fs = std::filesystem;

bool are_weights(std::string_view file) {
  return file.ends_with(".safetensors");
}

/// Without a slash at its end.
fs::path without_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool has_name_of_one(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == latest_link || name == best_link || step_in(name.substr(0, name.find(aside_suffix)));
}

std::unique_ptr<CheckpointManager> make_manager(lockstep_model& model, const fs::path& folder) {
  return std::make_unique<CheckpointManager>(
      model.strategy,
      CheckpointManager::Options{.folder = folder,
                                 .training = {{"optimizer", model.training.optimizer}, {"loss", model.training.loss}}});
}

/// The number of steps made.
std::int64_t take_weights(lockstep_model& model, const char* file, const Here& here) {
  const auto loaded = load_weights(model.strategy, file, here);
  if (!loaded.rest.empty())
    throw CheckpointError{fmt::format("{} {}; expected all weights of the model", file, loaded.rest)};
  return model.steps;
}

/// The same; -1 if there is no checkpoint. Another folder becomes the model's once it has gone on from there.
std::int64_t go_on_from(lockstep_model& model, const fs::path& path, const Here& here) {
  const auto is_here = [&] { return has_name_of_one(path) || has_manifest(path); };
  const bool is_one = model.strategy.broadcast_object(is_here, here).value();
  const fs::path folder = is_one ? without_slash(path.parent_path() / ".") : path;
  const bool is_known = model.checkpoints && (is_one || model.folder == folder);
  auto another = is_known ? nullptr : make_manager(model, folder);
  CheckpointManager& manager = another ? *another : *model.checkpoints;
  const auto resumed = is_one ? std::optional{manager.resume(path, here)} : manager.resume_latest(here);
  if (!resumed) return -1;
  if (another) {
    model.checkpoints = std::move(another);
    model.folder = folder;
    model.writes = false;
  }
  return model.steps = resumed->step;
}

std::int32_t write_script(torch::jit::Module& module, const char* path) {
  std::ostringstream stream;
  module.eval();
  in_line([&] { module.save(stream); });
  const std::string text = stream.str();
  NewFile file{path, "model"};
  file.write(std::as_bytes(std::span{text}));
  file.commit();
  return 0;
}

}  // namespace
}  // namespace lockstep::in_c

using namespace lockstep;
using namespace lockstep::in_c;

int lockstep_model_save(lockstep_model* model, const char* file, const char* at) {
  return in_model(
      "lockstep_model_save", model, at, [&](lockstep_model&) { require_path(file, "the file"); },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("file {}", file), here);
        if (are_weights(file)) return save_weights(live.strategy, file, {}, here);
        (void)live.strategy.broadcast_object([&] { return write_script(*live.net, file); }, here);
      });
}

int lockstep_model_checkpoint(lockstep_model* model, const char* folder, const char* at) {
  return in_model(
      "lockstep_model_checkpoint", model, at,
      [&](lockstep_model& live) {
        require_path(folder, "the folder");
        require(!has_name_of_one(without_slash(folder)), "{} has the name of a checkpoint; expected that of a folder",
                folder);
        require(!another_writes(without_slash(folder), live),
                "another model has its checkpoints in {}; expected a folder for each", folder);
      },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("folder {}", folder), here);
        const fs::path path = without_slash(folder);
        if (live.folder != path) live.checkpoints = make_manager(live, path);
        live.folder = path;
        live.writes = true;
        live.checkpoints->save(live.steps, {}, {}, here);
        live.checkpoints->finish(here);
      });
}

int lockstep_model_restore(lockstep_model* model, const char* from, int64_t* steps, const char* at) {
  return in_model(
      "lockstep_model_restore", model, at, [&](lockstep_model&) { require_path(from, "the place to restore from"); },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("from {}", from), here);
        const std::int64_t made =
            are_weights(from) ? take_weights(live, from, here) : go_on_from(live, without_slash(from), here);
        if (steps) *steps = made;
      });
}
