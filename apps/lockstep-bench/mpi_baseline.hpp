// MPI as a program without lockstep would call it: the baseline of lockstep's times.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::bench {

/// All ranks of the job, on a communicator of its own. Every method but one is COLL and blocking; CommError if MPI
/// fails. MPI must run throughout its lifetime. AllReduceCounter sees none of its calls.
class MpiBaseline {
 public:
  MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  ~MpiBaseline();

  /// LOCAL. How many ranks share this rank's node.
  int ranks_on_node() const;

  /// Returns when all ranks have called it.
  void barrier();

  /// Sums f32 or f64 elements on the host, in place.
  void all_reduce(const TensorView& tensor);

  /// The least that an agreement costs: the maximum of two 64-bit words, 16 bytes.
  void all_reduce_16_bytes();

  /// The largest over the ranks, element by element. Every rank gives the same number of values.
  std::vector<double> largest(std::vector<double> values);
  /// The same with the mean.
  std::vector<double> mean(std::vector<double> values);

 private:
  struct Comm;
  std::unique_ptr<Comm> comm_;
};

}  // namespace lockstep::bench
