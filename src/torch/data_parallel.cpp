#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/torch/data_parallel.hpp>

#include "torch/step.hpp"
#include "torch/sync_sums.hpp"

namespace lockstep::libtorch {

struct ModuleOptimizer::Impl {
  std::shared_ptr<ReplicatedModule::Impl> module;
  std::unique_ptr<Optimizer> rules;
  std::vector<std::size_t> present = {};
  std::vector<Gradient> gradients = {};  ///< of the parameters that are present
};

ModuleOptimizer::ModuleOptimizer(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
ModuleOptimizer::ModuleOptimizer(ModuleOptimizer&&) noexcept = default;
ModuleOptimizer::~ModuleOptimizer() = default;

void ModuleOptimizer::step(ReplicaContext& context, Here here) {
  ReplicatedModule::Impl& module = *impl_->module;
  module.require_in_place();
  std::vector<std::size_t> present = module.present();
  for (const std::size_t i : present) module.bring_home(i);
  if (present != impl_->present) {
    impl_->present = std::move(present);
    std::vector<Variable> variables;
    for (const std::size_t i : impl_->present) variables.push_back(module.parameters[i].variable);
    impl_->gradients = gradients_in_store(module.store, variables, here);
  }
  module.device->stream_follows();
  impl_->rules->apply_reduced_gradients(context, impl_->gradients, here);
  module.device->torch_follows();
}

void ModuleOptimizer::zero_grad() {
  impl_->module->zero_grad();
}

Optimizer& ModuleOptimizer::rules() {
  return *impl_->rules;
}

ReplicatedModule::ReplicatedModule(Strategy& strategy, std::shared_ptr<::torch::nn::Module> module,
                                   const DataParallelOptions& options, Here here)
    : impl_{std::make_shared<Impl>(strategy, *module, options, here)} {
  impl_->update_trained();
}

ReplicatedModule::ReplicatedModule(ReplicatedModule&&) noexcept = default;
ReplicatedModule::~ReplicatedModule() = default;

MeanLoss ReplicatedModule::backward(ReplicaContext& context, const Loss& loss, Here here) {
  return Step{*impl_, context, here}.of_batch(loss);
}

MeanLoss ReplicatedModule::backward_shards(ReplicaContext& context, int shards, const std::function<Loss(int)>& compute,
                                           Here here) {
  return Step{*impl_, context, here}.of_shards(shards, compute);
}

void ReplicatedModule::accumulate(const Loss& loss, Here here) {
  impl_->require_loss(loss);
  impl_->require_in_place();
  impl_->update_trained();
  impl_->begin();
  const auto pass = [&] {
    impl_->run_autograd(loss, [&](std::size_t parameter) {
      impl_->bring_home(parameter);
      impl_->has[parameter] = 1;
    });
  };
  try {
    SyncSums on_the_way{loss.value()};
    if (on_the_way.list().counts.empty()) {
      pass();
    } else {
      run_pass_with_sums(on_the_way, "accumulate of " + impl_->text, impl_->store, *impl_->device, here, pass);
    }
    impl_->note_accumulated(loss);
  } catch (...) {
    impl_->zero_grad();
    throw;
  }
}

void ReplicatedModule::zero_grad() {
  impl_->zero_grad();
}

double ReplicatedModule::clip_norm(double largest) {
  if (!(largest > 0)) throw InvalidArgument{fmt::format("a largest norm of {}; expected a positive number", largest)};
  std::vector<TensorView> homes;
  const std::vector<std::size_t> present = impl_->present();
  for (const std::size_t i : present) {
    impl_->bring_home(i);
    homes.push_back(impl_->store.gradient(impl_->parameters[i].variable));
  }
  if (!impl_->kernels) impl_->kernels = ops::make_kernels(ops::KernelChoice::automatic, {}, impl_->store.stream());
  impl_->device->stream_follows();
  const double norm = std::sqrt(impl_->kernels->sum_of_squares(homes));
  const at::NoGradGuard plain;
  if (norm > largest && std::isfinite(norm))
    for (const std::size_t i : present) impl_->parameters[i].gradient.mul_(largest / norm);
  return norm;
}

template <class Rules, class Options>
ModuleOptimizer ReplicatedModule::make_optimizer(const Options& options, const Here& here) {
  auto rules = std::make_unique<Rules>(options);
  const std::vector<Variable> all = variables();
  if (!all.empty()) rules->prepare(**all.front().state().strategy, all, here);
  return ModuleOptimizer{std::unique_ptr<ModuleOptimizer::Impl>{new ModuleOptimizer::Impl{impl_, std::move(rules)}}};
}

ModuleOptimizer ReplicatedModule::optimizer(const AdamWOptions& options, Here here) {
  return make_optimizer<AdamW>(options, here);
}

ModuleOptimizer ReplicatedModule::optimizer(const SgdOptions& options, Here here) {
  return make_optimizer<Sgd>(options, here);
}

at::Device ReplicatedModule::device() const {
  return impl_->device->device();
}

std::vector<at::Tensor> ReplicatedModule::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const Parameter& each : impl_->parameters) tensors.push_back(each.tensor);
  return tensors;
}

std::vector<Variable> ReplicatedModule::variables() const {
  std::vector<Variable> variables;
  for (const Parameter& each : impl_->parameters) variables.push_back(each.variable);
  return variables;
}

}  // namespace lockstep::libtorch
