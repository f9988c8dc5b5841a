#include <algorithm>
#include <cstring>
#include <typeinfo>
#include <utility>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/batch_outline.hpp>

#include "core/base/digest.hpp"

namespace lockstep::detail {
namespace {

std::int64_t number_of(const char* type) {
  return static_cast<std::int64_t>(digest_of(type));
}

/// As OutlineKey.
bool is_outline_key(const Description& key) {
  const bool is_floating = key.carrier == DType::f32 || key.carrier == DType::f64 || key.type == typeid(long double);
  return (key.kind == Description::Kind::number && !is_floating) || key.type == typeid(std::string);
}

/// As needs_outline.
bool has_outline(const Description& description) {
  switch (description.kind) {
    case Description::Kind::tensor:
    case Description::Kind::slices: return true;
    case Description::Kind::map: return is_outline_key(description.key());
    case Description::Kind::list:
    case Description::Kind::tuple:
    case Description::Kind::record:
      return std::ranges::any_of(description.parts, [](Description::Of part) { return has_outline(part()); });
    case Description::Kind::number:
    case Description::Kind::text:
    case Description::Kind::leaf:
    case Description::Kind::per_replica:
    case Description::Kind::mirrored:
    case Description::Kind::range:
    case Description::Kind::other: return false;
  }
  return false;
}

class OutlineWriter {
 public:
  explicit OutlineWriter(const char* type) : numbers_{number_of(type)} {}

  void add(const Description& description, const void* value) {
    if (!has_outline(description)) return;
    if (description.kind == Description::Kind::tensor) return add(static_cast<const Tensor*>(value)->view());
    if (description.kind == Description::Kind::slices) {
      const auto& slices = *static_cast<const IndexedSlices*>(value);
      add(slices.values.view());
      add(slices.indices.view());
      return add(slices.dense_shape);
    }
    if (description.grows) add(static_cast<std::int64_t>(description.count(value)));
    description.each(value, [&](const Description& of_part, const void* part, const void* key) {
      if (key) add_key(description.key(), key);
      add(of_part, part);
    });
  }

  std::vector<std::int64_t> take() { return std::move(numbers_); }

 private:
  void add(std::int64_t number) { numbers_.push_back(number); }
  void add(const Shape& shape) {
    add(static_cast<std::int64_t>(shape.size()));
    numbers_.insert(numbers_.end(), shape.begin(), shape.end());
  }
  void add(const TensorView& tensor) {
    add(static_cast<std::int64_t>(tensor.dtype()));
    add(static_cast<std::int64_t>(tensor.device()));
    add(tensor.shape());
  }
  void add_key(const Description& description, const void* key) {
    if (description.kind == Description::Kind::number) {
      std::int64_t number = 0;  // whose lowest bytes are the key
      std::memcpy(&number, key, std::min(description.size, sizeof number));
      return add(number);
    }
    const std::string text = description.text(key);
    add(static_cast<std::int64_t>(text.size()));
    for (const char each : text) add(std::int64_t{each});
  }

  std::vector<std::int64_t> numbers_;
};

}  // namespace

std::vector<std::int64_t> outline_at(const Description& description, const void* batch) {
  OutlineWriter writer{description.type.name()};
  writer.add(description, batch);
  return writer.take();
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
