// What every device's kernels of optimizers refuse, with the same words.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/update/update_step.hpp>

#include "core/tensor/operand_checks.hpp"

namespace lockstep::detail {

/// Operands of one float type and shape that do not overlap, and the scalars of a step.
void check_update(DeviceKind device, std::string_view operation, std::initializer_list<const TensorView*> operands,
                  const UpdateStep& step);

void check_moments(std::string_view operation, const AdamWMoments& moments);

/// Each operand is f32 or f64.
void check_floats(DeviceKind device, std::string_view operation, std::span<const TensorView> operands);

/// `part` is f32 or f64, and `sums` f64 with an element for each of its blocks.
void check_block_squares(DeviceKind device, const TensorView& part, const TensorView& sums);

}  // namespace lockstep::detail
