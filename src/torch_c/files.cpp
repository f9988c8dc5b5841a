// What models write to files, and read from them.
#include <algorithm>
#include <cctype>
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

#include "sync/checkpoint/file.hpp"
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
fs::path folder_of(const char* path) {
  const fs::path folder = fs::path{path}.lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

/// Whether it is the name of one checkpoint.
bool is_checkpoint(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::string_view prefix = "step-";
  return name == "latest" ||
         (name.starts_with(prefix) && name.size() > prefix.size() &&
          std::all_of(name.begin() + prefix.size(), name.end(), [](unsigned char each) { return std::isdigit(each); }));
}

void require_own(const lockstep_model& model, const fs::path& folder) {
  if (another_keeps(folder, model))
    throw InvalidArgument{
        fmt::format("another model has its checkpoints in {}; expected a folder for each", folder.string())};
}

CheckpointManager& checkpoints_in(lockstep_model& model, const fs::path& folder) {
  if (!model.checkpoints || model.folder != folder) {
    model.checkpoints.reset();
    model.folder = folder;
    model.checkpoints.emplace(
        model.strategy,
        CheckpointManager::Options{
            .folder = folder, .training = {{"optimizer", model.training.optimizer}, {"loss", model.training.loss}}});
  }
  return *model.checkpoints;
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
        require_own(live, folder_of(folder));
      },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("folder {}", folder), here);
        CheckpointManager& checkpoints = checkpoints_in(live, folder_of(folder));
        checkpoints.save(live.steps, {}, {}, here);
        checkpoints.finish(here);
      });
}

int lockstep_model_restore(lockstep_model* model, const char* from, int64_t* steps, const char* at) {
  return in_model(
      "lockstep_model_restore", model, at,
      [&](lockstep_model& live) {
        require_path(from, "the place to restore from");
        const fs::path path = folder_of(from);
        if (!are_weights(from)) require_own(live, is_checkpoint(path) ? path.parent_path() : path);
      },
      [&](lockstep_model& live, Group& ranks, const Here& here) {
        ranks.agree(fmt::format("from {}", from), here);
        const fs::path path = folder_of(from);
        bool found = true;
        if (are_weights(from)) {
          const auto loaded = load_weights(live.strategy, from, here);
          if (!loaded.rest.empty())
            throw CheckpointError{fmt::format("{} {}; expected all weights of the model", from, loaded.rest)};
        } else if (is_checkpoint(path)) {
          live.steps = checkpoints_in(live, path.parent_path()).resume(path, here).step;
        } else {
          const auto resumed = checkpoints_in(live, path).resume_latest(here);
          found = resumed.has_value();
          if (resumed) live.steps = resumed->step;
        }
        if (steps) *steps = found ? live.steps : -1;
      });
}
