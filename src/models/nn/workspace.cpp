#include "models/nn/workspace.hpp"

#include <utility>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/device/device.hpp"

namespace lockstep::nn {

TensorView Workspace::take(Shape shape, DType dtype) {
  const auto unit = static_cast<std::int64_t>(Buffer::alignment);
  const std::int64_t first = taken_bytes_, bytes = element_count(shape) * static_cast<std::int64_t>(size_of(dtype));
  taken_bytes_ += (bytes + unit - 1) / unit * unit;
  std::byte* const data = counting_ ? nullptr : memory_.view().slice(first, bytes).data();
  return {data, std::move(shape), dtype, stream_->kind()};
}

void Workspace::count() {
  counting_ = true;
  taken_bytes_ = 0;
}

void Workspace::reserve() {
  if (memory_.dtype() != DType::u8 || memory_.count() < taken_bytes_)
    memory_ = Tensor::uninitialised(DType::u8, {taken_bytes_}, *stream_);
  counting_ = false;
  taken_bytes_ = 0;
}

}  // namespace lockstep::nn
