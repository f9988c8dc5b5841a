#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>

#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

bool has_nonzero(const at::Tensor& gradient, TorchDevice& device) {
  if (gradient.is_sparse())
    return gradient._nnz() > 0 && device.number<std::int64_t>(gradient._values().count_nonzero()) > 0;
  if (!gradient.is_contiguous()) return true;
  if (!gradient.device().is_cpu()) return device.number<std::int64_t>(gradient.count_nonzero()) > 0;
  const auto bytes = bytes_of(gradient);
  return !bytes.empty() &&
         (bytes[0] != std::byte{} || std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) != 0);
}

}  // namespace

void Parameter::begin() {
  has = false;
  samples = 0;
  left.reset();
  version.reset();
}

void ReplicatedModule::Impl::require_known() const {
  const auto require_all = [&](const NamedTensors& now, std::string_view kind) {
    for (const auto& [name, tensor] : now)
      if (!known_.contains(tensor.unsafeGetTensorImpl()))
        throw InvalidArgument{fmt::format(
            "{} '{}' of {} was registered after DataParallel had taken the module, so replicas would differ "
            "in it: expected it before",
            kind, name, label)};
  };
  require_all(parts.parameters(), "parameter");
  require_all(parts.buffers(), "buffer");
}

void ReplicatedModule::Impl::prepare() {
  bring_values_home();
  require_known();
  forget_zeroed();
  update_trained();
  if (accumulated.empty()) begin();
}

void ReplicatedModule::Impl::set_hook(std::size_t number) {
  // Weakly: the module may live on without its replicas.
  parameters[number].hook = {parameters[number].tensor, [weak = weak_from_this(), number] {
                               if (const auto alive = weak.lock()) alive->on_gradient(number);
                             }};
}

void ReplicatedModule::Impl::update_trained() {
  std::vector<char> now;
  for (const Parameter& each : parameters) now.push_back(each.tensor.requires_grad() ? 1 : 0);
  if (now == trains_) return;
  if (!accumulated.empty())
    throw InvalidArgument{fmt::format(
        "other parameters of {} are frozen than when gradients were accumulated; expected backward first", label)};
  trains_ = std::move(now);
  trained.clear();
  tables.clear();
  flat.clear();
  std::vector<Variable> variables;
  std::vector<std::string> frozen;
  std::string names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& each = parameters[i];
    if (!trains_[i]) {
      frozen.push_back(each.variable.label());
      continue;
    }
    if (!each.hook.is_set()) set_hook(i);
    names += each.variable.label();
    if (each.is_table) {
      names += " by rows";
      tables.push_back(i);
    } else {
      trained.push_back(i);
      variables.push_back(each.variable);
    }
  }
  pieces = lockstep::detail::GradientPieces{store, variables, Here::current()};
  for (const FlatRange& range : pieces.ranges()) flat.push_back(tensor_of(range.gradients, variables.front()));
  text = fmt::format("{}: {} of {} parameters train (digest {}){}, {} buffers", label, trained.size() + tables.size(),
                     parameters.size(), to_hex(digest_of(names)),
                     frozen.empty() ? "" : fmt::format(", {} frozen", first_names(frozen)), buffers.size());
}

// A pass that was accumulated is forgotten where its gradient has been zeroed, parameter by parameter: a program may
// have several optimizers, and zero the gradients of one. Where the pass has led to no gradient, there is nothing to
// see; such parameters go with the last of the others.
void ReplicatedModule::Impl::forget_zeroed() {
  if (accumulated.empty()) return;
  bool any = false, any_left = false;
  for (Parameter& each : parameters) {
    if (!each.version) continue;
    any = true;
    at::Tensor& gradient = each.tensor.mutable_grad();
    const bool is_untouched =
        gradient.is_same(each.left) && static_cast<unsigned>(gradient._version()) == *each.version;
    if (is_untouched || (gradient.defined() && has_nonzero(gradient, *device))) {
      any_left = true;
      continue;
    }
    gradient.reset();
    each.begin();
  }
  if (!any || any_left) return;
  accumulated.clear();
  for (Parameter& each : parameters) each.samples = 0;
}

void ReplicatedModule::Impl::begin() {
  earlier.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].begin();
    at::Tensor& gradient = parameters[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (has_nonzero(gradient, *device)) earlier.emplace_back(i, gradient.clone());
    // Autograd then hands its own tensor over instead of adding to this one.
    gradient.reset();
  }
}

ReplicatedModule::Impl::Pass::Pass(Impl& module, std::function<void(std::size_t)> take)
    : module_{module}, take_{std::move(take)}, seen_(module.parameters.size()) {
  const std::lock_guard lock{module_.mutex_};
  module_.pass_ = this;
}

ReplicatedModule::Impl::Pass::~Pass() {
  const std::lock_guard lock{module_.mutex_};
  module_.pass_ = nullptr;
}

ReplicatedModule::Impl::Pass* ReplicatedModule::Impl::exchange_pass(Pass* pass) {
  const std::lock_guard lock{mutex_};
  return std::exchange(pass_, pass);
}

void ReplicatedModule::Impl::on_gradient(std::size_t number) {
  const std::lock_guard lock{mutex_};
  const Parameter& parameter = parameters[number];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!pass_) {
    gradient.reset();
    throw ContextError{
        fmt::format("the gradient of parameter {} of {} was computed by a backward pass of this rank alone: expected "
                    "net.backward(context, loss) or net.accumulate(loss) of its DataParallel",
                    parameter.variable.label(), label)};
  }
  if (!pass_->take_ || !gradient.defined()) return;
  if (std::exchange(pass_->seen_[number], 1)) fires_once = false;
  pass_->take_(number);
}

void ReplicatedModule::Impl::bring_home(std::size_t number) {
  Parameter& parameter = parameters[number];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (gradient.is_same(parameter.gradient)) return;
  const at::NoGradGuard plain;
  if (gradient.is_sparse()) {
    parameter.gradient.zero_().add_(gradient);
  } else {
    parameter.gradient.copy_(gradient);
  }
  gradient = parameter.gradient;
}

void ReplicatedModule::Impl::zero_grad() {
  for (Parameter& each : parameters) {
    each.tensor.mutable_grad().reset();
    each.begin();
  }
  accumulated.clear();
  earlier.clear();
}

void ReplicatedModule::Impl::note_accumulated(const std::shared_ptr<const AccumulatedPass>& pass) {
  accumulated.push_back(pass);
  for (Parameter& each : parameters) {
    each.samples += pass->samples;
    each.left = each.has ? each.tensor.grad() : at::Tensor{};
    if (each.left.defined()) each.version = static_cast<unsigned>(each.left._version());
  }
}

void ReplicatedModule::Impl::make_dense(std::size_t table) {
  parameters[table].is_table = false;
  trains_.clear();
}

std::vector<std::size_t> ReplicatedModule::Impl::present() const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].tensor.grad().defined()) numbers.push_back(i);
  return numbers;
}

}  // namespace lockstep::libtorch
