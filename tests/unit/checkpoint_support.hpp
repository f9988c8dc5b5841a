// Small checkpoints, and what can happen to their writer.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep::test {

/// What happens to this process at its calls to the file system.
struct Mishap {
  enum class Kind {
    none,
    kill,  ///< at one of them
    fail,  ///< one of them, with `error`
    lack,  ///< all calls of `lacks` fail with `error`; a rename only where there is something of that name
  };
  Kind kind = Kind::none;
  int error = 0;
  int calls_before = 0;
  int calls = 0;
  std::string_view lacks = {};
};
extern Mishap mishap;

/// A training whose weights and optimizer state are `value`.
struct Training {
  explicit Training(float value)
      : weights{Tensor::from({value, 2 * value}, {2})}, momentum{Tensor::from({-value, 1.0F}, {2})} {}

  std::vector<TensorFile> files() const {
    return {{"weights.safetensors", {{"w", weights.view()}}},
            {"optimizer.safetensors", {{"w@momentum", momentum.view()}}}};
  }
  void save(const std::filesystem::path& folder, std::int64_t step, std::optional<CheckpointLoss> best = {}) const {
    write_checkpoint(folder,
                     {.step = step,
                      .best = best,
                      .training = {{"seed", "1"}},
                      .kernels = "some",
                      .state = {{"a", "b"}},
                      .metadata = {{"model", "small"}}},
                     files());
  }

  Tensor weights, momentum;
};

/// The first weight in a checkpoint, every byte of which is read.
inline float weight_in(const std::filesystem::path& checkpoint) {
  const Manifest manifest = read_checkpoint(checkpoint);
  float weight = 0;
  for (const TensorFile& file : Training{0}.files()) {
    const Tensor read = read_tensors(open_checkpoint_file(checkpoint, manifest, file.name), file.tensors).front();
    if (file.name == "weights.safetensors") weight = read.to_vector<float>().front();
  }
  return weight;
}

using Names = std::vector<std::string>;

inline Names names_in(const std::filesystem::path& folder) {
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace lockstep::test
