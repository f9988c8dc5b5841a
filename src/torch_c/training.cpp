#include "torch_c/training.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/base/error.hpp>

#include "c/calls.hpp"
#include "torch_c/arrays.hpp"

namespace lockstep::in_c {
namespace {

namespace optim = ::torch::optim;
namespace functional = ::torch::nn::functional;

using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(const Parameters&, const lockstep_model_options&);

template <class Adam, class Options>
std::unique_ptr<optim::Optimizer> make_adam(const Parameters& parameters, const lockstep_model_options& o) {
  return std::make_unique<Adam>(
      parameters, Options{o.learning_rate}.betas({o.beta1, o.beta2}).eps(o.epsilon).weight_decay(o.weight_decay));
}

const std::map<std::string_view, MakeOptimizer> optimizers{
    {"adam", make_adam<optim::Adam, optim::AdamOptions>},
    {"adamw", make_adam<optim::AdamW, optim::AdamWOptions>},
    {"rmsprop",
     [](const Parameters& parameters, const lockstep_model_options& o) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::RMSprop>(
           parameters,
           optim::RMSpropOptions{o.learning_rate}.eps(o.epsilon).weight_decay(o.weight_decay).momentum(o.momentum));
     }},
    {"sgd", [](const Parameters& parameters, const lockstep_model_options& o) -> std::unique_ptr<optim::Optimizer> {
       return std::make_unique<optim::SGD>(
           parameters, optim::SGDOptions{o.learning_rate}.weight_decay(o.weight_decay).momentum(o.momentum));
     }}};

/// The mean loss of an output and its target, and what the sum was divided by.
struct MeanOf {
  at::Tensor mean;
  double samples;
};
using LossOfOutput = MeanOf (*)(const at::Tensor& output, const at::Tensor& target);

void require_alike(const at::Tensor& output, const at::Tensor& target) {
  // Torch would make all pairs of [4, 1] and [4].
  require(output.sizes() == target.sizes(), "the model's output is {}, and its target {}; expected the same shape",
          text_of(output), text_of(target));
}

/// For a loss that LibTorch divides by the number of elements: the rows have equally many.
template <class Loss>
MeanOf by_rows(const at::Tensor& output, const at::Tensor& target, Loss&& loss) {
  require_alike(output, target);
  return {loss(output, target), static_cast<double>(output.size(0))};
}

constexpr std::int64_t ignored_class = -100;  // LibTorch's default

const std::map<std::string_view, LossOfOutput> losses{
    {"binary_cross_entropy_with_logits",
     [](const at::Tensor& output, const at::Tensor& target) {
       return by_rows(output, target, [](const at::Tensor& x, const at::Tensor& y) {
         return functional::binary_cross_entropy_with_logits(x, y);
       });
     }},
    {"cross_entropy",
     [](const at::Tensor& output, const at::Tensor& target) {
       require(!target.is_floating_point(), "the target is {}; expected numbers of classes, which are integers",
               text_of(target));
       const at::Tensor classes = target.to(at::kLong), counted = (classes != ignored_class).sum();
       return MeanOf{functional::cross_entropy(output, classes),
                     static_cast<double>(*counted.data_ptr<std::int64_t>())};
     }},
    {"l1",
     [](const at::Tensor& output, const at::Tensor& target) {
       return by_rows(output, target, [](const at::Tensor& x, const at::Tensor& y) { return at::l1_loss(x, y); });
     }},
    {"mse",
     [](const at::Tensor& output, const at::Tensor& target) {
       return by_rows(output, target, [](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x, y); });
     }},
    {"smooth_l1", [](const at::Tensor& output, const at::Tensor& target) {
       return by_rows(output, target,
                      [](const at::Tensor& x, const at::Tensor& y) { return at::smooth_l1_loss(x, y); });
     }}};

constexpr std::string_view script_loss = "script";

template <class Table>
std::string names_in(const Table& table) {
  std::string names;
  for (const auto& [name, entry] : table) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  return names;
}

constexpr lockstep_model_options defaults = LOCKSTEP_MODEL_OPTIONS;

}  // namespace

Training::Training(const lockstep_model_options* given, int ranks)
    : options{require_size(given ? *given : defaults, "LOCKSTEP_MODEL_OPTIONS")} {
  const lockstep_model_options& o = options;
  require<ConfigError>(o.optimizer, "the optimizer is NULL; expected one of {}", names_in(optimizers));
  require<ConfigError>(o.loss, "the loss is NULL; expected one of {}, '{}'", names_in(losses), script_loss);
  optimizer = std::exchange(options.optimizer, nullptr);
  loss = std::exchange(options.loss, nullptr);
  require<ConfigError>(optimizers.contains(optimizer), "optimizer '{}' is unknown; expected one of {}", optimizer,
                       names_in(optimizers));
  require<ConfigError>(loss == script_loss || losses.contains(loss), "loss '{}' is unknown; expected one of {}, '{}'",
                       loss, names_in(losses), script_loss);
  require<ConfigError>(std::isfinite(o.learning_rate) && o.learning_rate > 0,
                       "learning rate {}; expected a positive number", o.learning_rate);
  for (const auto& [name, value] : {std::pair{"weight decay", o.weight_decay}, std::pair{"momentum", o.momentum},
                                    std::pair{"epsilon", o.epsilon}, std::pair{"clip norm", o.clip_norm}})
    require<ConfigError>(std::isfinite(value) && value >= 0, "{} {}; expected 0 or more", name, value);
  require<ConfigError>(o.momentum == 0 || optimizer == "sgd" || optimizer == "rmsprop",
                       "momentum {} for '{}'; expected 0, or 'sgd' or 'rmsprop'", o.momentum, optimizer);
  for (const auto& [name, value] : {std::pair{"beta1", o.beta1}, std::pair{"beta2", o.beta2}})
    require<ConfigError>(value >= 0 && value < 1, "{} {}; expected 0 or more, and less than 1", name, value);
  require<ConfigError>(o.shards == 0 || o.shards >= ranks,
                       "{} shards on {} ranks; expected 0, or one for each rank or more", o.shards, ranks);
  require<ConfigError>(o.threads >= 0, "{} threads; expected 0 or more", o.threads);
}

std::string Training::text() const {
  const lockstep_model_options& o = options;
  return fmt::format(
      "{}, {}, learning rate {}, weight decay {}, momentum {}, betas {} {}, epsilon {}, clip norm {}, {} shards, seed "
      "{}",
      optimizer, loss, o.learning_rate, o.weight_decay, o.momentum, o.beta1, o.beta2, o.epsilon, o.clip_norm, o.shards,
      o.seed);
}

std::unique_ptr<optim::Optimizer> Training::optimizer_of(const Parameters& parameters) const {
  return optimizers.at(optimizer)(parameters, options);
}

libtorch::Loss Training::loss_of(const ::torch::jit::Module& module, const std::vector<at::Tensor>& outputs,
                                 const std::vector<at::Tensor>& targets, std::int64_t rows) const {
  if (loss == script_loss) {
    const auto method = module.find_method(std::string{"loss"});
    require(method.has_value(), "the model has no method 'loss', which the loss 'script' calls");
    std::vector<c10::IValue> operands{outputs.begin(), outputs.end()};
    operands.insert(operands.end(), targets.begin(), targets.end());
    const c10::IValue value = (*method)(std::move(operands));
    require(value.isTensor(), "the model's method 'loss' has returned no tensor");
    return libtorch::Loss::mean(value.toTensor(), static_cast<double>(rows));
  }
  require(outputs.size() == targets.size(), "the model has {} outputs, and there are {} targets; expected as many",
          outputs.size(), targets.size());
  at::Tensor sum;
  double samples = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto [mean, count] = losses.at(loss)(outputs[i], targets[i]);
    require(i == 0 || count == samples,
            "targets that differ in the number of classes that count; expected as many in each");
    sum = i == 0 ? mean : sum + mean;
    samples = count;
  }
  return libtorch::Loss::mean(sum, samples);
}

}  // namespace lockstep::in_c
