#include "torch_c/arrays.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "c/calls.hpp"

namespace lockstep::in_c {
namespace {

struct TypeRow {
  int type;
  at::ScalarType scalar;
  const char* name;
};
constexpr TypeRow types[] = {{LOCKSTEP_F32, at::kFloat, "f32"},
                             {LOCKSTEP_F64, at::kDouble, "f64"},
                             {LOCKSTEP_I32, at::kInt, "i32"},
                             {LOCKSTEP_I64, at::kLong, "i64"},
                             {LOCKSTEP_U8, at::kByte, "u8"}};

const TypeRow* row_of(int type) {
  for (const TypeRow& each : types)
    if (each.type == type) return &each;
  return nullptr;
}

at::IntArrayRef shape_of(const lockstep_array& array) {
  return {array.shape, static_cast<std::size_t>(array.dimensions)};
}

std::string with_shape(const char* type, at::IntArrayRef shape) {
  return fmt::format("{}[{}]", type, fmt::join(shape, ", "));
}

/// Its memory itself.
at::Tensor view_of(const lockstep_array& array) {
  return at::from_blob(array.values, shape_of(array), row_of(array.type)->scalar);
}

void require_array(const lockstep_array& array, const std::string& name) {
  const TypeRow* const row = row_of(array.type);
  require(row, "{} has type {}, which is none; expected LOCKSTEP_F32 or another lockstep_type", name, array.type);
  require(array.dimensions >= 1 && array.dimensions <= LOCKSTEP_DIMENSIONS,
          "{} has {} dimensions; expected 1 to {}, of which the first counts rows", name, array.dimensions,
          LOCKSTEP_DIMENSIONS);
  const auto bytes = static_cast<std::int64_t>(at::elementSize(row->scalar));
  std::int64_t left = std::numeric_limits<std::ptrdiff_t>::max() / bytes, count = 1;
  for (const std::int64_t extent : shape_of(array)) {
    require(extent >= 0, "{} is {}; expected extents of 0 or more", name, text_of(array));
    require(extent <= left, "{} is {}, more than memory can hold", name, text_of(array));
    if (extent > 0) left /= extent;
    count *= extent;
  }
  require_memory(array.values, count, bytes, name);
}

}  // namespace

std::string text_of(const lockstep_array& array) {
  return with_shape(row_of(array.type)->name, shape_of(array));
}

std::string text_of(const at::Tensor& tensor) {
  for (const TypeRow& each : types)
    if (each.scalar == tensor.scalar_type()) return with_shape(each.name, tensor.sizes());
  return with_shape(c10::toString(tensor.scalar_type()), tensor.sizes());
}

Arrays require_arrays(const lockstep_array* arrays, int count, int least, std::string_view name) {
  require(count >= least, "there are {} {}; expected {} or more", count, name, least);
  require(arrays || count == 0, "{} is NULL; expected {} arrays", name, count);
  const Arrays all{arrays, static_cast<std::size_t>(count)};
  for (std::size_t i = 0; i < all.size(); ++i) require_array(all[i], fmt::format("{}[{}]", name, i));
  return all;
}

std::int64_t rows_of(Arrays arrays, Arrays others, std::string_view other_name) {
  const std::int64_t rows = arrays.front().shape[0];
  const auto require_rows = [&](Arrays of, std::string_view name) {
    for (std::size_t i = 0; i < of.size(); ++i)
      require(of[i].shape[0] == rows, "{}[{}] has {} rows, and inputs[0] has {}; expected as many", name, i,
              of[i].shape[0], rows);
  };
  require_rows(arrays, "inputs");
  require_rows(others, other_name);
  return rows;
}

std::vector<at::Tensor> copies_of(Arrays arrays, std::int64_t first, std::int64_t count, at::ScalarType floats) {
  std::vector<at::Tensor> copies;
  for (const lockstep_array& each : arrays) {
    const at::Tensor rows = view_of(each).narrow(0, first, count);
    // A script may keep what it gets, or write to it.
    copies.push_back(rows.to(rows.is_floating_point() ? floats : rows.scalar_type(), false, true));
  }
  return copies;
}

void write(const std::vector<at::Tensor>& results, Arrays arrays) {
  require(results.size() == arrays.size(), "the model has {} outputs, and there are {} arrays; expected as many",
          results.size(), arrays.size());
  const at::NoGradGuard plain;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const at::Tensor to = view_of(arrays[i]);
    require(results[i].sizes() == to.sizes(),
            "outputs[{}] is {}, and the model's output is {}; expected the same shape", i, text_of(arrays[i]),
            text_of(results[i]));
    require(to.is_floating_point() ? !results[i].is_complex() : to.scalar_type() == results[i].scalar_type(),
            "outputs[{}] is {}, and the model's output is {}; expected a type that holds it", i, text_of(arrays[i]),
            text_of(results[i]));
  }
  for (std::size_t i = 0; i < arrays.size(); ++i) view_of(arrays[i]).copy_(results[i]);
}

}  // namespace lockstep::in_c
