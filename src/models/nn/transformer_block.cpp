#include "models/nn/transformer_block.hpp"

#include "models/ops/sequence_kernels.hpp"

namespace lockstep::nn {
namespace {

constexpr std::int64_t expansion = 4;

}  // namespace

TransformerBlock::TransformerBlock(Strategy& strategy, const TransformerBlockOptions& options, Here here)
    : width_{options.width},
      attention_norm_{
          strategy, {.name = options.name + "/attention_norm", .width = width_, .dtype = options.dtype}, here},
      attention_{strategy,
                 {.name = options.name + "/attention",
                  .width = width_,
                  .heads = options.heads,
                  .dtype = options.dtype,
                  .seed = options.seed,
                  .stddev = options.stddev,
                  .output_stddev = options.residual_stddev,
                  .functions = options.functions},
                 here},
      mlp_norm_{strategy, {.name = options.name + "/mlp_norm", .width = width_, .dtype = options.dtype}, here},
      expand_{strategy,
              {.name = options.name + "/expand",
               .inputs = width_,
               .outputs = expansion * width_,
               .dtype = options.dtype,
               .seed = options.seed,
               .normal_stddev = options.stddev,
               .functions = options.functions},
              here},
      contract_{strategy,
                {.name = options.name + "/contract",
                 .inputs = expansion * width_,
                 .outputs = width_,
                 .dtype = options.dtype,
                 .seed = options.seed,
                 .normal_stddev = options.residual_stddev,
                 .functions = options.functions},
                here} {}

std::vector<Variable> TransformerBlock::variables() const {
  return {attention_norm_.gain(),
          attention_norm_.bias(),
          attention_.qkv().weight(),
          attention_.qkv().bias(),
          attention_.output().weight(),
          attention_.output().bias(),
          mlp_norm_.gain(),
          mlp_norm_.bias(),
          expand_.weight(),
          expand_.bias(),
          contract_.weight(),
          contract_.bias()};
}

TransformerBlock::Activations TransformerBlock::take_activations(const ops::Kernels& kernels, Workspace& workspace,
                                                                 const Windows& windows) const {
  const std::int64_t rows = windows.rows();
  const DType sums = attention_norm_.gain().dtype();
  return {.attention_normed = workspace.take({rows, width_}),
          .attention_moments = workspace.take({rows, 2}, sums),
          .attention = attention_.take_activations(kernels, workspace, windows),
          .middle = workspace.take({rows, width_}, sums),
          .mlp_normed = workspace.take({rows, width_}),
          .mlp_moments = workspace.take({rows, 2}, sums),
          .expanded = workspace.take({rows, expansion * width_}),
          .activated = workspace.take({rows, expansion * width_}),
          .y = workspace.take({rows, width_}, sums)};
}

TransformerBlock::Activations TransformerBlock::take_activations(Workspace& workspace, const Windows& windows,
                                                                 const Activations& shared) const {
  Activations all = shared;
  all.y = workspace.take({windows.rows(), width_}, attention_norm_.gain().dtype());
  return all;
}

TransformerBlock::Scratch TransformerBlock::take_scratch(Workspace& workspace, const Windows& windows) const {
  const DType sums = attention_norm_.gain().dtype();
  const Shape shape{windows.rows(), width_};
  Scratch scratch{.attention = attention_.take_scratch(workspace, windows), .d_rows = workspace.take(shape)};
  const bool rounds = scratch.d_rows.dtype() != sums;
  scratch.d_sum = rounds ? workspace.take(shape, sums) : scratch.d_rows;
  if (rounds) scratch.d_rounded = workspace.take(shape);
  scratch.d_expanded = workspace.take({windows.rows(), expansion * width_});
  return scratch;
}

void TransformerBlock::recompute(const ops::Kernels& kernels, const TensorView& x, const Activations& all) const {
  attention_norm_.forward(kernels, x, all.attention_normed, all.attention_moments);
  attention_.forward(kernels, all.attention_normed, all.attention, all.middle);
  kernels.add(all.middle, x);
  mlp_norm_.forward(kernels, all.middle, all.mlp_normed, all.mlp_moments);
  expand_.forward(kernels, all.mlp_normed, ops::Kernels::Activation::none, all.expanded);
  kernels.sequence().gelu(all.expanded, all.activated);
}

void TransformerBlock::forward(const ops::Kernels& kernels, const TensorView& x, const Activations& all) const {
  recompute(kernels, x, all);
  contract_.forward(kernels, all.activated, ops::Kernels::Activation::none, all.y);
  kernels.add(all.y, all.middle);
}

TensorView TransformerBlock::rounded(const ops::Kernels& kernels, const TensorView& d, const Scratch& scratch) const {
  if (scratch.d_rounded.count() == 0) return d;
  kernels.convert(d, scratch.d_rounded);
  return scratch.d_rounded;
}

void TransformerBlock::backward(const ops::Kernels& kernels, const TensorView& x, const Activations& all,
                                const TensorView& d, const Scratch& scratch, const GradientBuffer& gradients) const {
  const TensorView &d_rows = scratch.d_rows, &d_sum = scratch.d_sum, &d_expanded = scratch.d_expanded;
  const TensorView dy = rounded(kernels, d, scratch);
  contract_.backward(kernels, all.activated, dy, gradients);
  contract_.backward_input(kernels, dy, d_expanded);
  kernels.sequence().gelu_gradient(all.expanded, d_expanded, d_expanded);
  expand_.backward(kernels, all.mlp_normed, d_expanded, gradients);
  expand_.backward_input(kernels, d_expanded, d_rows);
  mlp_norm_.backward(kernels, all.middle, all.mlp_moments, d_rows, d_sum, gradients);
  kernels.add(d, d_sum);

  attention_.backward(kernels, all.attention_normed, all.attention, rounded(kernels, d, scratch), d_rows,
                      scratch.attention, gradients);
  attention_norm_.backward(kernels, x, all.attention_moments, d_rows, d_sum, gradients);
  kernels.add(d, d_sum);
}

}  // namespace lockstep::nn
