// What a module's parameters and buffers hold, where LibTorch may have replaced their memory.
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/strategy/external_values.hpp"
#include "sync/strategy/variable_state.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

bool is_at(const at::Tensor& home, const at::Tensor& tensor) {
  return tensor.layout() == home.layout() && tensor.data_ptr() == home.data_ptr() &&
         tensor.scalar_type() == home.scalar_type() && tensor.sizes() == home.sizes() && tensor.is_contiguous();
}

/// Whether others have `home` or its storage too, such as a program that has put weights aside for later.
bool have_others(const at::Tensor& home) {
  return home.storage().use_count() > 1 || home.use_count() > 1;
}

/// All of them, and `home`, keep their values, in memory of their own.
void leave_to_others(const at::Tensor& home) {
  const at::Tensor copy = home.clone();
  (void)home.storage().set_data_ptr(copy.storage().set_data_ptr({nullptr, copy.device()}));
}

/// "f64[2, 3]"
std::string type_and_shape(const at::Tensor& tensor) {
  const auto dtype = libtorch::dtype_of(tensor.scalar_type());
  return fmt::format("{}{}{}", tensor.is_sparse() ? "sparse " : "",
                     dtype ? name_of(*dtype) : c10::toString(tensor.scalar_type()),
                     describe(Shape{tensor.sizes().begin(), tensor.sizes().end()}));
}

class ModuleValues final : public lockstep::detail::ExternalValues {
 public:
  explicit ModuleValues(ReplicatedModule::Impl& module) : module_{module} {}

  void bring_values_home() override {
    module_.parts.bring_buffers_home();
    module_.bring_values_home();
  }
  void bring_state_home() override {}
  std::vector<lockstep::detail::OptimizerState> state() override { return {}; }
  void take_over() override {
    module_.note_buffers();
    module_.note_new_values();
  }

 private:
  ReplicatedModule::Impl& module_;
};

}  // namespace

void require_like(std::string_view what, const at::Tensor& now, const at::Tensor& home, std::string_view remedy) {
  if (now.scalar_type() != home.scalar_type() || now.sizes() != home.sizes() || now.layout() != home.layout())
    throw InvalidArgument{
        fmt::format("{} has become {}; expected {}, {}", what, type_and_shape(now), type_and_shape(home), remedy)};
}

std::shared_ptr<lockstep::detail::ExternalValues> make_module_values(ReplicatedModule::Impl& module) {
  return std::make_shared<ModuleValues>(module);
}

at::Tensor ReplicatedModule::Impl::home_of(const MirroredVariable& variable, const at::Tensor& tensor) const {
  const at::Tensor home = tensor_of(variable.for_reading(variable.dtype()), variable);
  return tensor.scalar_type() == at::kBool ? home.view(at::kBool) : home;
}

void ReplicatedModule::Impl::bring_values_home() {
  struct Away {
    const MirroredVariable& variable;
    at::Tensor& tensor;
    at::Tensor& home;
  };
  std::vector<Away> away;
  const auto look_at = [&](std::string_view kind, auto& values) {
    for (auto& each : values) {
      if (is_at(each.home, each.tensor)) continue;
      require_like(fmt::format("{} {} of {}", kind, each.variable.label(), label), each.tensor, each.home,
                   "as DataParallel has taken it: convert a module before");
      away.push_back({each.variable, each.tensor, each.home});
    }
  };
  look_at("parameter", parameters);
  look_at("buffer", buffers);
  if (away.empty()) return;
  std::vector<Impl*> others = modules_of(store);
  std::erase(others, this);
  require_own_memory(parts.parameters(), parts.buffers(), others);
  const at::NoGradGuard plain;
  device->torch_follows();
  for (const Away& each : away)
    if (have_others(each.home)) {
      leave_to_others(each.home);
      each.home = home_of(each.variable, each.tensor);
    }
  for (const Away& each : away) {
    each.home.copy_(each.tensor);
    each.tensor.set_data(each.home);
  }
  device->stream_follows();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& each = parameters[i];
    if (!each.hook.is_set() || each.hook.is_heard_by(each.tensor)) continue;
    each.hook = {};
    set_hook(i);
  }
}

void ReplicatedModule::Impl::leave_gradient_to_others(std::size_t number) {
  Parameter& each = parameters[number];
  if (!have_others(each.gradient)) return;
  const at::NoGradGuard plain;
  device->torch_follows();
  leave_to_others(each.gradient);
  each.gradient = tensor_of(store.gradient(each.variable), each.variable);
}

// What all ranks have now is what they had after the last step: `backward` need not make it equal.
void ReplicatedModule::Impl::note_buffers() {
  device->torch_follows();
  for (ModuleBuffer& each : buffers) each.note();
  device->stream_follows();
}

}  // namespace lockstep::libtorch
