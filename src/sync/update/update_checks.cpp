#include "sync/update/update_checks.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "sync/update/square_blocks.hpp"

namespace lockstep::detail {

void check_update(DeviceKind device, std::string_view operation, std::initializer_list<const TensorView*> operands,
                  const UpdateStep& step) {
  for (const TensorView* const each : operands) require_float(device, operation, *each);
  for (const auto* a = operands.begin(); a != operands.end(); ++a)
    for (const auto* b = a + 1; b != operands.end(); ++b) {
      require_same_shape(device, operation, **a, **b);
      require_apart(operation, **a, **b);
    }
  check_positive(operation, "divisor", step.divisor);
  require_not_negative(operation, "learning rate", step.learning_rate);
  require_not_negative(operation, "factor", step.factor);
  require_not_negative(operation, "weight decay", step.weight_decay);
  if (step.number < 1)
    throw InvalidArgument{fmt::format("{}: the number of the step is {}, expected 1 or more", operation, step.number)};
}

void check_moments(std::string_view operation, const AdamWMoments& moments) {
  check_fraction(operation, "beta1", moments.beta1);
  check_fraction(operation, "beta2", moments.beta2);
  check_positive(operation, "epsilon", moments.epsilon);
}

void check_floats(DeviceKind device, std::string_view operation, std::span<const TensorView> operands) {
  for (const TensorView& each : operands) require_float(device, operation, each);
}

void check_block_squares(DeviceKind device, const TensorView& part, const TensorView& sums) {
  require_float(device, "block_squares", part);
  require_place(device, "block_squares", sums);
  if (sums.dtype() != DType::f64 || sums.count() != square_blocks(part.count()))
    throw InvalidArgument{fmt::format("block_squares: {} for the sums of {}; expected f64[{}]", describe(sums),
                                      describe(part), square_blocks(part.count()))};
}

}  // namespace lockstep::detail
