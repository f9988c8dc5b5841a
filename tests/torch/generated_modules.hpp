// Modules and batches that a seed draws, for generated.cpp.
#pragma once

// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test::generated {

// clang-format off
/// What programs may have.
enum class Kind {
  accumulate, branch, checkpoint, clip, conv, custom, embedding, frozen, half_zeroed, hooks, idle, kept, norms,
  optimizer, penalty, residual, shards, sparse, tied, twice, two_losses, two_modules, uneven, weights,
};
constexpr const char* kind_names[]{
  "accumulate", "branch", "checkpoint", "clip", "conv", "custom", "embedding", "frozen", "half_zeroed", "hooks", "idle",
  "kept", "norms", "optimizer", "penalty", "residual", "shards", "sparse", "tied", "twice", "two_losses", "two_modules",
  "uneven", "weights",
};
// clang-format on
using Kinds = std::set<Kind>;

/// Equal on all ranks for the same seed.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_{seed} {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

constexpr std::int64_t width = 4, vocabulary = 7, words = 3;

/// x times a scale, by a function with a backward pass of its own.
struct Scaled : torch::autograd::Function<Scaled> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& scale) {
    context->save_for_backward({x, scale});
    return x * scale;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

enum class Form { linear, layer_norm, batch_norm, conv, scaled, tied };

struct LayerPlan {
  Form form = Form::linear;
  bool relu = false, residual = false, twice = false, is_checkpointed = false, also_outside = false, is_hooked = false;
  int branch = -1;  ///< of the batches that use it; -1: all
};

class Layer : public torch::nn::Module {
 public:
  /// `shared` is the weight of a tied one.
  Layer(const LayerPlan& plan, const at::Tensor& shared) : plan_{plan} {
    const auto make = [&](auto module) {
      register_module("module", module);
      return module;
    };
    switch (plan.form) {
      case Form::linear: linear_ = make(torch::nn::Linear{width, width}); break;
      case Form::layer_norm: norm_ = make(torch::nn::LayerNorm{torch::nn::LayerNormOptions{{width}}}); break;
      case Form::batch_norm: batch_norm_ = make(torch::nn::BatchNorm1d{width}); break;
      case Form::conv: conv_ = make(torch::nn::Conv1d{torch::nn::Conv1dOptions{1, 2, 3}.padding(1)}); break;
      case Form::scaled: weight_ = register_parameter("scale", torch::rand({width}) + 0.5); break;
      case Form::tied: weight_ = register_parameter("shared", shared); break;
    }
    if (batch_norm_) batch_norm_->running_var.fill_(1.5), batch_norm_->eval();
  }

  at::Tensor forward(const at::Tensor& x, int branch);

  /// What a checkpoint computes again.
  at::Tensor compute(const at::Tensor& x) {
    const at::Tensor y = value(x);
    return plan_.relu ? y.relu() : y.tanh();
  }

  at::Tensor weight() const { return linear_->weight; }

 private:
  at::Tensor value(const at::Tensor& x) {
    switch (plan_.form) {
      case Form::linear: return linear_(x);
      case Form::layer_norm: return norm_(x);
      case Form::batch_norm: return batch_norm_(x);
      case Form::conv: return conv_(x.unsqueeze(1)).mean(1);
      case Form::scaled: return Scaled::apply(x, weight_);
      case Form::tied: return torch::linear(x, weight_.t());
    }
    return x;
  }

  LayerPlan plan_;
  torch::nn::Linear linear_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::BatchNorm1d batch_norm_{nullptr};
  torch::nn::Conv1d conv_{nullptr};
  at::Tensor weight_;
};

/// Activation checkpointing: computes the layer again in the backward pass, which runs one of its own.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, Layer* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    const at::NoGradGuard plain;
    return layer->compute(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode with_gradients{true};
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor y = reinterpret_cast<Layer*>(context->saved_data["layer"].toInt())->compute(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), {}};
  }
};

inline at::Tensor Layer::forward(const at::Tensor& x, int branch) {
  if (plan_.branch >= 0 && plan_.branch != branch) return x;
  at::Tensor y = x;
  for (int i = 0; i < (plan_.twice ? 2 : 1); ++i) {
    const at::Tensor value = plan_.is_checkpointed ? Checkpoint::apply(y, this) : compute(y);
    y = plan_.residual ? y + value : value;
  }
  if (plan_.is_checkpointed && plan_.also_outside) y = y + compute(x);
  if (plan_.is_hooked && y.requires_grad()) y.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
  return y;
}

/// Some layers, perhaps behind an embedding of words.
class Stage : public torch::nn::Module {
 public:
  Stage(const std::vector<LayerPlan>& plans, const Kinds& kinds, bool takes_words) {
    if (takes_words) {
      embedding_ = register_module(
          "embedding",
          torch::nn::Embedding{torch::nn::EmbeddingOptions{vocabulary, width}.sparse(kinds.contains(Kind::sparse))});
      is_tied_ = kinds.contains(Kind::tied);
      is_twice_ = kinds.contains(Kind::twice);
    }
    at::Tensor shared;
    for (LayerPlan plan : plans) {
      if (plan.form == Form::tied && !shared.defined()) plan.form = Form::linear;
      layers_.push_back(
          register_module("layer" + std::to_string(layers_.size()), std::make_shared<Layer>(plan, shared)));
      if (plan.form == Form::linear) shared = layers_.back()->weight();
    }
    if (kinds.contains(Kind::idle)) register_module("idle", torch::nn::Linear{2, 2});
  }

  at::Tensor forward(at::Tensor x, int branch) {
    if (embedding_) {
      const at::Tensor tokens = x;
      x = embedding_(tokens).sum(1);
      if (is_twice_) x = x + embedding_(tokens.slice(1, 0, 1)).squeeze(1).tanh();
      if (is_tied_) x = x + torch::linear(x, embedding_->weight).tanh().matmul(embedding_->weight);
    }
    for (const auto& layer : layers_) x = layer->forward(x, branch);
    return x;
  }

 private:
  torch::nn::Embedding embedding_{nullptr};
  bool is_tied_ = false, is_twice_ = false;
  std::vector<std::shared_ptr<Layer>> layers_;
};

/// Of one rank or one shard in one pass.
struct Batch {
  at::Tensor inputs, targets, weights;
  std::int64_t samples = 0;
  int branch = 0;
};

struct Net : torch::nn::Module {
  std::shared_ptr<Stage> front, back;
  torch::nn::Linear main{nullptr}, other{nullptr};  ///< of two losses
  Kinds kinds;

  /// The same for the same seed. `other` belongs to the back where the stages are two modules.
  Net(std::uint64_t seed, const Kinds& with) : kinds{with} {
    Draw draw{seed};
    torch::manual_seed(seed);
    front = register_module("front", std::make_shared<Stage>(plans(draw), kinds, kinds.contains(Kind::embedding)));
    back = register_module("back", std::make_shared<Stage>(plans(draw), kinds, false));
    main = back->register_module("main", torch::nn::Linear{width, width});
    if (kinds.contains(Kind::two_losses)) other = back->register_module("other", torch::nn::Linear{width, 1});
    to(at::kDouble);
    if (!kinds.contains(Kind::hooks)) return;
    for (const at::Tensor& each : parameters())
      if (draw.one_in(4)) each.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  }

  std::vector<LayerPlan> plans(Draw& draw) const {
    std::vector<LayerPlan> made(static_cast<std::size_t>(1 + draw.below(3)));
    for (LayerPlan& plan : made) {
      const auto maybe = [&](Kind kind, int in) {
        const bool drawn = draw.one_in(in);
        return drawn && kinds.contains(kind);
      };
      if (maybe(Kind::norms, 3)) plan.form = Form::layer_norm;
      if (maybe(Kind::norms, 3)) plan.form = Form::batch_norm;
      if (maybe(Kind::conv, 3)) plan.form = Form::conv;
      if (maybe(Kind::custom, 2)) plan.form = Form::scaled;
      if (maybe(Kind::tied, 2)) plan.form = Form::tied;
      plan.relu = draw.one_in(3);
      plan.residual = maybe(Kind::residual, 2);
      plan.twice = maybe(Kind::twice, 2);
      plan.is_checkpointed = maybe(Kind::checkpoint, 2);
      plan.also_outside = maybe(Kind::checkpoint, 2);
      plan.is_hooked = maybe(Kind::hooks, 2);
      if (const int branch = draw.below(2); maybe(Kind::branch, 2)) plan.branch = branch;
    }
    return made;
  }

  /// The sums over the samples of the batch: of the main loss, and of the other one.
  std::pair<at::Tensor, at::Tensor> losses(const Batch& batch) {
    const bool has_penalty = kinds.contains(Kind::penalty);
    const at::Tensor x = has_penalty ? batch.inputs.detach().requires_grad_() : batch.inputs;
    const at::Tensor hidden = back->forward(front->forward(x, batch.branch), batch.branch), scores = main(hidden);
    at::Tensor loss = ((scores - batch.targets).square().sum(1) * batch.weights).sum();
    if (has_penalty) {
      points = x;
      loss = loss + torch::autograd::grad({scores.sin().sum()}, {x}, {}, true, true)[0].square().sum();
    }
    if (!kinds.contains(Kind::two_losses)) return {loss, {}};
    return {loss, (other(hidden).squeeze(1).square() * batch.weights).sum()};
  }

  at::Tensor points;  ///< of the penalty
};

}  // namespace lockstep::test::generated
