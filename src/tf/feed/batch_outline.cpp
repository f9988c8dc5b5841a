#include "tf/feed/batch_outline.hpp"

#include <algorithm>
#include <cstring>
#include <typeinfo>
#include <utility>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"

namespace lockstep::detail {
namespace {

std::int64_t number_of(const char* type) {
  return static_cast<std::int64_t>(digest_of(type));
}

bool is_outline_key(const Description& key) {
  const bool is_floating = key.carrier == DType::f32 || key.carrier == DType::f64 || key.type == typeid(long double);
  return (key.kind == Description::Kind::number && !is_floating) || key.type == typeid(std::string);
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

/// Decodes an outline, in the order in which it was written.
class OutlineReader {
 public:
  OutlineReader(std::span<const std::int64_t> outline, Stream& stream) : left_{outline}, stream_{stream} {}

  std::int64_t number() {
    const std::int64_t number = left_.front();
    left_ = left_.subspan(1);
    return number;
  }

  void read(const Description& description, const void* value) {
    void* const to = const_cast<void*>(value);
    // A member of a struct may begin with something else than a blank value.
    if (description.clear && (description.grows || !has_outline(description))) description.clear(to);
    if (!has_outline(description)) return;
    if (description.kind == Description::Kind::tensor) {
      *static_cast<Tensor*>(to) = tensor();
    } else if (description.kind == Description::Kind::slices) {
      auto& slices = *static_cast<IndexedSlices*>(to);
      slices.values = tensor();
      slices.indices = tensor();
      slices.dense_shape = shape();
    } else {
      const Description::Visit read_part = [&](const Description& of_part, const void* part, const void* key) {
        if (key) read_key(description.key(), const_cast<void*>(key));
        read(of_part, part);
      };
      if (!description.grows) return description.each(value, read_part);
      for (std::int64_t left = number(); left > 0; --left) description.append(to, read_part);
    }
  }

 private:
  Shape shape() {
    Shape shape;
    for (std::int64_t left = number(); left > 0; --left) shape.push_back(number());
    return shape;
  }

  /// With a first extent of 0. A tensor without extents holds 0.
  Tensor tensor() {
    const auto dtype = static_cast<DType>(number());
    const auto device = static_cast<DeviceKind>(number());
    Shape without_samples = shape();
    if (!without_samples.empty()) without_samples.front() = 0;
    return Tensor::zeros(dtype, std::move(without_samples), device == DeviceKind::cpu ? Stream::host() : stream_);
  }

  void read_key(const Description& description, void* key) {
    if (description.kind == Description::Kind::number) {
      const std::int64_t bytes = number();
      std::memcpy(key, &bytes, std::min(description.size, sizeof bytes));
    } else {
      std::string& text = *static_cast<std::string*>(key);
      for (std::int64_t left = number(); left > 0; --left) text += static_cast<char>(number());
    }
  }

  std::span<const std::int64_t> left_;
  Stream& stream_;
};

}  // namespace

bool has_outline(const Description& type) {
  switch (type.kind) {
    case Description::Kind::tensor:
    case Description::Kind::slices: return true;
    case Description::Kind::map: return type.append && is_outline_key(type.key());
    case Description::Kind::list: return (type.append || !type.grows) && has_outline(type.parts.front()());
    case Description::Kind::tuple:
    case Description::Kind::record:
      return std::ranges::any_of(type.parts, [](Description::Of part) { return has_outline(part()); });
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

std::vector<std::int64_t> outline_of(const Description& type, const void* batch) {
  OutlineWriter writer{type.type.name()};
  writer.add(type, batch);
  return writer.take();
}

void take_outline(const Description& type, void* batch, std::span<const std::int64_t> outline, Stream& stream) {
  OutlineReader reader{outline, stream};
  if (reader.number() != number_of(type.type.name()))
    throw MismatchError{"the batch of another replica is of another type; expected that all ask the same iterator"};
  reader.read(type, batch);
}

void visit_tensors(const Description& type, const void* value, const std::function<void(Tensor&)>& visit) {
  if (type.kind == Description::Kind::tensor) {
    visit(*const_cast<Tensor*>(static_cast<const Tensor*>(value)));
  } else if (has_outline(type) && type.kind != Description::Kind::slices) {
    type.each(value,
              [&](const Description& of_part, const void* part, const void*) { visit_tensors(of_part, part, visit); });
  }
}

std::string describe_tensors(const Description& type, const void* value) {
  std::string text;
  visit_tensors(type, value,
                [&](const Tensor& tensor) { text += (text.empty() ? "" : ", ") + lockstep::describe(tensor.view()); });
  return text;
}

}  // namespace lockstep::detail
