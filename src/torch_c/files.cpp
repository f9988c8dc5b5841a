// What models write to files, and read from them.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

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

/// LOCAL, on the chief. Whether it is one checkpoint, or has the name of one.
bool is_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == latest_link || name == best_link || step_in(name.substr(0, name.find(aside_suffix))) ||
         has_manifest(path);
}

CheckpointManager& checkpoints_in(lockstep_model& model, const fs::path& folder) {
  if (!model.checkpoints || model.folder != folder) {
    model.checkpoints.reset();
    model.folder = folder;
    model.writes = false;
    model.checkpoints.emplace(
        model.strategy,
        CheckpointManager::Options{
            .folder = folder, .training = {{"optimizer", model.training.optimizer}, {"loss", model.training.loss}}});
  }
  return *model.checkpoints;
}

/// The number of steps made.
std::int64_t take_weights(lockstep_model& model, const char* file, const Here& here) {
  const auto loaded = load_weights(model.strategy, file, here);
  if (!loaded.rest.empty())
    throw CheckpointError{fmt::format("{} {}; expected all weights of the model", file, loaded.rest)};
  return model.steps;
}

/// The same; -1 if there is no checkpoint.
std::int64_t go_on_from(lockstep_model& model, const fs::path& path, const Here& here) {
  const bool is_one = model.strategy.broadcast_object([&] { return is_checkpoint(path); }, here).value();
  CheckpointManager& checkpoints = checkpoints_in(model, is_one ? without_slash(path.parent_path() / ".") : path);
  const auto resumed = is_one ? std::optional{checkpoints.resume(path, here)} : checkpoints.resume_latest(here);
  return resumed ? model.steps = resumed->step : -1;
}

void write_script(torch::jit::Module& module, const char* path) {
  std::ostringstream stream;
  module.eval();
  in_line([&] { module.save(stream); });
  const std::string text = stream.str();
  NewFile file{path, "model"};
  file.write(std::as_bytes(std::span{text}));
  file.commit();
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
        const auto write = [&] {
          write_script(*live.net, file);
          return std::int32_t{0};
        };
        (void)live.strategy.broadcast_object(write, here);
      });
}

int lockstep_model_checkpoint(lockstep_model* model, const char* folder, const char* at) {
  return in_model(
      "lockstep_model_checkpoint", model, at,
      [&](lockstep_model& live) {
        require_path(folder, "the folder");
        require(!another_writes(without_slash(folder), live),
                "another model has its checkpoints in {}; expected a folder for each", folder);
      },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("folder {}", folder), here);
        CheckpointManager& checkpoints = checkpoints_in(live, without_slash(folder));
        live.writes = true;
        checkpoints.save(live.steps, {}, {}, here);
        checkpoints.finish(here);
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
