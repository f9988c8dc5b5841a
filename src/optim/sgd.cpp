#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/optim/sgd.hpp>

namespace lockstep {

Sgd::Sgd(SgdOptions options) : Sgd{options, nullptr} {}

Sgd::Sgd(SgdOptions options, std::shared_ptr<const ops::Kernels> kernels)
    : options_{options}, kernels_{std::move(kernels)} {
  // Written so that a NaN fails.
  if (!(options_.learning_rate > 0) || std::isinf(options_.learning_rate))
    throw InvalidArgument{fmt::format("the learning rate is {}; expected a positive number", options_.learning_rate)};
  if (!(options_.momentum >= 0 && options_.momentum < 1))
    throw InvalidArgument{fmt::format("the momentum is {}; expected a number from 0 to below 1", options_.momentum)};
}

void Sgd::update(const FlatRange& range, double divisor) {
  if (!kernels_) kernels_ = ops::make_kernels(ops::KernelChoice::automatic, {}, range.stream());
  if (options_.momentum == 0) {
    kernels_->sgd(range.values, range.gradients, divisor, options_.learning_rate);
  } else {
    kernels_->momentum(range.values, range.gradients, range.slot("momentum"), divisor, options_.learning_rate,
                       options_.momentum);
  }
}

}  // namespace lockstep
