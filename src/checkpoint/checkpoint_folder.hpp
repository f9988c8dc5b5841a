// The folders of checkpoints, on the one rank that touches files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

#include "checkpoint/manifest.hpp"
#include "checkpoint/tensor_file.hpp"

namespace lockstep {

/// A file of a checkpoint and what it holds.
struct TensorFile {
  std::string name;
  std::vector<NamedTensor> tensors;
};

/// A checkpoint of which every byte has been read.
struct ReadCheckpoint {
  std::filesystem::path path;
  Manifest manifest;
};

/// The file of a checkpoint's variables.
inline constexpr std::string_view weights_file = "weights.safetensors";

/// `step-N`.
std::string checkpoint_name(std::int64_t step);

/// Writes a checkpoint of `files` into `folder`, as a whole or not at all, and then makes `folder`/latest point to it,
/// and `folder`/best to the best one if that is there. `manifest` says everything but the files. CheckpointError on any
/// failure.
void write_checkpoint(const std::filesystem::path& folder, Manifest manifest, std::span<const TensorFile> files);

/// The checkpoints in `folder` by step, the newest first, complete or not. None if there is no such folder.
/// CheckpointError if it cannot be read.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// Removes all but the newest `keep` checkpoints in `folder`, the one just written and the best, and what killed
/// writers left.
void remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t keep,
                            const std::filesystem::path& written);

/// CheckpointError unless `checkpoint` is a folder with a manifest and files of the sizes that it gives.
Manifest read_checkpoint(const std::filesystem::path& checkpoint);

/// CheckpointError, which names the file at `path`, unless the tensor's digest is that of the manifest.
void require_digest(const std::filesystem::path& path, const Manifest::File& file, std::string_view tensor,
                    const TensorView& value);

/// The tensors of one of the checkpoint's files, in the order of `wanted`. CheckpointError as read_tensors, and if one
/// has another digest than the manifest gives.
std::vector<Tensor> read_checkpoint_file(const std::filesystem::path& checkpoint, const Manifest& manifest,
                                         const TensorFile& wanted);

}  // namespace lockstep
