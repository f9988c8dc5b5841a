// How fast the ranks of a node read and write memory: what no reduction in memory can beat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/lockstep-bench/mpi_baseline.hpp"

namespace lockstep::bench {

/// Reads and writes as many bytes as an all-reduce in memory must: of a sum over ranks of one node, each rank reads its
/// slice of all tensors and writes it to all, so it reads and writes as much as one tensor holds.
class Bandwidth {
 public:
  /// COLL, as its end is. For tensors of up to `bytes` bytes.
  explicit Bandwidth(std::int64_t bytes) : arrays_{bytes} {}

  /// LOCAL. Copies within memory of its own.
  void copy(std::int64_t bytes);

  /// LOCAL. Copies to this rank's array what it would bring to a sum.
  void write(std::span<const std::byte> tensor);

  /// LOCAL. After all have written: overwrites this rank's slice of all arrays with the sum, by the loop of the
  /// reductions. Nobody waits for anybody.
  void add(std::int64_t bytes);

 private:
  NodeArrays arrays_;
};

/// LOCAL. Reads numbers as fast as memory gives them. Returns their sum, in some order.
double read_all(std::span<const double> numbers);
float read_all(std::span<const float> numbers);

}  // namespace lockstep::bench
