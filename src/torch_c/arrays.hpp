// Arrays of a C program as tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/torch.h>

namespace lockstep::in_c {

/// The arrays that a call was given, once it is known that there are any.
using Arrays = std::span<const lockstep_array>;

/// InvalidArgument unless there are `least` or more arrays, which are called `name`, of valid types and shapes.
Arrays require_arrays(const lockstep_array* arrays, int count, int least, std::string_view name);

/// The number of rows. InvalidArgument if those of `others` have another.
std::int64_t rows_of(Arrays arrays, Arrays others, std::string_view other_name);

/// Copies of these rows of each array, with floating-point numbers as `floats`.
std::vector<at::Tensor> copies_of(Arrays arrays, std::int64_t first, std::int64_t count, at::ScalarType floats);

/// "f32[4, 1]".
std::string text_of(const lockstep_array& array);
std::string text_of(const at::Tensor& tensor);

/// Copies results into the arrays. InvalidArgument for other shapes, and for floating-point numbers into integers.
void write(const std::vector<at::Tensor>& results, Arrays arrays);

}  // namespace lockstep::in_c
