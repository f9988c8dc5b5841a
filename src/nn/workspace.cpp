#include <utility>

#include <lockstep/nn/workspace.hpp>

namespace lockstep::nn {

TensorView Workspace::take(Shape shape) {
  const std::int64_t first = taken_, count = element_count(shape);
  const auto unit = static_cast<std::int64_t>(Buffer::alignment / size_of(dtype_));
  taken_ += (count + unit - 1) / unit * unit;
  if (counting_) return {nullptr, std::move(shape), dtype_, stream_->kind()};
  return memory_.view().slice(first, count).reshaped(std::move(shape));
}

void Workspace::count() {
  counting_ = true;
  taken_ = 0;
}

void Workspace::reserve() {
  if (memory_.dtype() != dtype_ || memory_.count() < taken_)
    memory_ = Tensor::uninitialised(dtype_, {taken_}, *stream_);
  counting_ = false;
  taken_ = 0;
}

}  // namespace lockstep::nn
