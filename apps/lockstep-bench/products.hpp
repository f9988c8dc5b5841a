// How fast the matrix products of a training step are, with lockstep's kernels and with the BLAS libraries of this
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step.hpp"

namespace lockstep::bench {

/// A product that a rank computes in a training step: c [m, n] = op(a) · op(b), where op(a) is [m, k].
struct StepProduct {
  std::string name;  ///< "dense_0", "dense_0_inputs": of the layer, for its inputs' gradient, for its weights'
  std::int64_t m, n, k;
  ops::Kernels::Transpose transpose_a = ops::Kernels::Transpose::no;
  ops::Kernels::Transpose transpose_b = ops::Kernels::Transpose::no;
  std::int64_t terms = 1;  ///< so many products are added up into c: one of each shard
  std::int64_t count = 1;  ///< how often the step computes this: once for each layer of this shape

  /// Floating-point operations in a step.
  double flops() const;
};

/// The products of dense layers, in f32, of a rank that has so many shards of so many samples. Attention and
/// convolutions are not among them.
std::vector<StepProduct> products_of(StepModel model, std::int64_t hidden, std::int64_t shards,
                                     std::int64_t samples_of_shard);

struct ArithmeticOptions {
  static constexpr const char* name = "arithmetic";

  /// The model, its hidden units, global batch and shards.
  StepOptions step;
  std::int64_t warm_up = 1;
  std::int64_t iterations = 15;
};

/// COLL, on the CPU. All ranks compute the products of one of them at the same time, each on one thread. `add` gets a
/// row for each product and one for all of them, the same on every rank: the rates, in 10^9 floating-point operations
/// per second, of the kernels that a training would take and of each library of blas_libraries() on this rank's host.
/// They take turns. A rate belongs to the median over the iterations of the slowest rank's
/// processor time. The last column is
/// the kernels' share of processor_peak(), 0 where that is not known.
///
/// ConfigError, naming --shards, for a number of shards that does not fit the ranks.
void bench_arithmetic(Runtime& runtime, const ArithmeticOptions& options, const AddRow& add);

}  // namespace lockstep::bench
