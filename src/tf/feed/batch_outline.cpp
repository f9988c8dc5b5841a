#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/batch_outline.hpp>

#include "core/base/digest.hpp"

namespace lockstep::detail {
namespace {

std::int64_t number_of(const char* type) {
  return static_cast<std::int64_t>(digest_of(type));
}

}  // namespace

OutlineWriter::OutlineWriter(const char* type) : numbers_{number_of(type)} {}

void OutlineWriter::add(const Shape& shape) {
  add(static_cast<std::int64_t>(shape.size()));
  numbers_.insert(numbers_.end(), shape.begin(), shape.end());
}

void OutlineWriter::add(const TensorView& tensor) {
  add(static_cast<std::int64_t>(tensor.dtype()));
  add(static_cast<std::int64_t>(tensor.device()));
  add(tensor.shape());
}

OutlineReader::OutlineReader(std::span<const std::int64_t> outline, const char* type, Stream& stream)
    : left_{outline}, stream_{stream} {
  if (number() != number_of(type))
    throw MismatchError{"the batch of another replica is of another type; expected that all ask the same iterator"};
}

std::int64_t OutlineReader::number() {
  const std::int64_t number = left_.front();
  left_ = left_.subspan(1);
  return number;
}

Shape OutlineReader::shape() {
  Shape shape;
  for (std::int64_t left = number(); left > 0; --left) shape.push_back(number());
  return shape;
}

Tensor OutlineReader::tensor() {
  const auto dtype = static_cast<DType>(number());
  const auto device = static_cast<DeviceKind>(number());
  Shape without_samples = shape();
  if (!without_samples.empty()) without_samples.front() = 0;
  return Tensor::zeros(dtype, std::move(without_samples), device == DeviceKind::cpu ? Stream::host() : stream_);
}

}  // namespace lockstep::detail
