// Tensors: dense, row-major arrays of one element type on one device.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/core/device/stream.hpp>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace lockstep {

/// Where a tensor's elements are, and what they are. Owns nothing; valid as long as the memory is.
class LOCKSTEP_API TensorView {
 public:
  /// An empty f32 view of shape [0].
  TensorView() = default;
  /// InvalidArgument if an extent is negative, or if 64 bits cannot count the elements.
  TensorView(std::byte* data, Shape shape, DType dtype, DeviceKind device = DeviceKind::cpu);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  DeviceKind device() const { return device_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const;
  std::byte* data() const { return data_; }

  /// The elements, in place. InvalidArgument unless T is the element type and they are in host memory.
  template <detail::Element T>
  std::span<T> elements() const {
    require_host(detail::dtype_of<T>);
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(count_)};
  }

  /// The elements, copied to the host. Blocks until all work of their device is done. InvalidArgument, which names
  /// `here`, unless T is the element type.
  template <detail::Element T>
  std::vector<T> to_vector(Here here = Here::current()) const {
    require_type(detail::dtype_of<T>, "to_vector", here);
    std::vector<T> values(static_cast<std::size_t>(count_));
    read(values.data());
    return values;
  }

  /// The value of the only element. Blocks as to_vector. InvalidArgument, which names `here`, unless T is the element
  /// type and there is one element, whatever the number of dimensions.
  template <detail::Element T>
  T item(Here here = Here::current()) const {
    require_type(detail::dtype_of<T>, "item", here);
    require_one("item", here);
    T value{};
    read(&value);
    return value;
  }

  /// Enqueues zeroing of all elements. InvalidArgument unless the view is in memory of the stream's device.
  void fill_zero(Stream& stream = Stream::host()) const;

  /// Elements [first, first + count) as a one-dimensional view. InvalidArgument if they are not all in this one.
  TensorView slice(std::int64_t first, std::int64_t count) const;

  /// The same elements under another shape. InvalidArgument unless it has the same element count.
  TensorView reshaped(Shape shape) const;

 private:
  // Their messages begin with `call` and its place.
  void require_type(DType wanted, const char* call, const Here& here) const;
  void require_one(const char* call, const Here& here) const;
  void require_host(DType wanted) const;
  void read(void* to) const;

  std::byte* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::f32;
  DeviceKind device_ = DeviceKind::cpu;
  std::int64_t count_ = 0;
};

/// "f32[512, 784]": how messages describe a tensor.
LOCKSTEP_API std::string describe(const TensorView& view);

/// Enqueues a copy of the elements. InvalidArgument unless both views have the same shape and type and each is in
/// memory of the stream's device or of the host. For lifetimes, see Stream::copy.
LOCKSTEP_API void copy(const TensorView& from, const TensorView& to, Stream& stream = Stream::host());

/// A tensor that shares ownership of its memory: copies refer to the same elements.
class LOCKSTEP_API Tensor {
 public:
  /// An empty f32 tensor of shape [0].
  Tensor() = default;

  /// On the host, copied from `values`. InvalidArgument unless `shape` has as many elements.
  template <detail::Element T>
  static Tensor from(std::span<const T> values, Shape shape) {
    return from_bytes(std::as_bytes(values), detail::dtype_of<T>, std::move(shape));
  }
  template <detail::Element T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    return from(std::span<const T>{values}, std::move(shape));
  }
  template <detail::Element T>
  static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>{values.begin(), values.size()}, std::move(shape));
  }
  template <detail::Element T>
  static Tensor scalar(T value) {
    return from(std::span<const T>{&value, 1}, {});
  }
  /// Zeros in memory of the stream's device, for work enqueued there from here on.
  static Tensor zeros(DType dtype, Shape shape, Stream& stream = Stream::host());

  /// As `zeros`, but uninitialised: for tensors that are written before they are read.
  static Tensor uninitialised(DType dtype, Shape shape, Stream& stream = Stream::host());

  /// Zeros on the host, in memory that `stream` copies to and from best.
  static Tensor pinned(DType dtype, Shape shape, Stream& stream);

  /// A copy of `view` in memory of the stream's device, for work enqueued there from here on. As `copy`.
  static Tensor copy_of(const TensorView& view, Stream& stream = Stream::host());

  /// A copy of `view` in host memory. Blocks until all work of the view's device is done.
  static Tensor on_host(const TensorView& view);

  /// Rows as one tensor: n tensors of one shape and type become one of shape [n, …] in new memory of the host.
  /// InvalidArgument if there are none, if their shapes or types differ, or if one is in the memory of a GPU (copy it
  /// first, by Tensor::on_host).
  static Tensor stack(std::span<const Tensor> rows);

  // Tensors to and from other libraries without a copy, by DLPack (https://dmlc.github.io/dlpack): LibTorch, NumPy,
  // CuPy, JAX and others exchange such tensors. DLPack's own header has the structures; its versions 0.2 to 1.x fit.
  //
  // GPU tensors must be on the GPU that this process has bound. Streams do not travel with a tensor here: before you
  // hand one over, or hand it back, wait for the work that writes it.

  /// LOCAL. A tensor with the memory of `managed`, which it takes over: the last of the tensor and its copies calls the
  /// deleter, on whichever thread that is. Memory of the host, also if it is pinned, or of this process's GPU.
  ///
  /// InvalidArgument for a null pointer, a type that is no DType, a vector type, memory of any other kind or GPU,
  /// strides of anything but dense rows, and elements that are not aligned to their size. DeviceError for memory of a
  /// GPU if this process has none. After an error the caller still owns `managed`.
  static Tensor from_dlpack(DLManagedTensor* managed);

  /// As from_dlpack of a DLManagedTensor. InvalidArgument also for memory that is read-only, since a Tensor may be
  /// written, and for a version of DLPack other than 1.
  static Tensor from_dlpack(DLManagedTensorVersioned* managed);

  /// LOCAL. This tensor for another library, with its strides. It shares the memory with this one, which may go first;
  /// the caller owns it, and calls its deleter once, on any thread. `tensor.to_dlpack<DLManagedTensorVersioned>()`
  /// makes one of version 1.0 of DLPack.
  template <class Managed = DLManagedTensor>
    requires std::same_as<Managed, DLManagedTensor> || std::same_as<Managed, DLManagedTensorVersioned>
  Managed* to_dlpack() const;

  /// As TensorView::to_vector and TensorView::item.
  template <detail::Element T>
  std::vector<T> to_vector(Here here = Here::current()) const {
    return view_.to_vector<T>(here);
  }
  template <detail::Element T>
  T item(Here here = Here::current()) const {
    return view_.item<T>(here);
  }
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  DeviceKind device() const { return view_.device(); }
  std::int64_t count() const { return view_.count(); }

  /// Valid while this tensor, or a copy of it, lives.
  TensorView view() const { return view_; }

  /// A tensor for `part`, a part of this one's memory, that shares ownership of it.
  Tensor sharing(TensorView part) const { return {buffer_, std::move(part)}; }

 private:
  friend struct detail::Inside<Tensor>;
  Tensor(std::shared_ptr<const Buffer> buffer, TensorView view);
  static Tensor from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape);

  std::shared_ptr<const Buffer> buffer_;
  TensorView view_;
};

template <>
DLManagedTensor* Tensor::to_dlpack() const;
template <>
DLManagedTensorVersioned* Tensor::to_dlpack() const;

}  // namespace lockstep
