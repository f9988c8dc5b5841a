#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/digest.hpp"
#include "torch/replica.hpp"
#include "torch/sparse_rows.hpp"

namespace lockstep::libtorch {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Of a dense tensor on the host.
bool has_nonzero(const at::Tensor& values) {
  if (!values.is_contiguous()) return true;
  const auto bytes = bytes_of(values);
  return !bytes.empty() &&
         (bytes[0] != std::byte{} || std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) != 0);
}

}  // namespace

DeviceFlags DeviceFlags::nonzero(const std::vector<at::Tensor>& gradients) {
  DeviceFlags flags;
  for (const at::Tensor& each : gradients) {
    const at::Tensor values = each.is_sparse() ? each._values() : each;
    values.device().is_cpu() ? flags.add(has_nonzero(values)) : flags.add(values.ne(0).any());
  }
  return flags;
}

std::vector<char> DeviceFlags::read(TorchDevice& device) const {
  if (on_gpu_.empty()) return on_host_;
  const at::Tensor all = device.on_host(at::stack(on_gpu_));
  return {all.data_ptr<bool>(), all.data_ptr<bool>() + all.numel()};
}

void Parameter::forget(std::uint64_t last) {
  begin();
  if_zeroed.since = if_kept.since = last;
}

void Parameter::note(Touch touch, std::uint64_t last) {
  if (touch == Touch::zeroed) {
    forget(last);
    was_zeroed = true;
  } else if (touch == Touch::zeroed_or_clipped) {
    if_zeroed = {.has = false, .since = last};
  } else if (touch == Touch::clipped) {
    was_clipped = true;
  }
}

void Parameter::note_left() {
  left = tensor.grad();
  if (left.defined()) version = static_cast<unsigned>(left._version());
}

bool Parameter::is_untouched() const {
  const at::Tensor& gradient = tensor.grad();
  return gradient.defined() && gradient.is_same(left) && static_cast<unsigned>(gradient._version()) == version;
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
  require_idle();
  bring_values_home();
  require_known();
  update_trained();
}

void ReplicatedModule::Impl::require_idle() const {
  if (is_busy_)
    throw ContextError{
        fmt::format("a backward pass of {} within another one, such as in `compute` or in a hook: expected one after "
                    "the other",
                    label)};
}

// A frozen parameter has one, too, since the program may unfreeze it at any time.
void ReplicatedModule::Impl::set_hook(std::size_t number) {
  const at::Tensor& tensor = parameters[number].tensor;
  const bool trains = tensor.requires_grad();
  if (!trains) tensor.requires_grad_(true);
  // Weakly: the module may live on without its replicas.
  parameters[number].hook = {tensor, [weak = weak_from_this(), number] {
                               if (const auto alive = weak.lock()) alive->on_gradient(number);
                             }};
  if (!trains) tensor.requires_grad_(false);
}

void ReplicatedModule::Impl::update_trained() {
  std::vector<char> now;
  for (const Parameter& each : parameters) now.push_back(each.tensor.requires_grad() ? 1 : 0);
  if (now == trains_ && !text.empty()) return;
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
    if (!each.hook.is_set()) set_hook(i);
    if (!trains_[i]) {
      frozen.push_back(each.variable.label());
      continue;
    }
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
  for (const VariableStore::FlatRange& range : pieces.ranges())
    flat.push_back(tensor_of(range.gradients, variables.front()));
  text = fmt::format("{}: {} of {} parameters train (digest {}){}, {} buffers", label, trained.size() + tables.size(),
                     parameters.size(), to_hex(digest_of(names)),
                     frozen.empty() ? "" : fmt::format(", {} frozen", first_names(frozen)), buffers.size());
}

/// Somebody has written them, or put others in their place.
std::vector<at::Tensor> ReplicatedModule::Impl::touched_gradients() const {
  std::vector<at::Tensor> touched;
  for (const Parameter& each : parameters)
    if (each.tensor.grad().defined() && !each.is_untouched()) touched.push_back(each.tensor.grad());
  return touched;
}

// An accumulated pass is forgotten parameter by parameter, where its gradient has been zeroed: a program may zero the
// gradients of one of its optimizers. After such a pass every parameter has a gradient, if only of zeros, so that each
// rank sees what is done to it. Gradients of earlier steps are put aside: autograd then hands its own tensor over
// instead of adding to this one.
void ReplicatedModule::Impl::look_at_gradients() {
  const bool has_begun = !accumulated.empty();
  const std::uint64_t last = AccumulatedPass::last();
  const std::vector<char> nonzero_now = DeviceFlags::nonzero(touched_gradients()).read(*device);
  const std::vector<char> nonzero_then = has_begun ? left_.read(*device) : std::vector<char>{};
  auto now = nonzero_now.begin(), then = nonzero_then.begin();

  std::vector<EarlierGradient> put_aside;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& each = parameters[i];
    at::Tensor& gradient = each.tensor.mutable_grad();
    const bool is_touched = gradient.defined() && !each.is_untouched();
    const bool is_zeroed = !gradient.defined() || (is_touched && *now++ == 0);
    if (!has_begun) {
      each.begin();
    } else if (each.left.defined()) {
      const bool was_zero = *then++ == 0;
      each.note(is_zeroed
                    ? gradient.defined() && was_zero ? Parameter::Touch::zeroed_or_clipped : Parameter::Touch::zeroed
                : is_touched ? Parameter::Touch::clipped
                             : Parameter::Touch::none,
                last);
    }
    const auto before = std::ranges::find(earlier, i, &EarlierGradient::parameter);
    if (each.if_kept.has || (has_begun && !is_touched && !is_zeroed)) {
      if (before != earlier.end()) put_aside.push_back(*before);
    } else if (!is_zeroed) {
      put_aside.push_back({i, gradient.clone(), is_touched});
    }
    if (each.if_kept.has) continue;  // autograd adds to it
    // As in torch, a gradient that was not set to none is in the memory that the step adds to.
    const bool is_next = gradient.defined() && !gradient.is_sparse() && gradient.is_alias_of(each.gradient);
    gradient.reset();
    each.left.reset();
    if (!is_next) leave_gradient_to_others(i);
  }
  earlier = std::move(put_aside);
  std::erase_if(accumulated,
                [since = forgotten(&Parameter::if_kept)](const auto& pass) { return pass->number <= since; });
}

std::uint64_t ReplicatedModule::Impl::forgotten(Accumulated Parameter::*doubt) const {
  std::uint64_t since = AccumulatedPass::last();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (trains_[i]) since = std::min(since, (parameters[i].*doubt).since);
  return since;
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
  if (!trains_[number]) {
    gradient.reset();
    throw InvalidArgument{
        fmt::format("parameter {} of {} was frozen when the step began, and has a gradient now: "
                    "expected requires_grad(true) before",
                    parameter.variable.label(), label)};
  }
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
    each.left.reset();
    each.forget(AccumulatedPass::last());
  }
  accumulated.clear();
  earlier.clear();
}

void ReplicatedModule::Impl::note_accumulated(const std::shared_ptr<const AccumulatedPass>& pass) {
  show_earlier();
  if (trained.empty() && tables.empty()) return;
  accumulated.push_back(pass);
  show_zeros();
  std::vector<at::Tensor> gradients;
  for (Parameter& each : parameters) {
    each.note_left();
    if (each.left.defined()) gradients.push_back(each.left);
  }
  left_ = DeviceFlags::nonzero(gradients);
}

void ReplicatedModule::Impl::forget_accumulated() {
  accumulated.clear();
  for (Parameter& each : parameters) {
    each.tensor.mutable_grad().reset();
    each.forget(AccumulatedPass::last());
  }
  show_earlier();
  for (Parameter& each : parameters) each.note_left();
}

/// Where no pass of this step has led to a gradient.
void ReplicatedModule::Impl::show_earlier() {
  const at::NoGradGuard plain;
  for (const EarlierGradient& gradient : earlier) {
    Parameter& each = parameters[gradient.parameter];
    if (each.if_kept.has) continue;
    each.tensor.mutable_grad() = gradient.value.is_sparse() ? gradient.value : each.gradient.copy_(gradient.value);
  }
}

/// Where there is no gradient.
void ReplicatedModule::Impl::show_zeros() {
  const at::NoGradGuard plain;
  for (const std::size_t i : trained)
    if (at::Tensor& gradient = parameters[i].tensor.mutable_grad(); !gradient.defined())
      gradient = parameters[i].gradient.zero_();
  for (const std::size_t i : tables)
    if (at::Tensor& gradient = parameters[i].tensor.mutable_grad(); !gradient.defined())
      gradient = sparse_gradient(no_rows_of(parameters[i].tensor), parameters[i].tensor);
}

std::vector<std::size_t> ReplicatedModule::Impl::present() const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].tensor.grad().defined()) numbers.push_back(i);
  return numbers;
}

}  // namespace lockstep::libtorch
