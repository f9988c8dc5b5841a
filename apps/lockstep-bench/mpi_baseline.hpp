// MPI as a program without lockstep would call it: what lockstep's times are set beside.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::bench {

/// All ranks of the job, on a communicator of its own. Every method but one is COLL and blocks; CommError if MPI fails.
/// MPI must run for as long as it lives. None of its calls is seen by AllReduceCounter.
class MpiBaseline {
 public:
  MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  ~MpiBaseline();

  /// LOCAL. How many ranks share this rank's node.
  int ranks_on_node() const;

  /// Lets no rank go on before all are here.
  void barrier();

  /// Sums f32 or f64 elements on the host, in place.
  void all_reduce(const TensorView& tensor);

  /// What an agreement costs at least: the larger of two 64-bit words, 16 bytes.
  void all_reduce_16_bytes();

  /// Element by element the largest over the ranks. The same number of values on every rank.
  std::vector<double> largest(std::vector<double> values);
  /// The same of their means.
  std::vector<double> mean(std::vector<double> values);

 private:
  struct Comm;
  std::unique_ptr<Comm> comm_;
};

}  // namespace lockstep::bench
