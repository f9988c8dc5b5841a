#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

constexpr std::string_view velocity = "momentum";

}  // namespace

Sgd::Sgd(const Options& options)
    : Optimizer{{.learning_rate = options.learning_rate,
                 .weight_decay = options.weight_decay,
                 .clip_norm = options.clip_norm,
                 .name = options.name,
                 .settings = options.momentum != 0 ? fmt::format("momentum {}", options.momentum) : "",
                 .portable = options.portable}},
      momentum_{options.momentum} {
  // Written so that NaN fails.
  if (!(momentum_ >= 0 && momentum_ < 1))
    throw InvalidArgument{fmt::format("the momentum is {}; expected a number from 0 to below 1", momentum_)};
}

std::vector<std::string_view> Sgd::slots() const {
  return momentum_ == 0 ? std::vector<std::string_view>{} : std::vector{velocity};
}

void Sgd::update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) {
  if (momentum_ == 0) {
    kernels.sgd(range.values, range.gradients, step);
  } else {
    kernels.momentum(range.values, range.gradients, range.slot(velocity), step, momentum_);
  }
}

}  // namespace lockstep
