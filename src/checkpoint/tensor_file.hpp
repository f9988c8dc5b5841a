// Tensors in a file, under their names.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// A tensor in memory of any device, and its name.
struct NamedTensor {
  std::string name;
  TensorView value;
};

/// Writes the tensors to `path`, as a whole or not at all. CheckpointError on any failure, and if two tensors have one
/// name. Blocks until all work of their device is done.
void write_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);

/// Reads the file at `path`, which must hold all of `wanted`, with their types and shapes, and nothing else. Returns
/// the tensors in the order of `wanted`, in host memory. CheckpointError if the file holds something else or cannot be
/// read.
std::vector<Tensor> read_tensors(const std::filesystem::path& path, std::span<const NamedTensor> wanted);

}  // namespace lockstep
