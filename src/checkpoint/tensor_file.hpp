// Tensors in a file, under their names.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// In any memory.
struct NamedTensor {
  std::string name;
  TensorView value;
};

/// Writes the tensors to `path`, whole or not at all. CheckpointError, also where two have one name. Waits for all work
/// of their device.
void write_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);

/// Reads the file at `path`, which must have all of `wanted`, with their types and shapes, and no other: what it holds,
/// in that order, in memory of the host. CheckpointError where it does not, or cannot be read.
std::vector<Tensor> read_tensors(const std::filesystem::path& path, std::span<const NamedTensor> wanted);

}  // namespace lockstep
