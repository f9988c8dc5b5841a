// The seam between liblockstep.so and its GPU backend: all that links CUDA is liblockstep-cuda.so, which is opened when
// somebody asks for a GPU. So programs start on nodes without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/parts.hpp"

namespace lockstep {

class Communicator;
class Device;
class DeviceMarks;
class Stream;
class TensorView;
struct NcclOptions;

namespace detail {

struct GpuKernels;
struct Pieces;
struct SumRule;
class UpdateKernels;

/// What a GPU backend does for each layer. Those layers have the contracts.
struct GpuBackend {
  /// Of lockstep. Always the first member, for readers of another version.
  const char* version;

  // core/device/devices.hpp and core/device/device.hpp, without "cuda" in the names.
  int (*device_count)();
  std::vector<std::string> (*device_uuids)();
  std::string (*why_no_device)();
  std::unique_ptr<Device> (*make_device)(int index);
  int (*device_index)();
  void (*synchronize_device)();
  void (*read_device)(void* to, const void* from, std::size_t bytes);
  std::uint64_t (*memory_bytes)();
  std::unique_ptr<DeviceMarks> (*make_marks)();  ///< may be null: a simulation has none

  // core/comm/backends.hpp
  std::unique_ptr<Communicator> (*make_nccl_communicator)(Communicator& host, Device& device, Stream& compute,
                                                          NcclOptions options);
  void (*allow_shared_gpu)();

  // core/tensor/convert.hpp, on GPU memory
  void (*convert)(const TensorView& from, const TensorView& to, Stream& stream);

  // sync/reduce/arithmetic.hpp, on GPU memory
  void (*tree_sum)(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream);
  void (*add)(const TensorView& sum, const TensorView& x, Stream& stream);
  void (*divide)(const TensorView& view, int divisor, Stream& stream);

  // sync/update/update_kernels.hpp, on a GPU's stream
  std::unique_ptr<UpdateKernels> (*make_update_kernels)(Stream& stream);

  // For models: models/ops/gpu_kernels.hpp.
  const GpuKernels* kernels;
};

/// The backend that this process found, or why it has none.
struct GpuLibrary {
  const GpuBackend* backend = nullptr;
  std::string why_none = {};  ///< in a few words; empty if there is one
};

/// The first call opens liblockstep-cuda.so, from LD_LIBRARY_PATH or else from the folder of liblockstep.so. Any thread
/// may call it. A program that links the layers themselves has no backend, unless it takes the place of liblockstep.so
/// or defines this function.
const GpuLibrary& gpu_library();

/// DeviceError if there is none.
LOCKSTEP_PARTS_API const GpuBackend& gpu_backend();

/// The only symbol of liblockstep-cuda.so that liblockstep.so looks for, with the type of this function.
inline constexpr const char* gpu_backend_symbol = "lockstep_gpu_backend";
using FindGpuBackend = const GpuBackend*();

}  // namespace detail
}  // namespace lockstep
