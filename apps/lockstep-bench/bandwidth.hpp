// How fast all ranks at once read and write memory that is their own: what no reduction in memory can beat.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::bench {

/// Reads and writes as many bytes as an all-reduce in memory must: of a sum over ranks of one node, each rank reads its
/// slice of all tensors and writes it to all, so it reads and writes as much as one tensor holds.
class Bandwidth {
 public:
  /// For tensors of up to `bytes` bytes.
  explicit Bandwidth(std::int64_t bytes);

  /// LOCAL. Copies.
  void copy(std::int64_t bytes);

  /// LOCAL. Overwrites two arrays of numbers with their sum, by the loop of the reductions.
  void add(std::int64_t bytes);

 private:
  Tensor memory_;  ///< two arrays
};

/// LOCAL. Reads numbers as fast as memory gives them. Returns their sum, in some order.
double read_all(std::span<const double> numbers);
float read_all(std::span<const float> numbers);

}  // namespace lockstep::bench
