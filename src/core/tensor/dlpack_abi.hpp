// The structures of DLPack 1.0, by which libraries exchange tensors. Their layout is DLPack's and fixed
// (https://dmlc.github.io/dlpack/latest/c_api.html); the names are ours but for the two that are declared in public.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3 };
enum TypeCode : std::uint8_t { signed_integer = 0, unsigned_integer = 1, floating_point = 2, bfloat = 4 };

inline constexpr std::uint64_t read_only = 1;  ///< a flag

struct Device {
  std::int32_t type;
  std::int32_t index;
};

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t rank;
  ElementType type;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null for dense rows
  std::uint64_t byte_offset;
};
static_assert(sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24);

}  // namespace lockstep::dlpack

struct DLManagedTensor {
  lockstep::dlpack::Tensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor* self);  ///< may be null
};
static_assert(sizeof(DLManagedTensor) == 64);

struct DLManagedTensorVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);  ///< may be null
  std::uint64_t flags;
  lockstep::dlpack::Tensor tensor;
};
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, tensor) == 32);
