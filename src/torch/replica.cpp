#include "torch/replica.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

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

/// On the host. A module's flags are of a type of their own, and travel as bytes.
at::Tensor in_variable_type(const at::Tensor& value, TorchDevice& device) {
  const at::Tensor plain = device.on_host(value.detach()).contiguous();
  return plain.scalar_type() == at::kBool ? plain.view(at::kByte) : plain;
}

/// For a module on the host, or where it is to be already.
void require_usable(at::Device device, const NamedTensors& parameters, const NamedTensors& buffers) {
  const auto require_plain = [&](const std::string& what, const at::Tensor& value) {
    if (const auto owner = owner_of(value))
      throw InvalidArgument{
          fmt::format("{} is {} of another DataParallel, {}: expected each in one DataParallel. A loss over several "
                      "modules takes backward(context, {{&one, &other}}, loss)",
                      what, owner->label, owner->module->label)};
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
  for (const auto& [name, value] : buffers) {
    const std::string what = fmt::format("buffer '{}'", name);
    require_plain(what, value);
    if (value.scalar_type() != at::kBool && !libtorch::dtype_of(value.scalar_type()))
      throw InvalidArgument{fmt::format("{} is {}; expected f32, f64, f16, bf16, i32, i64, u8 or bool", what,
                                        c10::toString(value.scalar_type()))};
  }
}

MirroredVariable create(Strategy& strategy, const ReplicatedModule::Options& options, const std::string& name,
                        const at::Tensor& value, bool trainable, const Here& here) {
  return strategy.create_variable(
      {.name = options.name.empty() ? name : options.name + "." + name, .trainable = trainable},
      [&] { return Tensor::copy_of(view_of(in_variable_type(value, *make_torch_device(strategy.stream())))); }, here);
}

/// A max_norm scales down the rows that a rank looks up, on that rank alone.
void require_same_rows(const ModuleParts& parts, int ranks) {
  if (ranks == 1 || parts.max_norms.empty()) return;
  throw InvalidArgument{
      fmt::format("parameter '{}' has a max_norm, by which the forward pass of a rank changes the rows that it reads, "
                  "and replicas would differ: expected a table without",
                  parts.max_norms.front())};
}

/// "3 parameters, 2 sparse (digest 0123456789abcdef): 'words', 'tags'": what the ranks compare.
std::string describe_parameters(const NamedTensors& parameters, const std::vector<at::Tensor>& tables) {
  std::vector<std::string> names;
  for (const auto& [name, value] : parameters)
    if (holds(tables, value)) names.push_back("'" + name + "'");
  if (names.empty()) return fmt::format("{} parameters", parameters.size());
  return fmt::format("{} parameters, {} sparse (digest {}): {}", parameters.size(), names.size(),
                     to_hex(digest_of(fmt::format("{}", fmt::join(names, " ")))), first_names(names));
}

/// One dimension of bytes.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.flatten().view(at::kByte);
}

/// The modules of this process that are alive, and what belongs to them.
class Owners {
 public:
  void add(ReplicatedModule::Impl& module) {
    const std::lock_guard lock{mutex_};
    modules_.push_back(&module);
    const auto add_all = [&](std::string_view kind, const auto& values) {
      for (const auto& each : values)
        owners_[each.tensor.unsafeGetTensorImpl()] = {&module, fmt::format("{} {}", kind, each.variable.label())};
    };
    add_all("buffer", module.buffers);
    add_all("parameter", module.parameters);
    for (std::size_t i = 0; i < module.parameters.size(); ++i)
      owners_[module.parameters[i].tensor.unsafeGetTensorImpl()].parameter = i;
  }

  void remove(const ReplicatedModule::Impl& module) {
    const std::lock_guard lock{mutex_};
    std::erase(modules_, &module);
    std::erase_if(owners_, [&](const auto& each) { return each.second.module == &module; });
  }

  std::optional<TensorOwner> of(const at::Tensor& tensor) {
    const std::lock_guard lock{mutex_};
    const auto found = owners_.find(tensor.unsafeGetTensorImpl());
    return found == owners_.end() ? std::nullopt : std::optional{found->second};
  }

  std::vector<ReplicatedModule::Impl*> of(const VariableStore& store) {
    const std::lock_guard lock{mutex_};
    std::vector<ReplicatedModule::Impl*> modules;
    std::ranges::copy_if(modules_, std::back_inserter(modules),
                         [&](const ReplicatedModule::Impl* module) { return &module->store == &store; });
    return modules;
  }

 private:
  std::mutex mutex_;  ///< ranks may be threads
  std::vector<ReplicatedModule::Impl*> modules_;
  std::unordered_map<const c10::TensorImpl*, TensorOwner> owners_;
};

Owners& owners() {
  static Owners all;
  return all;
}

}  // namespace

std::optional<TensorOwner> owner_of(const at::Tensor& tensor) {
  return tensor.defined() ? owners().of(tensor) : std::nullopt;
}

std::vector<ReplicatedModule::Impl*> modules_of(const VariableStore& store) {
  return owners().of(store);
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
  version = static_cast<unsigned>(tensor._version());
  is_unversioned = false;
}

// A graph with a batch norm can still be computed backwards. For any other buffer, autograd sees that it has changed.
void ModuleBuffer::write(const at::Tensor& value) const {
  const at::NoGradGuard plain;
  (is_statistic || is_unversioned ? tensor.variable_data() : tensor).copy_(value);
}

ReplicatedModule::Impl::Impl(Strategy& strategy, ModuleParts module, const ReplicatedModule::Options& options,
                             const Here& here)
    : store{strategy.store()},
      replicas{strategy.num_replicas_in_sync()},
      label{options.name.empty() ? module.kind : fmt::format("{} ({})", options.name, module.kind)},
      parts{std::move(module)},
      audit_every{options.audit_every},
      audit_seed{options.audit_seed} {
  const NamedTensors named_parameters = parts.parameters(), named_buffers = parts.buffers();
  lockstep::detail::announcing_failure(inside(strategy).group().meeting(), [&] {
    device = make_torch_device(store.stream());
    require_usable(device->device(), named_parameters, named_buffers);
    require_own_memory(named_parameters, named_buffers, modules_of(store));
    require_same_rows(parts, strategy.num_replicas_in_sync());
    if (audit_every && *audit_every < 1)
      throw InvalidArgument{fmt::format("audit_every is {}; expected 1 or more steps", *audit_every)};
  });
  for (const auto& [name, value] : named_parameters)
    parameters.push_back({value, create(strategy, options, name, value, true, here), {}, {}});
  for (const auto& [name, value] : named_buffers)
    buffers.push_back({value, create(strategy, options, name, value, false, here), {}});
  inside(strategy).agree(
      TagKind::create, here,
      fmt::format("DataParallel of {}: {}, {} buffers{}", label, describe_parameters(named_parameters, parts.tables),
                  buffers.size(), audit_every ? fmt::format(", audits every {} by {}", *audit_every, audit_seed) : ""));
  strategy.seal(here);
  device->torch_follows();
  for (Parameter& each : parameters) {
    each.tensor.mutable_grad().reset();
    each.home = home_of(each.variable, each.tensor);
    each.tensor.set_data(each.home);
    each.gradient = tensor_of(store.gradient(each.variable, here), each.variable);
    known_.insert(each.tensor.unsafeGetTensorImpl());
    each.is_table = holds(parts.tables, each.tensor);
  }
  for (ModuleBuffer& each : buffers) {
    each.is_statistic = holds(parts.statistics, each.tensor);
    each.home = home_of(each.variable, each.tensor);
    each.tensor.set_data(each.home);
    each.note();
    known_.insert(each.tensor.unsafeGetTensorImpl());
  }
  owners().add(*this);
  external_values = make_module_values(*this);
  inside(store).add_external_values(external_values);
}

ReplicatedModule::Impl::~Impl() {
  owners().remove(*this);
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
std::vector<char> ReplicatedModule::Impl::changed_buffers() {
  parts.bring_buffers_home();
  DeviceFlags flags;
  for (const ModuleBuffer& each : buffers) {
    const at::Tensor now = as_bytes(each.tensor), known = as_bytes(each.known);
    device->device().is_cpu() ? flags.add(!now.equal(known)) : flags.add(now.ne(known).any());
  }
  std::vector<char> changed = flags.read(*device);
  for (std::size_t i = 0; i < buffers.size(); ++i)
    buffers[i].is_unversioned = changed[i] && static_cast<unsigned>(buffers[i].tensor._version()) == buffers[i].version;
  return changed;
}

}  // namespace lockstep::libtorch
