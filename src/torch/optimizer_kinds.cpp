#include "torch/optimizer_kinds.hpp"

#include <concepts>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeindex>
#include <typeinfo>

#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <lockstep/core/base/error.hpp>

#include "core/values/type_text.hpp"

namespace lockstep::libtorch {
namespace {

namespace optim = ::torch::optim;

using OptionList = std::vector<OptimizerOption>;
using SlotList = std::vector<OptimizerSlot>;

OptionList options_of(optim::SGDOptions& o) {
  return {{"lr", &o.lr()},
          {"momentum", &o.momentum()},
          {"dampening", &o.dampening()},
          {"weight_decay", &o.weight_decay()},
          {"nesterov", &o.nesterov()}};
}

SlotList slots_of(const optim::SGDOptions& o, optim::SGDParamState& s) {
  return {{"momentum_buffer", &s.momentum_buffer(), o.momentum() != 0}};
}

template <class Adam>
  requires std::same_as<Adam, optim::AdamOptions> || std::same_as<Adam, optim::AdamWOptions>
OptionList options_of(Adam& o) {
  return {{"lr", &o.lr()},   {"beta1", &std::get<0>(o.betas())},  {"beta2", &std::get<1>(o.betas())},
          {"eps", &o.eps()}, {"weight_decay", &o.weight_decay()}, {"amsgrad", &o.amsgrad()}};
}

template <class Adam, class State>
  requires std::same_as<State, optim::AdamParamState> || std::same_as<State, optim::AdamWParamState>
SlotList slots_of(const Adam& o, State& s) {
  return {{"exp_avg", &s.exp_avg(), true},
          {"exp_avg_sq", &s.exp_avg_sq(), true},
          {"max_exp_avg_sq", &s.max_exp_avg_sq(), o.amsgrad()}};
}

OptionList options_of(optim::RMSpropOptions& o) {
  return {{"lr", &o.lr()},
          {"alpha", &o.alpha()},
          {"eps", &o.eps()},
          {"weight_decay", &o.weight_decay()},
          {"momentum", &o.momentum()},
          {"centered", &o.centered()}};
}

SlotList slots_of(const optim::RMSpropOptions& o, optim::RMSpropParamState& s) {
  return {{"square_avg", &s.square_avg(), true},
          {"momentum_buffer", &s.momentum_buffer(), o.momentum() > 0},
          {"grad_avg", &s.grad_avg(), o.centered()}};
}

OptionList options_of(optim::AdagradOptions& o) {
  return {{"lr", &o.lr()},
          {"lr_decay", &o.lr_decay()},
          {"weight_decay", &o.weight_decay()},
          {"initial_accumulator_value", &o.initial_accumulator_value()},
          {"eps", &o.eps()}};
}

SlotList slots_of(const optim::AdagradOptions&, optim::AdagradParamState& s) {
  return {{"sum", &s.sum(), true}};
}

template <class Options, class State>
OptimizerKind kind_with(std::string_view name) {
  return {.name = name,
          .options = [](optim::OptimizerOptions& options) { return options_of(static_cast<Options&>(options)); },
          .make_state = []() -> std::unique_ptr<optim::OptimizerParamState> { return std::make_unique<State>(); },
          .members =
              [](const optim::OptimizerOptions& options, optim::OptimizerParamState& state) {
                State& own = static_cast<State&>(state);
                std::int64_t* steps = nullptr;
                if constexpr (requires { own.step(); }) steps = &own.step();
                return OptimizerMembers{steps, slots_of(static_cast<const Options&>(options), own)};
              }};
}

using StateMap = std::remove_cvref_t<decltype(std::declval<optim::Optimizer&>().state())>;

/// Under which torch keeps the state of a parameter: its address, or up to 1.13 its address as a text.
template <class Key = StateMap::value_type::first_type>
Key key_of(const at::Tensor& parameter) {
  if constexpr (std::is_pointer_v<Key>) {
    return parameter.unsafeGetTensorImpl();
  } else {
    return c10::str(parameter.unsafeGetTensorImpl());
  }
}

}  // namespace

double OptimizerOption::value() const {
  return std::visit([](const auto* number) { return static_cast<double>(*number); }, at);
}

void OptimizerOption::set(double value) const {
  if (double* const* const number = std::get_if<double*>(&at)) {
    **number = value;
  } else {
    *std::get<bool*>(at) = value != 0;
  }
}

const OptimizerKind& kind_of(const optim::Optimizer& optimizer) {
  // Exactly these: a class that is derived from one of them may keep more.
  static const std::map<std::type_index, OptimizerKind> known{
      {typeid(optim::SGD), kind_with<optim::SGDOptions, optim::SGDParamState>("sgd")},
      {typeid(optim::Adam), kind_with<optim::AdamOptions, optim::AdamParamState>("adam")},
      {typeid(optim::AdamW), kind_with<optim::AdamWOptions, optim::AdamWParamState>("adamw")},
      {typeid(optim::RMSprop), kind_with<optim::RMSpropOptions, optim::RMSpropParamState>("rmsprop")},
      {typeid(optim::Adagrad), kind_with<optim::AdagradOptions, optim::AdagradParamState>("adagrad")}};
  const std::type_info& type = typeid(optimizer);
  if (const auto found = known.find(type); found != known.end()) return found->second;
  throw InvalidArgument{
      fmt::format("the state of a {} is not known; expected torch's SGD, Adam, AdamW, RMSprop or Adagrad",
                  lockstep::detail::type_text(type))};
}

optim::OptimizerParamState* find_state(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(key_of(parameter));
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

void set_state(optim::Optimizer& optimizer, const at::Tensor& parameter,
               std::unique_ptr<optim::OptimizerParamState> state) {
  if (state) {
    optimizer.state()[key_of(parameter)] = std::move(state);
  } else {
    optimizer.state().erase(key_of(parameter));
  }
}

}  // namespace lockstep::libtorch
