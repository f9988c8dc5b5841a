#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "core/tensor/dlpack_abi.hpp"
#include "core/tensor/inside.hpp"

namespace lockstep {
namespace {

struct KnownType {
  DType ours;
  std::uint8_t code, bits;
};
constexpr std::array known_types{
    KnownType{DType::f32, dlpack::floating_point, 32}, KnownType{DType::f64, dlpack::floating_point, 64},
    KnownType{DType::f16, dlpack::floating_point, 16}, KnownType{DType::bf16, dlpack::bfloat, 16},
    KnownType{DType::i32, dlpack::signed_integer, 32}, KnownType{DType::i64, dlpack::signed_integer, 64},
    KnownType{DType::u8, dlpack::unsigned_integer, 8},
};

DType dtype_of_foreign(const dlpack::ElementType& type) {
  for (const auto& [ours, code, bits] : known_types)
    if (type.code == code && type.bits == bits && type.lanes == 1) return ours;
  throw InvalidArgument{
      fmt::format("DLPack: elements of type code {} with {} bits and {} lanes; expected f32, f64, f16, bf16, i32, i64 "
                  "or u8, one lane",
                  type.code, type.bits, type.lanes)};
}

DeviceKind kind_of(const dlpack::Device& device) {
  if (device.type == dlpack::cpu || device.type == dlpack::cuda_host) return DeviceKind::cpu;
  if (device.type != dlpack::cuda)
    throw InvalidArgument{
        fmt::format("DLPack: memory of device type {}; expected the host's (1 or 3) or a GPU's (2)", device.type)};
  if (const int bound = detail::cuda_device_index(); device.index != bound)
    throw InvalidArgument{fmt::format("DLPack: memory of cuda:{}; this process has cuda:{}", device.index, bound)};
  return DeviceKind::cuda;
}

/// Whether the elements lie one after the other, in rows.
void require_dense(const dlpack::Tensor& tensor, const Shape& shape) {
  if (!tensor.strides || element_count(shape) == 0) return;
  std::int64_t dense = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; dense *= shape[axis])
    if (shape[axis] != 1 && tensor.strides[axis] != dense)
      throw InvalidArgument{fmt::format("DLPack: axis {} of {} has the stride {}; expected {}, as dense rows have it",
                                        axis, describe(shape), tensor.strides[axis], dense)};
}

TensorView view_of(const dlpack::Tensor& tensor) {
  if (tensor.rank < 0 || (tensor.rank > 0 && !tensor.shape))
    throw InvalidArgument{fmt::format("DLPack: a tensor of {} dimensions without a shape", tensor.rank)};
  if (static_cast<std::size_t>(tensor.rank) > Shape::most_dimensions)
    throw InvalidArgument{
        fmt::format("DLPack: a tensor of {} dimensions; expected at most {}", tensor.rank, Shape::most_dimensions)};
  Shape shape(tensor.shape, tensor.shape + tensor.rank);
  const DType dtype = dtype_of_foreign(tensor.type);
  const DeviceKind kind = kind_of(tensor.device);
  require_dense(tensor, shape);
  std::byte* const data = tensor.data ? static_cast<std::byte*>(tensor.data) + tensor.byte_offset : nullptr;
  TensorView view{data, std::move(shape), dtype, kind};
  if (!data && view.count() > 0) throw InvalidArgument{fmt::format("DLPack: {} without memory", describe(view))};
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0)
    throw InvalidArgument{
        fmt::format("DLPack: the elements of {} are not aligned to {} bytes", describe(view), size_of(dtype))};
  return view;
}

template <class Managed>
Tensor take_over(Managed* managed) {
  TensorView view = view_of(managed->tensor);
  const auto release = [managed](void*) {
    if (managed->deleter) managed->deleter(managed);
  };
  // A buffer releases only what it has: of a tensor without memory, the structure stands for it.
  void* const held = view.data() ? static_cast<void*>(view.data()) : managed;
  const auto buffer = std::make_shared<Buffer>();
  *buffer = Buffer{held, view.bytes(), view.device(), release};  // from here on nothing throws
  return tensor_in(buffer, std::move(view));
}

/// What `to_dlpack` hands out: the structure, and what keeps its memory.
template <class Managed>
struct Exported {
  explicit Exported(const Tensor& shared) : tensor{shared}, shape{shared.shape()}, strides(shape.size()) {
    std::int64_t dense = 1;
    for (std::size_t axis = shape.size(); axis-- > 0; dense *= shape[axis]) strides[axis] = dense;
    const TensorView view = shared.view();
    const auto type = *std::ranges::find(known_types, view.dtype(), &KnownType::ours);
    const bool on_gpu = view.device() == DeviceKind::cuda;
    managed.tensor = {.data = view.data(),
                      .device = {on_gpu ? dlpack::cuda : dlpack::cpu, on_gpu ? detail::cuda_device_index() : 0},
                      .rank = static_cast<std::int32_t>(shape.size()),
                      .type = {type.code, type.bits, 1},
                      .shape = shape.data(),
                      .strides = strides.data(),
                      .byte_offset = 0};
    managed.context = this;
    managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->context); };
  }

  Tensor tensor;
  Shape shape;
  std::vector<std::int64_t> strides;
  Managed managed{};
};

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw InvalidArgument{"DLPack: no tensor (a null pointer)"};
  return take_over(managed);
}

Tensor Tensor::from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) throw InvalidArgument{"DLPack: no tensor (a null pointer)"};
  if (managed->major != 1)
    throw InvalidArgument{
        fmt::format("DLPack: a tensor of version {}.{}; expected 1.x", managed->major, managed->minor)};
  if (managed->flags & dlpack::read_only)
    throw InvalidArgument{"DLPack: a tensor that is read-only; expected one that may be written, such as a copy"};
  return take_over(managed);
}

template <>
DLManagedTensor* Tensor::to_dlpack() const {
  return &(new Exported<DLManagedTensor>{*this})->managed;
}

template <>
DLManagedTensorVersioned* Tensor::to_dlpack() const {
  DLManagedTensorVersioned* const managed = &(new Exported<DLManagedTensorVersioned>{*this})->managed;
  managed->major = 1;
  return managed;
}

}  // namespace lockstep
