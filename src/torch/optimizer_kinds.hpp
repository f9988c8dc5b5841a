// What LibTorch's optimizers keep, class by class, and where. If a version of LibTorch changes that, so does this file.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <torch/optim/optimizer.h>

namespace lockstep::libtorch {

/// A number among the options of a group of parameters.
struct OptimizerOption {
  std::string_view name;
  std::variant<double*, bool*> at;

  double value() const;
  void set(double value) const;
};

/// A tensor of a parameter's state.
struct OptimizerSlot {
  std::string_view name;
  at::Tensor* at;
  bool is_used;  ///< as the options are
};

/// The members of a parameter's state.
struct OptimizerMembers {
  std::int64_t* steps;  ///< null if the class does not count them
  std::vector<OptimizerSlot> slots;
};

/// One of the classes.
struct OptimizerKind {
  std::string_view name;  ///< "adamw"
  std::vector<OptimizerOption> (*options)(::torch::optim::OptimizerOptions& options);
  std::unique_ptr<::torch::optim::OptimizerParamState> (*make_state)();
  OptimizerMembers (*members)(const ::torch::optim::OptimizerOptions& options,
                              ::torch::optim::OptimizerParamState& state);
};

/// InvalidArgument, which names the class, for one that is not known.
const OptimizerKind& kind_of(const ::torch::optim::Optimizer& optimizer);

/// Of a parameter; null if it has none.
::torch::optim::OptimizerParamState* find_state(::torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

/// Null removes it.
void set_state(::torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
               std::unique_ptr<::torch::optim::OptimizerParamState> state);

}  // namespace lockstep::libtorch
