// Tensors to and from other libraries without a copy, by DLPack (https://dmlc.github.io/dlpack): LibTorch, NumPy, CuPy,
// JAX and others exchange such tensors. DLPack's own header has the structures; its versions 0.2 to 1.x fit.
//
// GPU tensors must be on the GPU that this process has bound. Streams do not travel with a tensor here: before you hand
// one over, or hand it back, wait for the work that writes it.
#pragma once

#include <concepts>

#include <lockstep/tensor/tensor.hpp>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace lockstep {

/// LOCAL. A tensor with the memory of `managed`, which it takes over: the last of the tensor and its copies calls the
/// deleter, on whichever thread that is. Memory of the host, also if it is pinned, or of this process's GPU.
///
/// InvalidArgument for a null pointer, a type that is no DType, a vector type, memory of any other kind or GPU, strides
/// of anything but dense rows, and elements that are not aligned to their size. DeviceError for memory of a GPU if this
/// process has none. After an error the caller still owns `managed`.
Tensor from_dlpack(DLManagedTensor* managed);

/// The same. InvalidArgument also for memory that is read-only, since a Tensor may be written, and for a version of
/// DLPack other than 1.
Tensor from_dlpack(DLManagedTensorVersioned* managed);

/// LOCAL. The tensor for another library, with its strides. It shares the memory with `tensor`, which may go first; the
/// caller owns it, and calls its deleter once, on any thread. `to_dlpack<DLManagedTensorVersioned>(tensor)` makes one
/// of version 1.0 of DLPack.
template <class Managed = DLManagedTensor>
  requires std::same_as<Managed, DLManagedTensor> || std::same_as<Managed, DLManagedTensorVersioned>
Managed* to_dlpack(const Tensor& tensor);
template <>
DLManagedTensor* to_dlpack(const Tensor& tensor);
template <>
DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);

}  // namespace lockstep
