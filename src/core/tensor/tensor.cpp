#include <cstring>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/base/site.hpp"
#include "core/device/device.hpp"

namespace lockstep {
namespace {

std::string read_as(const TensorView& view, DType wanted) {
  return fmt::format("{} was read as {}", describe(view), name_of(wanted));
}

}  // namespace

TensorView::TensorView(std::byte* data, Shape shape, DType dtype, DeviceKind device)
    : data_{data}, shape_{std::move(shape)}, dtype_{dtype}, device_{device}, count_{element_count(shape_)} {}

TensorView TensorView::slice(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > count_ - count)
    throw InvalidArgument{fmt::format("slice [{}, {}) is outside of {}", first, first + count, describe(*this))};
  return {data_ + static_cast<std::size_t>(first) * size_of(dtype_), {count}, dtype_, device_};
}

TensorView TensorView::reshaped(Shape shape) const {
  if (element_count(shape) != count_)
    throw InvalidArgument{fmt::format("{} cannot take the shape {}", describe(*this), describe(shape))};
  return {data_, std::move(shape), dtype_, device_};
}

std::size_t TensorView::bytes() const {
  return static_cast<std::size_t>(count_) * size_of(dtype_);
}

void TensorView::read(void* to) const {
  read_device(device_, to, data_, bytes());
}

void TensorView::require_type(DType wanted, const char* call, const Here& here) const {
  if (dtype_ != wanted) throw InvalidArgument{call_text(call, here) + read_as(*this, wanted)};
}

void TensorView::require_one(const char* call, const Here& here) const {
  if (count_ != 1)
    throw InvalidArgument{
        fmt::format("{}{} has {} elements; expected one", call_text(call, here), describe(*this), count_)};
}

void TensorView::require_host(DType wanted) const {
  if (dtype_ != wanted) throw InvalidArgument{read_as(*this, wanted)};
  if (device_ != DeviceKind::cpu)
    throw InvalidArgument{
        fmt::format("{} is in the memory of a {} device, not the host's", describe(*this), name_of(device_))};
}

std::string describe(const TensorView& view) {
  return fmt::format("{}{}", name_of(view.dtype()), describe(view.shape()));
}

void copy(const TensorView& from, const TensorView& to, Stream& stream) {
  if (from.shape() != to.shape() || from.dtype() != to.dtype())
    throw InvalidArgument{fmt::format("cannot copy {} to {}", describe(from), describe(to))};
  for (const TensorView& view : {from, to})
    if (view.device() != DeviceKind::cpu && view.device() != stream.kind())
      throw InvalidArgument{fmt::format("{} is in the memory of a {} device; copying it needs a stream of that",
                                        describe(view), name_of(view.device()))};
  if (from.data() != to.data()) stream.copy(to.data(), from.data(), from.bytes());
}

void TensorView::fill_zero(Stream& stream) const {
  if (device_ != stream.kind())
    throw InvalidArgument{fmt::format("{} is in the memory of a {} device; a stream of a {} device cannot clear it",
                                      describe(*this), name_of(device_), name_of(stream.kind()))};
  stream.fill_zero(data_, bytes());
}

Tensor::Tensor(std::shared_ptr<const Buffer> buffer, TensorView view)
    : buffer_{std::move(buffer)}, view_{std::move(view)} {}

Tensor Tensor::zeros(DType dtype, Shape shape, Stream& stream) {
  Tensor made = uninitialised(dtype, std::move(shape), stream);
  made.view().fill_zero(stream);
  return made;
}

Tensor Tensor::uninitialised(DType dtype, Shape shape, Stream& stream) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
  auto buffer = std::make_shared<const Buffer>(inside(stream).allocate(bytes));
  TensorView view{buffer->data(), std::move(shape), dtype, stream.kind()};
  return {std::move(buffer), std::move(view)};
}

Tensor Tensor::pinned(DType dtype, Shape shape, Stream& stream) {
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
  auto buffer = std::make_shared<const Buffer>(inside(stream).allocate_pinned(bytes));
  TensorView view{buffer->data(), std::move(shape), dtype};
  return {std::move(buffer), std::move(view)};
}

Tensor Tensor::copy_of(const TensorView& view, Stream& stream) {
  Tensor made = uninitialised(view.dtype(), view.shape(), stream);
  copy(view, made.view(), stream);
  return made;
}

Tensor Tensor::on_host(const TensorView& view) {
  Tensor made = uninitialised(view.dtype(), view.shape());
  read_device(view.device(), made.view().data(), view.data(), view.bytes());
  return made;
}

Tensor Tensor::from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape) {
  if (static_cast<std::size_t>(element_count(shape)) * size_of(dtype) != bytes.size())
    throw InvalidArgument{fmt::format("{} values of {} cannot fill the shape {}", bytes.size() / size_of(dtype),
                                      name_of(dtype), describe(shape))};
  Tensor made = uninitialised(dtype, std::move(shape));
  if (!bytes.empty()) std::memcpy(made.view().data(), bytes.data(), bytes.size());
  return made;
}

Tensor Tensor::stack(std::span<const Tensor> rows) {
  if (rows.empty()) throw InvalidArgument{"0 tensors to stack; expected 1 or more"};
  const TensorView first = rows.front().view();
  Shape shape = first.shape();
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  for (const Tensor& row : rows) {
    if (row.shape() != first.shape() || row.dtype() != first.dtype())
      throw InvalidArgument{fmt::format("cannot stack {} and {}", describe(first), describe(row.view()))};
    if (row.device() != DeviceKind::cpu)
      throw InvalidArgument{fmt::format("cannot stack {} in the memory of a {} device; expected the host's",
                                        describe(row.view()), name_of(row.device()))};
  }
  const Tensor made = uninitialised(first.dtype(), std::move(shape));
  std::byte* to = made.view().data();
  for (const Tensor& row : rows) {
    if (first.bytes() == 0) break;
    std::memcpy(to, row.view().data(), first.bytes());
    to += first.bytes();
  }
  return made;
}

}  // namespace lockstep
