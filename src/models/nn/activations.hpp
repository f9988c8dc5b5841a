// The types of activations, and of the weights that they are multiplied by.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/nn/models.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep::nn {

inline DType activation_type(DType dtype, Model::Precision precision) {
  return precision == Model::Precision::bf16 ? DType::bf16 : dtype;
}

/// For a model, "a gpt": InvalidArgument for variables that are not f32 under bf16.
inline void require_precision(std::string_view model, DType dtype, Model::Precision precision) {
  if (precision == Model::Precision::bf16 && dtype != DType::f32)
    throw InvalidArgument{
        fmt::format("{} of {} with activations of bf16 is not supported; expected f32", model, name_of(dtype))};
}

/// A weight as products with `activations` read it.
inline TensorView weight_for(const TensorView& activations, const Variable& weight, Here here = Here::current()) {
  return weight.for_reading(activations.dtype() == DType::bf16 ? DType::bf16 : weight.dtype(), here);
}

inline TensorView values_of(const Variable& variable, Here here = Here::current()) {
  return variable.for_reading(variable.dtype(), here);
}

}  // namespace lockstep::nn
