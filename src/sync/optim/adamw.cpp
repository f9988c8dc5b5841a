#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>

#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

constexpr std::string_view first_moment = "first_moment";
constexpr std::string_view second_moment = "second_moment";

// Both conditions are written so that NaN fails.

void require_beta(std::string_view name, double value) {
  if (!(value >= 0 && value < 1))
    throw InvalidArgument{fmt::format("{} is {}; expected a number from 0 to below 1", name, value)};
}

void require_epsilon(double value) {
  if (!(value > 0) || std::isinf(value))
    throw InvalidArgument{fmt::format("epsilon is {}; expected a positive number", value)};
}

}  // namespace

AdamW::AdamW(const Options& options)
    : Optimizer{{.learning_rate = options.learning_rate,
                 .weight_decay = options.weight_decay,
                 .clip_norm = options.clip_norm,
                 .name = options.name,
                 .settings = fmt::format("betas {} and {}, epsilon {}", options.moments.beta1, options.moments.beta2,
                                         options.moments.epsilon),
                 .portable = options.portable}},
      moments_{options.moments} {
  require_beta("beta1", moments_.beta1);
  require_beta("beta2", moments_.beta2);
  require_epsilon(moments_.epsilon);
}

std::vector<std::string_view> AdamW::slots() const {
  return {first_moment, second_moment};
}

void AdamW::update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) {
  kernels.adamw(range.values, range.gradients, range.slot(first_moment), range.slot(second_moment), step, moments_);
}

}  // namespace lockstep
