#include <lockstep/nn/transformer_block.hpp>

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
                  .output_stddev = options.residual_stddev},
                 here},
      mlp_norm_{strategy, {.name = options.name + "/mlp_norm", .width = width_, .dtype = options.dtype}, here},
      expand_{strategy,
              {.name = options.name + "/expand",
               .inputs = width_,
               .outputs = expansion * width_,
               .dtype = options.dtype,
               .seed = options.seed,
               .normal_stddev = options.stddev},
              here},
      contract_{strategy,
                {.name = options.name + "/contract",
                 .inputs = expansion * width_,
                 .outputs = width_,
                 .dtype = options.dtype,
                 .seed = options.seed,
                 .normal_stddev = options.residual_stddev},
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

TransformerBlock::Activations TransformerBlock::take_activations(Workspace& workspace, const Windows& windows) const {
  const std::int64_t rows = windows.rows();
  return {.attention_normed = workspace.take({rows, width_}),
          .attention_moments = workspace.take({rows, 2}),
          .attention = attention_.take_activations(workspace, windows),
          .middle = workspace.take({rows, width_}),
          .mlp_normed = workspace.take({rows, width_}),
          .mlp_moments = workspace.take({rows, 2}),
          .expanded = workspace.take({rows, expansion * width_}),
          .activated = workspace.take({rows, expansion * width_}),
          .y = workspace.take({rows, width_})};
}

TransformerBlock::Scratch TransformerBlock::take_scratch(Workspace& workspace, const Windows& windows) const {
  return {.attention = attention_.take_scratch(workspace, windows),
          .d_rows = workspace.take({windows.rows(), width_}),
          .d_expanded = workspace.take({windows.rows(), expansion * width_})};
}

void TransformerBlock::forward(const ops::Kernels& kernels, const TensorView& x, const Activations& all) const {
  attention_norm_.forward(kernels, x, all.attention_normed, all.attention_moments);
  attention_.forward(kernels, all.attention_normed, all.attention, all.middle);
  kernels.add(all.middle, x);
  mlp_norm_.forward(kernels, all.middle, all.mlp_normed, all.mlp_moments);
  expand_.forward(kernels, all.mlp_normed, ops::Activation::none, all.expanded);
  kernels.sequence()->gelu(all.expanded, all.activated);
  contract_.forward(kernels, all.activated, ops::Activation::none, all.y);
  kernels.add(all.y, all.middle);
}

void TransformerBlock::backward(const ops::Kernels& kernels, const TensorView& x, const Activations& all,
                                const TensorView& d, const Scratch& scratch, const GradientBuffer& gradients) const {
  const auto& [attention_scratch, d_rows, d_expanded] = scratch;
  contract_.backward(kernels, all.activated, d, gradients);
  contract_.backward_input(kernels, d, d_expanded);
  kernels.sequence()->gelu_gradient(all.expanded, d_expanded, d_expanded);
  expand_.backward(kernels, all.mlp_normed, d_expanded, gradients);
  expand_.backward_input(kernels, d_expanded, d_rows);
  mlp_norm_.backward(kernels, all.middle, all.mlp_moments, d_rows, d_rows, gradients);
  kernels.add(d, d_rows);

  attention_.backward(kernels, all.attention_normed, all.attention, d, d_rows, attention_scratch, gradients);
  attention_norm_.backward(kernels, x, all.attention_moments, d_rows, d_rows, gradients);
  kernels.add(d, d_rows);
}

}  // namespace lockstep::nn
