// The rival of DataParallel: c10d's Reducer over gloo, which is what Python's DistributedDataParallel is made of.
#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

namespace lockstep::bench_torch {

struct ReplicaParameters {
  std::vector<at::Tensor> tensors;
  std::vector<bool> sparse;  ///< by parameter: its gradient is
};

class Reducer {
 public:
  virtual ~Reducer() = default;

  /// COLL. Before the forward pass of a step. Gradients are undefined.
  virtual void begin() = 0;

  /// COLL. The backward pass, which leaves the mean gradient over the ranks in `.grad`.
  virtual void backward(const at::Tensor& loss) = 0;
};

/// As DistributedDataParallel makes it by default, or with gradients that live in the buckets and a static graph.
enum class ReducerKind { plain, tuned };

/// Whether the build found gloo's headers.
bool has_reducer();

/// COLL over all processes of MPI, which must share a host. All have equal parameters. ConfigError if the build has no
/// Reducer.
std::unique_ptr<Reducer> make_reducer(const ReplicaParameters& parameters, ReducerKind kind);

}  // namespace lockstep::bench_torch
