// Self-attention: the layer in which the positions of a sequence learn of each other.
#pragma once

#include <cstdint>
#include <string>

#include "models/nn/dense.hpp"
#include "models/nn/workspace.hpp"

namespace lockstep::nn {

/// `count` windows of `context` positions each. A position is a row of a layer's input.
struct Windows {
  std::int64_t count;
  std::int64_t context;

  std::int64_t rows() const { return count * context; }
};

struct SelfAttentionOptions {
  std::string name = "attention";
  std::int64_t width;  ///< a multiple of `heads`
  std::int64_t heads;
  DType dtype = DType::f32;
  /// Seeds the initial weights, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
  double stddev = 0.02;                                   ///< of the initial weights of queries, keys and values
  double output_stddev = 0.02;                            ///< of the initial weights of the output
  ops::Functions functions = ops::Functions::of_library;  ///< for the initial weights
};

/// Causal self-attention with several heads (ops::CausalAttention) between two dense layers. "<name>/qkv" makes
/// queries, keys and values from x, and "<name>/output" makes y from what the heads mixed. Holds no activations; its
/// caller does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class SelfAttention {
 public:
  /// What the backward pass needs from the forward pass, which overwrites it.
  struct Activations {
    TensorView qkv;
    TensorView kept;
    TensorView mixed;
  };

  /// Memory for a backward pass.
  struct Scratch {
    TensorView d_mixed;
    TensorView d_qkv;
    TensorView scores;
  };

  /// COLL. Creates the variables of the two dense layers. Before that, InvalidArgument for a size below 1, a width that
  /// the heads do not divide, or a dtype other than f32 and f64.
  SelfAttention(Strategy& strategy, const SelfAttentionOptions& options, Here here = Here::current());

  const Dense& qkv() const { return qkv_; }
  const Dense& output() const { return output_; }

  /// For passes of `kernels`.
  Activations take_activations(const ops::Kernels& kernels, Workspace& workspace, const Windows& windows) const;
  Scratch take_scratch(Workspace& workspace, const Windows& windows) const;

  /// Overwrites y [windows * context, width], from x of the same shape.
  void forward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations,
               const TensorView& y) const;

  /// The gradients of the weights, summed over all positions, and of x. Overwrites all of them; dx may be dy.
  void backward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations, const TensorView& dy,
                const TensorView& dx, const Scratch& scratch, const GradientBuffer& gradients) const;

 private:
  std::int64_t width_;
  std::int64_t heads_;
  Dense qkv_;
  Dense output_;
};

}  // namespace lockstep::nn
