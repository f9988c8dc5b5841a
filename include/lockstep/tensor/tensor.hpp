// Tensors: dense, row-major arrays of one element type on one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/base/shape.hpp>
#include <lockstep/device/device.hpp>

namespace lockstep {

/// Where a tensor's elements are, and what they are. Owns nothing: valid while the memory is.
class TensorView {
 public:
  TensorView() = default;
  TensorView(std::byte* data, Shape shape, DType dtype, DeviceKind device = DeviceKind::cpu);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  DeviceKind device() const { return device_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * size_of(dtype_); }
  std::byte* data() const { return data_; }

  /// The elements, in place. InvalidArgument unless T is the element type and the memory is the host's.
  template <Element T>
  std::span<T> elements() const {
    require_host(dtype_of<T>);
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(count_)};
  }

  /// The elements, copied to the host. Waits for all work of their device. InvalidArgument unless T is the element
  /// type.
  template <Element T>
  std::vector<T> to_vector() const {
    require_type(dtype_of<T>);
    std::vector<T> values(static_cast<std::size_t>(count_));
    read_device(device_, values.data(), data_, bytes());
    return values;
  }

  /// Elements [first, first + count) as a view of one dimension.
  TensorView slice(std::int64_t first, std::int64_t count) const;

  /// The same elements under another shape of the same count.
  TensorView reshaped(Shape shape) const;

 private:
  void require_type(DType wanted) const;
  void require_host(DType wanted) const;

  std::byte* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::f32;
  DeviceKind device_ = DeviceKind::cpu;
  std::int64_t count_ = 0;
};

/// "f32[512, 784]": how messages name what a tensor is.
std::string describe(const TensorView& view);

/// Enqueues a copy of the elements between views of the same shape and type. InvalidArgument unless each view is in
/// memory of the stream's device or of the host. As to lifetimes, see Stream::copy.
void copy(const TensorView& from, const TensorView& to, Stream& stream = host_stream());

/// Enqueues zeros for all elements of a view in memory of the stream's device.
void fill_zero(const TensorView& view, Stream& stream = host_stream());

/// Shared ownership of a tensor's memory: copies mean the same elements.
class Tensor {
 public:
  /// An empty f32 tensor of shape [0].
  Tensor() = default;
  Tensor(std::shared_ptr<const Buffer> buffer, TensorView view);

  /// On the host, copied from `values`. InvalidArgument unless `shape` has as many elements.
  template <Element T>
  static Tensor from(std::span<const T> values, Shape shape) {
    return from_bytes(std::as_bytes(values), dtype_of<T>, std::move(shape));
  }
  template <Element T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>{values}, std::move(shape));
  }
  template <Element T>
  static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>{values.begin(), values.size()}, std::move(shape));
  }
  template <Element T>
  static Tensor scalar(T value) {
    return from(std::span<const T>{&value, 1}, {});
  }
  /// In memory of the stream's device, for work enqueued there from here on.
  static Tensor zeros(DType dtype, Shape shape, Stream& stream = host_stream());

  /// The same without a value in it: for what is written before it is read.
  static Tensor uninitialised(DType dtype, Shape shape, Stream& stream = host_stream());

  /// On the host, in memory that `stream` copies from and to best (Stream::allocate_pinned).
  static Tensor pinned(DType dtype, Shape shape, Stream& stream);

  /// The elements of `view` in memory of the stream's device, for work enqueued there from here on. As `copy`.
  static Tensor copy_of(const TensorView& view, Stream& stream = host_stream());

  /// The elements of `view` in memory of the host. Waits for all work of the view's device.
  static Tensor on_host(const TensorView& view);

  template <Element T>
  std::vector<T> to_vector() const {
    return view_.to_vector<T>();
  }
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  DeviceKind device() const { return view_.device(); }
  std::int64_t count() const { return view_.count(); }

  /// Valid while this tensor, or a copy of it, lives.
  TensorView view() const { return view_; }

  /// A tensor that shares the ownership of this one's memory, of which `part` is a part.
  Tensor sharing(TensorView part) const { return {buffer_, std::move(part)}; }

 private:
  static Tensor from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape);

  std::shared_ptr<const Buffer> buffer_;
  TensorView view_;
};

}  // namespace lockstep
