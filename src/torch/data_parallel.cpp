#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/torch/data_parallel.hpp>

#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"
#include "torch/sparse_rows.hpp"
#include "torch/step.hpp"
#include "torch/sync_sums.hpp"

namespace lockstep::libtorch {
namespace {

ModuleList states_of(const std::vector<ReplicatedModule*>& modules) {
  ModuleList states;
  for (const ReplicatedModule* const module : modules) {
    if (!module) throw InvalidArgument{"a backward pass of a null module"};
    if (std::ranges::find(states, &inside(*module).impl()) != states.end())
      throw InvalidArgument{fmt::format("a backward pass that names {} twice", inside(*module).impl().label)};
    states.push_back(&inside(*module).impl());
    if (&states.front()->store != &states.back()->store)
      throw InvalidArgument{fmt::format("a backward pass of {} and {}, which are of two strategies",
                                        states.front()->label, states.back()->label)};
  }
  if (states.empty()) throw InvalidArgument{"a backward pass of no module"};
  return states;
}

/// A step that fails, also before the ranks have agreed on it, leaves no gradients.
ReplicatedModule::MeanLoss step_of(const std::vector<ReplicatedModule*>& modules,
                                   const std::function<ReplicatedModule::MeanLoss(const ModuleList&)>& make) {
  const ModuleList states = states_of(modules);
  for (const ReplicatedModule::Impl* const state : states) state->require_idle();
  try {
    return make(states);
  } catch (...) {
    for (ReplicatedModule::Impl* const state : states) state->zero_grad();
    throw;
  }
}

}  // namespace

struct ReplicatedModule::Optimizer::Impl {
  std::shared_ptr<ReplicatedModule::Impl> module;
  std::unique_ptr<lockstep::Optimizer> rules;
  std::vector<std::size_t> present = {};
  std::vector<lockstep::Optimizer::Gradient> gradients = {};  ///< of the parameters that are present

  void bring_gradients(const Here& here);
};

ReplicatedModule::Optimizer::Optimizer(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
ReplicatedModule::Optimizer::Optimizer(Optimizer&&) noexcept = default;
ReplicatedModule::Optimizer::~Optimizer() = default;

/// Sparse gradients stay where they are, and the rules get their rows.
void ReplicatedModule::Optimizer::Impl::bring_gradients(const Here& here) {
  std::vector<std::size_t> now = module->present();
  const auto is_sparse = [&](std::size_t i) { return module->parameters[i].tensor.grad().is_sparse(); };
  for (const std::size_t i : now)
    if (!is_sparse(i)) module->bring_home(i);
  const bool is_other = now != present;
  present = std::move(now);
  if (is_other ||
      std::ranges::any_of(gradients, [](const lockstep::Optimizer::Gradient& each) { return each.value.slices(); })) {
    std::vector<Variable> variables;
    for (const std::size_t i : present) variables.push_back(module->parameters[i].variable);
    gradients = lockstep::Optimizer::gradients_in_store(module->store, variables, here);
  }
  for (std::size_t i = 0; i < present.size(); ++i)
    if (is_sparse(present[i])) {
      const at::Tensor& table = module->parameters[present[i]].tensor;
      gradients[i].value = slices_of(rows_of(table.grad(), *module->device), table);
    }
}

void ReplicatedModule::Optimizer::step(ReplicaContext& context, Here here) {
  ReplicatedModule::Impl& module = *impl_->module;
  impl_->bring_gradients(here);
  module.device->on_stream([&] { impl_->rules->apply_reduced_gradients(context, impl_->gradients, here); });
  module.note_new_values();
}

void ReplicatedModule::Optimizer::zero_grad() {
  impl_->module->zero_grad();
}

lockstep::Optimizer& ReplicatedModule::Optimizer::rules() {
  return *impl_->rules;
}

ReplicatedModule::MeanLoss backward(ReplicaContext& context, const std::vector<ReplicatedModule*>& modules,
                                    const Loss& loss, Here here) {
  return step_of(modules, [&](const ModuleList& states) { return Step{states, context, here}.of_batch(loss); });
}

ReplicatedModule::MeanLoss backward_shards(ReplicaContext& context, const std::vector<ReplicatedModule*>& modules,
                                           int shards, const std::function<Loss(int)>& compute, Here here) {
  return step_of(modules, [&](const ModuleList& states) {
    return Step{states, context, here}.of_shards(shards, compute);
  });
}

void accumulate(const std::vector<ReplicatedModule*>& modules, const Loss& loss, Here here) {
  const ModuleList impls = states_of(modules);
  require_loss(loss);
  for (ReplicatedModule::Impl* const impl : impls) impl->require_idle();
  for (ReplicatedModule::Impl* const impl : impls) impl->look_at_gradients();
  try {
    for (ReplicatedModule::Impl* const impl : impls) impl->prepare();
    const ReplicatedModule::Impl::Busy busy{impls};
    SyncSums on_the_way{loss.value()};
    BackwardPass pass{impls, loss, on_the_way.shared()};
    const auto run = [&] {
      pass.run([&](std::size_t module, std::size_t parameter) {
        Parameter& each = impls[module]->parameters[parameter];
        each.note_gradient();
        if (!each.is_table) impls[module]->bring_home(parameter);
      });
    };
    if (on_the_way.list().counts.empty()) {
      run();
    } else {
      run_pass_with_sums(on_the_way, "accumulate of " + text_of(impls), impls.front()->store, *impls.front()->device,
                         here, run);
    }
    const auto accumulated =
        std::make_shared<const AccumulatedPass>(loss.samples(), sum_of(loss, *impls.front()->device));
    for (ReplicatedModule::Impl* const impl : impls) impl->note_accumulated(accumulated);
  } catch (...) {
    for (ReplicatedModule::Impl* const impl : impls) impl->forget_accumulated();
    throw;
  }
}

ReplicatedModule::ReplicatedModule(Strategy& strategy, std::shared_ptr<::torch::nn::Module> module,
                                   const ReplicatedModule::Options& options, Here here)
    : impl_{std::make_shared<Impl>(strategy, parts_of(std::move(module)), options, here)} {
  impl_->prepare();
}

ReplicatedModule::ReplicatedModule(ReplicatedModule&&) noexcept = default;
ReplicatedModule::~ReplicatedModule() = default;

ReplicatedModule::MeanLoss ReplicatedModule::backward(ReplicaContext& context, const Loss& loss, Here here) {
  return libtorch::backward(context, {this}, loss, here);
}

ReplicatedModule::MeanLoss ReplicatedModule::backward_shards(ReplicaContext& context, int shards,
                                                             const std::function<Loss(int)>& compute, Here here) {
  return libtorch::backward_shards(context, {this}, shards, compute, here);
}

Range ReplicatedModule::shards_of_rank(Strategy& strategy, int shards) {
  return shares_of(strategy, shards).of(strategy.rank());
}

void ReplicatedModule::accumulate(const Loss& loss, Here here) {
  libtorch::accumulate({this}, loss, here);
}

void ReplicatedModule::zero_grad() {
  impl_->zero_grad();
}

double ReplicatedModule::clip_norm(double largest) {
  if (!(largest > 0)) throw InvalidArgument{fmt::format("a largest norm of {}; expected a positive number", largest)};
  std::vector<TensorView> homes;
  const std::vector<std::size_t> present = impl_->present();
  std::vector<std::size_t> untouched;
  for (const std::size_t i : present) {
    Parameter& each = impl_->parameters[i];
    if (each.is_untouched()) untouched.push_back(i);
    at::Tensor& gradient = each.tensor.mutable_grad();
    if (!gradient.is_sparse()) {
      impl_->bring_home(i);
      homes.push_back(impl_->store.gradient(each.variable));
      continue;
    }
    if (!gradient.is_coalesced()) gradient = sparse_gradient(rows_of(gradient, *impl_->device), each.tensor);
    homes.push_back(view_of(gradient._values(), impl_->store.stream().kind()));
  }
  if (!impl_->kernels)
    impl_->kernels =
        lockstep::detail::make_update_kernels(lockstep::detail::Functions::of_library, impl_->store.stream());
  impl_->device->stream_follows();
  const double norm = std::sqrt(impl_->kernels->sum_of_squares(homes));
  const at::NoGradGuard plain;
  if (norm > largest && std::isfinite(norm))
    for (const std::size_t i : present) impl_->parameters[i].tensor.mutable_grad().mul_(largest / norm);
  // Zeros that a step has left were not made by a zero_grad, whatever is done to them here.
  if (impl_->accumulated.empty())
    for (const std::size_t i : untouched) impl_->parameters[i].note_left();
  return norm;
}

template <class Rules>
ReplicatedModule::Optimizer ReplicatedModule::make_optimizer(const typename Rules::Options& options, const Here& here) {
  auto rules = std::make_unique<Rules>(options);
  const std::vector<Variable> all = variables();
  if (!all.empty()) rules->prepare(**inside(all.front()).state().strategy, all, here);
  return Optimizer{std::unique_ptr<Optimizer::Impl>{new Optimizer::Impl{impl_, std::move(rules)}}};
}

ReplicatedModule::Optimizer ReplicatedModule::optimizer(const AdamW::Options& options, Here here) {
  return make_optimizer<AdamW>(options, here);
}

ReplicatedModule::Optimizer ReplicatedModule::optimizer(const Sgd::Options& options, Here here) {
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
