// One block of a transformer: attention, then a small network applied to each position by itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/nn/dense.hpp"
#include "models/nn/layer_norm.hpp"
#include "models/nn/self_attention.hpp"

namespace lockstep::nn {

struct TransformerBlockOptions {
  std::string name = "block";
  std::int64_t width;  ///< a multiple of `heads`
  std::int64_t heads;
  DType dtype = DType::f32;
  /// Seeds the initial weights, which also depend on how many variables the strategy had before.
  std::uint64_t seed = 0;
  double stddev = 0.02;                                   ///< of the initial weights
  double residual_stddev = 0.02;                          ///< of the initial weights whose product is added to x
  ops::Functions functions = ops::Functions::of_library;  ///< for the initial weights
};

/// middle = x + attention(norm(x)); y = middle + contract(gelu(expand(norm(middle)))), for rows x of one position each.
/// This is the order of GPT-2, in which only additions lie between x and y. `expand` is four times as wide as x. Under
/// bf16, x, middle and y and their gradients are f32, because all blocks add to them. Holds no activations; its caller
/// does.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class TransformerBlock {
 public:
  /// What the backward pass needs from the forward pass, which overwrites it. `y` is the result.
  struct Activations {
    TensorView attention_normed, attention_moments;
    SelfAttention::Activations attention;
    TensorView middle;
    TensorView mlp_normed, mlp_moments;
    TensorView expanded, activated;
    TensorView y;
  };

  /// Memory for a backward pass.
  struct Scratch {
    SelfAttention::Scratch attention;
    TensorView d_rounded;  ///< the gradient of y or middle as products read it; empty unless that is rounded
    TensorView d_rows;
    TensorView d_sum;  ///< what is added to that gradient; the same memory as d_rows if it has the same type
    TensorView d_expanded;
  };

  /// COLL. Creates, as "<name>/…", the variables of attention_norm, attention, mlp_norm, expand and contract. Before
  /// that, InvalidArgument for options that its layers refuse.
  TransformerBlock(Strategy& strategy, const TransformerBlockOptions& options, Here here = Here::current());

  /// In order of creation.
  std::vector<Variable> variables() const;

  /// For passes of `kernels`.
  Activations take_activations(const ops::Kernels& kernels, Workspace& workspace, const Windows& windows) const;
  /// The same with memory of its own for y alone: blocks that share the rest each find there what the last one left.
  Activations take_activations(Workspace& workspace, const Windows& windows, const Activations& shared) const;
  Scratch take_scratch(Workspace& workspace, const Windows& windows) const;

  /// Overwrites `activations`, for x [windows * context, width].
  void forward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations) const;

  /// The same without y.
  void recompute(const ops::Kernels& kernels, const TensorView& x, const Activations& activations) const;

  /// Turns d, the gradient of y, into that of x, and overwrites the variables' gradients in `gradients`.
  void backward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations, const TensorView& d,
                const Scratch& scratch, const GradientBuffer& gradients) const;

 private:
  TensorView rounded(const ops::Kernels& kernels, const TensorView& d, const Scratch& scratch) const;

  std::int64_t width_;
  LayerNorm attention_norm_;
  SelfAttention attention_;
  LayerNorm mlp_norm_;
  Dense expand_;
  Dense contract_;
};

}  // namespace lockstep::nn
