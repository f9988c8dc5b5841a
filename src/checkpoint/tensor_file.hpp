// Tensors in a file, under their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

#include "checkpoint/file.hpp"
#include "checkpoint/safetensors.hpp"

namespace lockstep {

/// A tensor in memory of any device, and its name.
struct NamedTensor {
  std::string name;
  TensorView value;
};

/// Writes the tensors to `path`, as a whole or not at all. CheckpointError on any failure, and if two tensors have one
/// name. Blocks until all work of their device is done.
void write_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);

/// A file of tensors that exists, of which the header has been read. CheckpointError on any failure.
class OpenTensorFile {
 public:
  explicit OpenTensorFile(const std::filesystem::path& path);

  /// In the order of their data.
  const std::vector<safetensors::Entry>& entries() const { return entries_; }

  /// The tensor of one of them, in host memory.
  Tensor read(const safetensors::Entry& entry) const;

 private:
  ExistingFile file_;
  std::vector<safetensors::Entry> entries_;
  std::uint64_t data_;  ///< where the data begins in the file
};

/// "'a', 'b' and 3 more": names for a message.
std::string listed(std::span<const std::string_view> names);

/// Reads the file at `path`, which must hold all of `wanted`, with their types and shapes, and nothing else. Returns
/// the tensors in the order of `wanted`, in host memory. CheckpointError if the file holds something else or cannot be
/// read.
std::vector<Tensor> read_tensors(const std::filesystem::path& path, std::span<const NamedTensor> wanted);

}  // namespace lockstep
