#include "torch/replica.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>

namespace lockstep::libtorch {
namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, 7> types{{
    {at::kFloat, DType::f32},
    {at::kDouble, DType::f64},
    {at::kHalf, DType::f16},
    {at::kBFloat16, DType::bf16},
    {at::kInt, DType::i32},
    {at::kLong, DType::i64},
    {at::kByte, DType::u8},
}};

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// On the host. A module's flags are of a type of their own, and travel as bytes.
at::Tensor in_variable_type(const at::Tensor& value, TorchDevice& device) {
  const at::Tensor plain = device.on_host(value.detach()).contiguous();
  return plain.scalar_type() == at::kBool ? plain.view(at::kByte) : plain;
}

bool has_nonzero(const at::Tensor& gradient, TorchDevice& device) {
  if (gradient.is_sparse() || !gradient.is_contiguous()) return true;
  if (!gradient.device().is_cpu()) return device.number<std::int64_t>(gradient.count_nonzero()) > 0;
  const auto bytes = bytes_of(gradient);
  return !bytes.empty() &&
         (bytes[0] != std::byte{} || std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) != 0);
}

/// Named values of a module, each once.
std::vector<std::pair<std::string, at::Tensor>> named(const ::torch::OrderedDict<std::string, at::Tensor>& values) {
  std::vector<std::pair<std::string, at::Tensor>> result;
  for (const auto& each : values)
    if (each.value().defined() &&
        std::ranges::none_of(result, [&](const auto& other) { return other.second.is_same(each.value()); }))
      result.emplace_back(each.key(), each.value());
  return result;
}

/// For a module on the host, or where it is to be already.
void require_usable(at::Device device, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                    const std::vector<std::pair<std::string, at::Tensor>>& buffers) {
  const auto require_plain = [&](const std::string& what, const at::Tensor& value) {
    if (!(value.device().is_cpu() || value.device() == device) || value.is_sparse())
      throw InvalidArgument{fmt::format("{} is {}on {}: expected a dense tensor on {}", what,
                                        value.is_sparse() ? "sparse, " : "", value.device().str(),
                                        device.is_cpu() ? "the CPU" : "the CPU or " + device.str())};
  };
  for (const auto& [name, value] : parameters) {
    const std::string what = fmt::format("parameter '{}'", name);
    require_plain(what, value);
    const auto dtype = libtorch::dtype_of(value.scalar_type());
    if (!dtype || !is_floating_point(*dtype))
      throw InvalidArgument{fmt::format("{} is {}; expected f32, f64, f16 or bf16{}", what,
                                        c10::toString(value.scalar_type()),
                                        value.is_complex() ? ", such as its view_as_real" : "")};
  }
  std::map<const void*, std::string_view> names;
  for (const auto& [name, value] : parameters)
    if (const auto [other, is_new] = names.emplace(value.data_ptr(), name); value.numel() > 0 && !is_new)
      throw InvalidArgument{
          fmt::format("parameters '{}' and '{}' are two tensors in the same memory; expected one tensor under both "
                      "names, as a tied parameter is",
                      other->second, name)};
  for (const auto& [name, value] : buffers) {
    const std::string what = fmt::format("buffer '{}'", name);
    require_plain(what, value);
    if (value.scalar_type() != at::kBool && !libtorch::dtype_of(value.scalar_type()))
      throw InvalidArgument{fmt::format("{} is {}; expected f32, f64, f16, bf16, i32, i64, u8 or bool", what,
                                        c10::toString(value.scalar_type()))};
  }
}

MirroredVariable create(Strategy& strategy, const DataParallelOptions& options, const std::string& name,
                        const at::Tensor& value, bool trainable, const Here& here) {
  return strategy.create_variable(
      {.name = options.name.empty() ? name : options.name + "." + name, .trainable = trainable},
      [&] { return Tensor::copy_of(view_of(in_variable_type(value, *make_torch_device(strategy.stream())))); }, here);
}

/// One dimension of bytes.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.flatten().view(at::kByte);
}

bool is_at(const at::Tensor& home, const at::Tensor& tensor) {
  return tensor.layout() == home.layout() && tensor.data_ptr() == home.data_ptr() &&
         tensor.scalar_type() == home.scalar_type() && tensor.sizes() == home.sizes() && tensor.is_contiguous();
}

/// "f64[2, 3]"
std::string type_and_shape(const at::Tensor& tensor) {
  const auto dtype = libtorch::dtype_of(tensor.scalar_type());
  return fmt::format("{}{}", dtype ? name_of(*dtype) : c10::toString(tensor.scalar_type()),
                     to_string(Shape{tensor.sizes().begin(), tensor.sizes().end()}));
}

/// What DataParallel has made the values of `module`, for the store.
class ModuleGuest final : public lockstep::detail::StoreGuest {
 public:
  explicit ModuleGuest(ReplicatedModule::Impl& module) : module_{module} {}

  void bring_values_home() override { module_.bring_values_home(); }
  void bring_state_home() override {}
  std::vector<OptimizerState> state() override { return {}; }
  void take_over() override { module_.note_buffers(); }

 private:
  ReplicatedModule::Impl& module_;
};

class OnGradient final : public ::torch::autograd::FunctionPostHook {
 public:
  explicit OnGradient(std::function<void()> call) : call_{std::move(call)} {}

  ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                              const ::torch::autograd::variable_list& gradients) override {
    // A function may have had nothing for this parameter, such as one whose own backward pass has computed it.
    if (gradients.front().defined()) call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

void require_like(std::string_view what, const at::Tensor& now, const at::Tensor& home, std::string_view remedy) {
  if (now.scalar_type() == home.scalar_type() && now.sizes() == home.sizes() && now.layout() == home.layout()) return;
  throw InvalidArgument{fmt::format("{} has become {}{}; expected {}, {}", what, now.is_sparse() ? "sparse " : "",
                                    type_and_shape(now), type_and_shape(home), remedy)};
}

std::optional<DType> dtype_of(at::ScalarType type) {
  const auto found = std::ranges::find(types, type, &decltype(types)::value_type::first);
  return found == types.end() ? std::nullopt : std::optional{found->second};
}

at::ScalarType type_of(DType dtype) {
  return std::ranges::find(types, dtype, &decltype(types)::value_type::second)->first;
}

void divide(at::Tensor& gradient, double divisor) {
  const at::NoGradGuard plain;
  int exponent = 0;
  // The reciprocal of a power of two is exact, and a product takes a fraction of a quotient's time.
  if (divisor == 1) return;
  std::frexp(divisor, &exponent) == 0.5 ? gradient.mul_(1 / divisor) : gradient.div_(divisor);
}

TensorView view_of(const at::Tensor& tensor, DeviceKind kind) {
  return {static_cast<std::byte*>(tensor.data_ptr()), Shape{tensor.sizes().begin(), tensor.sizes().end()},
          *libtorch::dtype_of(tensor.scalar_type()), kind};
}

void ModuleBuffer::note() {
  const at::NoGradGuard plain;
  known.defined() ? known.copy_(tensor) : known = tensor.clone();
}

void ModuleBuffer::restore() const {
  const at::NoGradGuard plain;
  tensor.copy_(known);
}

ReplicatedModule::Impl::Impl(Strategy& strategy, ::torch::nn::Module& module, const DataParallelOptions& options,
                             const Here& here)
    : store{strategy.store()} {
  const auto named_parameters = named(module.named_parameters());
  const auto named_buffers = named(module.named_buffers());
  try {
    device = make_torch_device(store.stream());
    require_usable(device->device(), named_parameters, named_buffers);
  } catch (...) {
    strategy.group().meeting().fail(std::current_exception());
  }
  for (const auto& [name, value] : named_parameters)
    parameters.push_back({value, create(strategy, options, name, value, true, here), {}, {}});
  for (const auto& [name, value] : named_buffers)
    buffers.push_back({value, create(strategy, options, name, value, false, here), {}});
  strategy.agree(TagKind::create, here,
                 fmt::format("DataParallel of {} parameters and {} buffers", parameters.size(), buffers.size()));
  strategy.seal(here);
  device->torch_follows();
  for (Parameter& each : parameters) {
    each.tensor.mutable_grad().reset();
    each.home = home_of(each.variable, each.tensor);
    each.tensor.set_data(each.home);
    each.gradient = tensor_of(store.gradient(each.variable, here), each.variable);
  }
  for (ModuleBuffer& each : buffers) {
    each.home = home_of(each.variable, each.tensor);
    each.tensor.set_data(each.home);
    each.note();
    if (each.is_real()) reals += each.tensor.numel();
  }
  has.resize(parameters.size());
  guest = std::make_shared<ModuleGuest>(*this);
  store.add_guest(guest);
}

/// Where `tensor`, the value of `variable`, has its place.
at::Tensor ReplicatedModule::Impl::home_of(const MirroredVariable& variable, const at::Tensor& tensor) const {
  const at::Tensor home = tensor_of(variable.for_reading(variable.dtype()), variable);
  return tensor.scalar_type() == at::kBool ? home.view(at::kBool) : home;
}

at::Tensor ReplicatedModule::Impl::tensor_of(const TensorView& view, const Variable& variable) const {
  const at::Device where = device->device();
  return at::for_blob(view.data(), view.shape())
      .deleter([variable](void*) {})
      .options(at::TensorOptions{}.dtype(type_of(view.dtype())).device(where))
      .target_device(where)
      .make_tensor();
}

// A batch norm on the host writes its running statistics without a new version of the tensor, so bytes are compared.
std::vector<char> ReplicatedModule::Impl::changed_buffers() const {
  std::vector<char> changed;
  std::vector<at::Tensor> flags;
  for (const ModuleBuffer& each : buffers) {
    const at::Tensor now = as_bytes(each.tensor), known = as_bytes(each.known);
    if (device->device().is_cpu()) {
      changed.push_back(now.equal(known) ? 0 : 1);
    } else {
      flags.push_back(now.ne(known).any());
    }
  }
  if (!flags.empty()) {  // a GPU is waited for once
    const at::Tensor all = device->on_host(at::stack(flags));
    changed.assign(all.data_ptr<bool>(), all.data_ptr<bool>() + all.numel());
  }
  return changed;
}

at::Tensor ReplicatedModule::Impl::real_elements() const {
  std::vector<at::Tensor> parts;
  for (const ModuleBuffer& each : buffers)
    if (each.is_real()) parts.push_back(each.tensor.flatten().to(at::kDouble));
  return at::cat(parts);
}

void ReplicatedModule::Impl::bring_values_home() {
  std::vector<std::pair<at::Tensor*, const at::Tensor*>> away;
  const auto look_at = [&](std::string_view kind, auto& values) {
    for (auto& each : values) {
      if (is_at(each.home, each.tensor)) continue;
      require_like(fmt::format("{} {}", kind, each.variable.label()), each.tensor, each.home,
                   "as DataParallel has taken it: convert a module before");
      away.emplace_back(&each.tensor, &each.home);
    }
  };
  look_at("parameter", parameters);
  look_at("buffer", buffers);
  if (away.empty()) return;
  const at::NoGradGuard plain;
  device->torch_follows();
  for (const auto& [tensor, home] : away) {
    home->copy_(*tensor);
    tensor->set_data(*home);
  }
  device->stream_follows();
  // A parameter that was of another type or on another device meanwhile has another accumulator.
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (Accumulator& known = parameters[i].accumulator;
        known && ::torch::autograd::impl::try_get_grad_accumulator(parameters[i].tensor) != known) {
      known = {};
      if (parameters[i].tensor.requires_grad()) listen_to(i);
    }
}

/// Calls `on_gradient` whenever autograd has added to the gradient.
void ReplicatedModule::Impl::listen_to(std::size_t number) {
  Parameter& parameter = parameters[number];
  parameter.accumulator = ::torch::autograd::impl::grad_accumulator(parameter.tensor);
  // Weakly: the module may live on without its replicas.
  parameter.accumulator->add_post_hook(std::make_unique<OnGradient>([weak = weak_from_this(), number] {
    if (const auto alive = weak.lock()) alive->on_gradient(number);
  }));
}

void ReplicatedModule::Impl::note_buffers() {
  device->torch_follows();
  for (ModuleBuffer& each : buffers) each.note();
  device->stream_follows();
}

void ReplicatedModule::Impl::require_loss(const Loss& loss) const {
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
}

void ReplicatedModule::Impl::update_trained() {
  std::vector<char> now;
  for (const Parameter& each : parameters) now.push_back(each.tensor.requires_grad() ? 1 : 0);
  if (now == trains) return;
  if (accumulated && !was_zeroed())
    throw InvalidArgument{"other parameters are frozen than when gradients were accumulated; expected backward first"};
  trains = std::move(now);
  trained.clear();
  inputs.clear();
  flat.clear();
  std::vector<Variable> variables;
  std::string names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!trains[i]) continue;
    Parameter& each = parameters[i];
    if (!each.accumulator) listen_to(i);
    trained.push_back(i);
    inputs.push_back(each.tensor);
    variables.push_back(each.variable);
    names += each.variable.label();
  }
  pieces = lockstep::detail::GradientPieces{store, variables, Here::current()};
  for (const FlatRange& range : pieces.ranges()) flat.push_back(tensor_of(range.gradients, variables.front()));
  text = fmt::format("{} of {} parameters (digest {}) and {} buffers", trained.size(), parameters.size(),
                     to_hex(digest_of(names)), buffers.size());
}

void ReplicatedModule::Impl::begin() {
  if (accumulated && !was_zeroed()) return;
  accumulated.reset();
  earlier.clear();
  std::ranges::fill(has, 0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& gradient = parameters[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (has_nonzero(gradient, *device)) earlier.emplace_back(i, gradient.clone());
    // Autograd then hands its own tensor over instead of adding to this one.
    gradient.reset();
  }
}

void ReplicatedModule::Impl::run_autograd(const Loss& loss, const std::function<void(std::size_t)>& take) {
  if (loss.samples() == 0 || inputs.empty()) return;
  Pass pass{take, std::vector<char>(parameters.size())};
  {
    const std::lock_guard lock{mutex_};
    pass_ = &pass;
  }
  struct End {
    Impl& module;
    ~End() {
      const std::lock_guard lock{module.mutex_};
      module.pass_ = nullptr;
    }
  } const end{*this};
  const at::Tensor factor = loss.is_mean() ? at::full_like(loss.value(), loss.samples()) : at::Tensor{};
  loss.value().backward(factor, loss.retains_graph(), false, at::TensorList{inputs});
}

double ReplicatedModule::Impl::sum_of(const Loss& loss) const {
  if (loss.samples() == 0) return 0;
  return device->number<double>(loss.value()) * (loss.is_mean() ? loss.samples() : 1);
}

void ReplicatedModule::Impl::on_gradient(std::size_t number) {
  const std::lock_guard lock{mutex_};
  const Parameter& parameter = parameters[number];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!pass_) {
    gradient.reset();
    throw ContextError{
        fmt::format("the gradient of parameter {} was computed by a backward pass of this rank alone: expected "
                    "net.backward(context, loss) or net.accumulate(loss) of its DataParallel",
                    parameter.variable.label())};
  }
  if (std::exchange(pass_->seen[number], 1))
    throw InvalidArgument{fmt::format("the gradient of parameter {} was completed twice in one backward pass",
                                      parameter.variable.label())};
  if (gradient.defined()) pass_->take(number);
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

void ReplicatedModule::Impl::divide(std::size_t number, double divisor) {
  at::Tensor& gradient = parameters[number].tensor.mutable_grad();
  // One that others may read, such as a hook's caller, stays as it is.
  if (gradient.is_sparse() || gradient.storage().use_count() > 1) bring_home(number);
  libtorch::divide(gradient, divisor);
}

void ReplicatedModule::Impl::zero_grad() {
  for (const Parameter& each : parameters) each.tensor.mutable_grad().reset();
  accumulated.reset();
  earlier.clear();
}

/// Somebody may have zeroed the gradients since, such as a torch optimizer.
bool ReplicatedModule::Impl::was_zeroed() const {
  if (!accumulated->version) return false;
  const at::Tensor& gradient = parameters[accumulated->witness].tensor.grad();
  return !gradient.defined() || (gradient._version() != *accumulated->version && !has_nonzero(gradient, *device));
}

void ReplicatedModule::Impl::note_accumulated(const Loss& loss) {
  if (!accumulated) accumulated.emplace();
  accumulated->samples += loss.samples();
  accumulated->loss += sum_of(loss);
  const auto witness = std::ranges::find(has, 1);
  if (witness == has.end()) return;
  accumulated->witness = static_cast<std::size_t>(witness - has.begin());
  accumulated->version = static_cast<unsigned>(parameters[accumulated->witness].gradient._version());
}

std::vector<std::size_t> ReplicatedModule::Impl::present() const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].tensor.grad().defined()) numbers.push_back(i);
  return numbers;
}

}  // namespace lockstep::libtorch
