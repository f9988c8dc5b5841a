// A liblockstep-cuda.so that only says which of its functions was called. Meson builds it as lockstep's version, and as
// another.
#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/device_marks.hpp"
#include "core/device/gpu_backend.hpp"
#include "models/ops/gpu_kernels.hpp"
#include "sync/reduce/arithmetic.hpp"

using namespace lockstep;

namespace {

[[noreturn]] void say(const char* what) {
  throw DeviceError{what};
}

constexpr detail::GpuKernels kernels{
    .make_kernels = [](Stream&) -> std::unique_ptr<ops::Kernels> { say("kernels are made"); },
};

constexpr detail::GpuBackend backend{
    .version = VERSION,
    .device_count = [] { return 2; },
    .device_uuids =
        [] {
          // A function of liblockstep.so, so that this library needs it as the real one does.
          return std::vector<std::string>{"one", std::string{name_of(DeviceKind::cuda)}};
        },
    .why_no_device = [] { return std::string{"there are two"}; },
    .make_device = [](int index) -> std::unique_ptr<Device> { say(index == 1 ? "device 1 is made" : "another"); },
    .device_index = []() -> int { say("the index is asked for"); },
    .synchronize_device = [] { say("the device is waited for"); },
    .read_device = [](void*, const void*, std::size_t) { say("memory is read"); },
    .memory_bytes = []() -> std::uint64_t { say("memory is counted"); },
    .make_marks = []() -> std::unique_ptr<DeviceMarks> { say("marks are made"); },
    .make_nccl_communicator = [](Communicator&, Device&, Stream&, NcclOptions) -> std::unique_ptr<Communicator> {
      say("NCCL is started");
    },
    .allow_shared_gpu = [] { say("sharing is allowed"); },
    .tree_sum = [](const detail::Pieces&, const detail::SumRule&, const TensorView&,
                   Stream&) { say("pieces are summed"); },
    .add = [](const TensorView&, const TensorView&, Stream&) { say("a sum is added to"); },
    .divide = [](const TensorView&, int, Stream&) { say("a tensor is divided"); },
    .kernels = &kernels,
};

}  // namespace

extern "C" const detail::GpuBackend* lockstep_gpu_backend() {
  return &backend;
}
