#include "torch/backward_pass.hpp"

#include <algorithm>
#include <cmath>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::libtorch {

std::string text_of(const ModuleList& modules) {
  std::vector<std::string_view> texts;
  for (const ReplicatedModule::Impl* const module : modules) texts.push_back(module->text);
  return fmt::format("{}", fmt::join(texts, ", and "));
}

void require_loss(const Loss& loss) {
  const double samples = loss.samples();
  if (!(samples >= 0) || std::isinf(samples))
    throw InvalidArgument{fmt::format("a loss of {} samples; expected 0 or more", samples)};
  if (samples == 0) return;
  const at::Tensor& value = loss.value();
  if (!value.defined()) throw InvalidArgument{fmt::format("an undefined loss of {} samples", samples)};
  if (value.numel() != 1 || !at::isFloatingType(value.scalar_type()))
    throw InvalidArgument{fmt::format("a loss of {} elements of {}; expected one real number, the {} the samples",
                                      value.numel(), c10::toString(value.scalar_type()),
                                      loss.is_mean() ? "mean of" : "sum over")};
  // Autograd begins with their number, in the loss's type.
  const bool is_half = value.scalar_type() == at::kHalf, is_bf16 = value.scalar_type() == at::kBFloat16;
  const auto number = static_cast<float>(samples);
  if (loss.is_mean() && (is_half || is_bf16) &&
      static_cast<double>(is_half ? float{c10::Half{number}} : float{c10::BFloat16{number}}) != samples)
    throw InvalidArgument{
        fmt::format("a mean of {} samples in {}, which cannot hold that number: expected a mean in f32", samples,
                    c10::toString(value.scalar_type()))};
}

double sum_of(const Loss& loss, TorchDevice& device) {
  if (loss.samples() == 0) return 0;
  return device.number<double>(loss.value()) * (loss.is_mean() ? loss.samples() : 1);
}

BackwardPass::BackwardPass(const ModuleList& modules, const Loss& loss, const GraphNodes& shared)
    : modules_{modules}, loss_{loss}, others_{shared} {
  for (const at::Tensor& leaf : loss.ignored()) ignore(leaf);
  const at::Tensor value = loss.samples() > 0 ? loss.value() : at::Tensor{};
  if (!shared.empty())
    visit_graph(value, {}, [&](const GraphNode& node) {
      std::erase_if(others_, [&](const auto& other) { return other.get() == &node; });
    });
  visit_graph(value, others_, [&](const GraphNode& node) {
    if (const at::Tensor leaf = leaf_of(node); leaf.defined()) look_at(leaf, node);
  });
}

void BackwardPass::ignore(const at::Tensor& leaf) {
  if (!leaf.defined() || !leaf.is_leaf()) return;
  if (holds(foreign_, leaf)) return;  // a tied one
  const std::optional<TensorOwner> owner = owner_of(leaf);
  if (owner && std::ranges::find(modules_, owner->module) != modules_.end())
    throw InvalidArgument{
        fmt::format("Loss::ignoring of {}, which this backward pass trains: expected it frozen", owner->label)};
  foreign_.push_back(leaf);
  if (owner && std::ranges::find(strangers_, owner->module) == strangers_.end()) strangers_.push_back(owner->module);
}

void BackwardPass::look_at(const at::Tensor& leaf, const GraphNode& node) {
  if (!leaf.requires_grad()) return;  // frozen since
  if (holds(foreign_, leaf)) return;
  const std::optional<TensorOwner> owner = owner_of(leaf);
  if (!owner)
    throw InvalidArgument{
        fmt::format("the loss depends on a tensor{} of shape [{}] that needs a gradient and is no parameter of a "
                    "DataParallel, so nobody would train it: expected a parameter that is registered before "
                    "DataParallel, or Loss::ignoring",
                    leaf.name().empty() ? "" : " '" + leaf.name() + "'", fmt::join(leaf.sizes(), ", "))};
  const bool is_ours = std::ranges::find(modules_, owner->module) != modules_.end();
  if (!owner->parameter)
    throw InvalidArgument{fmt::format("the loss depends on {} of {}, which needs a gradient: expected a parameter",
                                      owner->label, owner->module->label)};
  if (is_ours && !owner->module->parameters[*owner->parameter].hook.is_at(node))
    throw InvalidArgument{fmt::format(
        "the loss was computed while {} of {} was of another type or on another device: expected the module "
        "as DataParallel has taken it",
        owner->label, owner->module->label)};
  if (!is_ours)
    throw InvalidArgument{
        fmt::format("the loss depends on {} of another DataParallel, {}, which this backward pass would not train: "
                    "expected backward(context, {{&one, &other}}, loss) for both, frozen parameters, or Loss::ignoring",
                    owner->label, owner->module->label)};
}

void BackwardPass::run(const std::function<void(std::size_t module, std::size_t parameter)>& take) {
  const bool has_loss = loss_.samples() > 0;
  if (!has_loss && others_.empty()) return;
  if (std::ranges::all_of(modules_,
                          [](const auto* module) { return module->trained.empty() && module->tables.empty(); }))
    return;
  const at::Tensor value = has_loss ? loss_.value() : at::Tensor{};
  if (has_loss && !value.requires_grad())
    throw InvalidArgument{
        "a loss that depends on no parameter: expected one that was computed with gradients, by a module that is not "
        "frozen"};

  struct PutBack {
    std::vector<std::pair<at::Tensor, at::Tensor>> gradients;
    ~PutBack() {
      for (auto& [leaf, gradient] : gradients) leaf.mutable_grad() = gradient;
    }
  } put_back;
  for (const at::Tensor& leaf : foreign_)
    put_back.gradients.emplace_back(leaf, std::exchange(leaf.mutable_grad(), at::Tensor{}));

  std::list<ReplicatedModule::Impl::Pass> open;
  for (ReplicatedModule::Impl* const stranger : strangers_) open.emplace_back(*stranger, nullptr);
  for (std::size_t i = 0; i < modules_.size(); ++i)
    open.emplace_back(*modules_[i], [&take, i](std::size_t parameter) { take(i, parameter); });
  const at::Tensor factor = has_loss && loss_.is_mean() ? at::full_like(value, loss_.samples()) : at::Tensor{};
  run_autograd(value, factor, others_, loss_.retains_graph());
  for (ReplicatedModule::Impl* const module : modules_) ++module->passes;
}

}  // namespace lockstep::libtorch
