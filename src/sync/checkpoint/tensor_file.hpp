// Tensors in a file, under their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/safetensors.hpp"

namespace lockstep {

/// A tensor in memory of any device, and its name.
struct NamedTensor {
  std::string name;
  TensorView value;
};

/// Writes the tensors to `path`, as a whole or not at all. The metadata must be writable. CheckpointError on any
/// failure, and if two tensors have one name. Blocks until all work of their device is done.
void write_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                   const WeightsMetadata& metadata = {});

/// What the manifest of a checkpoint says of a file.
struct ExpectedContents {
  WeightsMetadata metadata;
  std::unordered_map<std::string, std::uint64_t> digests;  ///< of each tensor's elements
};

/// A file of tensors that exists, of which the header has been read. CheckpointError on any failure.
class OpenTensorFile {
 public:
  explicit OpenTensorFile(const std::filesystem::path& path);

  /// CheckpointError if its metadata have been altered.
  OpenTensorFile(const std::filesystem::path& path, ExpectedContents expected);

  const std::filesystem::path& path() const { return path_; }

  /// In the order of their data.
  const std::vector<safetensors::Entry>& entries() const { return header_.entries; }

  const WeightsMetadata& metadata() const { return header_.metadata; }

  /// The tensor of one of them, in host memory; the bytes of one of a foreign type. CheckpointError if it has been
  /// altered.
  Tensor read(const safetensors::Entry& entry) const;

 private:
  std::filesystem::path path_;
  ExistingFile file_;
  safetensors::Header header_;
  std::uint64_t data_;                                                     ///< where the data begins in the file
  std::optional<std::unordered_map<std::string, std::uint64_t>> digests_;  ///< as expected
};

/// "'a', 'b' and 3 more": names for a message.
std::string listed(std::span<const std::string_view> names);

/// Reads the file, which must hold all of `wanted`, with their types and shapes, and nothing else. Returns the tensors
/// in the order of `wanted`, in host memory. CheckpointError if the file holds something else or cannot be read.
std::vector<Tensor> read_tensors(const OpenTensorFile& file, std::span<const NamedTensor> wanted);

/// The same for the file at `path`, which is opened if the names of `wanted` differ.
std::vector<Tensor> read_tensors(const std::filesystem::path& path, std::span<const NamedTensor> wanted);

}  // namespace lockstep
