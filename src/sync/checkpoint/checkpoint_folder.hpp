// The folders of checkpoints, on the one rank that touches files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"
#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/tensor_file.hpp"

namespace lockstep {

/// A file of a checkpoint and what it holds.
struct TensorFile {
  std::string name;
  std::vector<NamedTensor> tensors;
};

/// The links to the newest checkpoint in a folder, and to the one with the lowest loss.
inline constexpr std::string_view latest_link = "latest", best_link = "best";

/// A checkpoint of which every byte has been read.
struct ReadCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
};

/// The file of a checkpoint's variables.
inline constexpr std::string_view weights_file = "weights.safetensors";

/// `step-N`.
std::string checkpoint_name(std::int64_t step);

/// The step of a checkpoint by its name; nothing for another name.
LOCKSTEP_PARTS_API std::optional<std::int64_t> step_in(std::string_view name);

/// Writes a checkpoint of `files` into `folder`, as a whole or not at all, and then points the links to it, and to the
/// best one if that is there. `manifest` says everything but the files. CheckpointError on any failure, and what
/// `before_it_appears` throws, which is called when all that is left is to move it into its place.
void write_checkpoint(
    const std::filesystem::path& folder, Manifest manifest, std::span<const TensorFile> files,
    const std::function<void()>& before_it_appears = [] {});

/// The checkpoints in `folder` by step, the newest first, complete or not, without those that are being set aside
/// (left_checkpoints.hpp). None if there is no such folder. CheckpointError if it cannot be read.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// CheckpointError, which names a checkpoint to take instead, if `path` is a folder of checkpoints or has such a folder
/// in it, as the folder of a run has.
void require_one_checkpoint(const std::filesystem::path& path);

/// As checkpoints_in, with those that are being set aside.
std::vector<std::filesystem::path> all_checkpoints_in(const std::filesystem::path& folder);

/// Removes what killed writers left, and all checkpoints in `folder` that are older than the newest `keep` of those
/// that count, except `written` and the best. Returns one line on what could not be removed; empty if all was.
std::string remove_old_checkpoints(
    const std::filesystem::path& folder, std::int64_t keep, const std::filesystem::path& written,
    const std::function<bool(const std::filesystem::path& checkpoint)>& counts = [](const auto&) { return true; });

/// CheckpointError unless the checkpoint is complete and not damaged. Reads every byte.
void require_whole(const std::filesystem::path& checkpoint);

/// Removes what killed writers left of a checkpoint on its way, or of one that was being removed. To be called by the
/// only one that writes there. What cannot be removed stays.
void remove_parts(const std::filesystem::path& folder);

/// CheckpointError unless `checkpoint` is a folder with a manifest of its step, which names a file of weights.
Manifest read_manifest(const std::filesystem::path& checkpoint);

/// The same, and CheckpointError unless its files have the sizes that the manifest gives.
Manifest read_checkpoint(const std::filesystem::path& checkpoint);

/// Whether there is a manifest, readable or not.
LOCKSTEP_PARTS_API bool has_manifest(const std::filesystem::path& checkpoint);

/// The metadata of the checkpoint's file `name`.
WeightsMetadata metadata_of(const Manifest& manifest, std::string_view name);

/// One of the checkpoint's files, which must hold what the manifest says. CheckpointError as OpenTensorFile.
OpenTensorFile open_checkpoint_file(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                    std::string_view name);

}  // namespace lockstep
