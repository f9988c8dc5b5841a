#include "models/nn/self_attention.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/ops/sequence_kernels.hpp"

namespace lockstep::nn {
namespace {

const SelfAttentionOptions& checked(const SelfAttentionOptions& options) {
  if (options.width < 1 || options.heads < 1 || options.width % options.heads != 0)
    throw InvalidArgument{
        fmt::format("layer '{}' is {} wide with {} heads; expected 1 or more heads that divide the width", options.name,
                    options.width, options.heads)};
  return options;
}

}  // namespace

SelfAttention::SelfAttention(Strategy& strategy, const SelfAttentionOptions& options, Here here)
    : width_{checked(options).width},
      heads_{options.heads},
      qkv_{strategy,
           {.name = options.name + "/qkv",
            .inputs = width_,
            .outputs = 3 * width_,
            .dtype = options.dtype,
            .seed = options.seed,
            .normal_stddev = options.stddev,
            .functions = options.functions},
           here},
      output_{strategy,
              {.name = options.name + "/output",
               .inputs = width_,
               .outputs = width_,
               .dtype = options.dtype,
               .seed = options.seed,
               .normal_stddev = options.output_stddev,
               .functions = options.functions},
              here} {}

SelfAttention::Activations SelfAttention::take_activations(const ops::Kernels& kernels, Workspace& workspace,
                                                           const Windows& windows) const {
  const ops::KeptScores kept = kernels.sequence().kept_scores();
  const Shape scores = ops::shape_of(kept, windows.count, heads_, windows.context);
  return {.qkv = workspace.take({windows.rows(), 3 * width_}),
          .kept = kept == ops::KeptScores::probabilities ? workspace.take(scores)
                                                         : workspace.take(scores, qkv_.weight().dtype()),
          .mixed = workspace.take({windows.rows(), width_})};
}

SelfAttention::Scratch SelfAttention::take_scratch(Workspace& workspace, const Windows& windows) const {
  return {.d_mixed = workspace.take({windows.rows(), width_}),
          .d_qkv = workspace.take({windows.rows(), 3 * width_}),
          .scores = workspace.take({heads_, windows.context, windows.context})};
}

void SelfAttention::forward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations,
                            const TensorView& y) const {
  const auto& [qkv, kept, mixed] = activations;
  qkv_.forward(kernels, x, ops::Kernels::Activation::none, qkv);
  kernels.sequence().causal_attention({.qkv = qkv, .kept = kept, .y = mixed});
  output_.forward(kernels, mixed, ops::Kernels::Activation::none, y);
}

void SelfAttention::backward(const ops::Kernels& kernels, const TensorView& x, const Activations& activations,
                             const TensorView& dy, const TensorView& dx, const Scratch& scratch,
                             const GradientBuffer& gradients) const {
  output_.backward(kernels, activations.mixed, dy, gradients);
  output_.backward_input(kernels, dy, scratch.d_mixed);
  kernels.sequence().causal_attention_gradient({.qkv = activations.qkv,
                                                .kept = activations.kept,
                                                .dy = scratch.d_mixed,
                                                .d_qkv = scratch.d_qkv,
                                                .scratch = scratch.scores});
  qkv_.backward(kernels, x, scratch.d_qkv, gradients);
  qkv_.backward_input(kernels, scratch.d_qkv, dx);
}

}  // namespace lockstep::nn
