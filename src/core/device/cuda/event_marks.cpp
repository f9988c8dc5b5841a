// Marks made of CUDA's events.
#include <chrono>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/backend.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/device_marks.hpp"

namespace lockstep {
namespace {

class EventMarks final : public DeviceMarks {
 public:
  EventMarks() = default;
  EventMarks(const EventMarks&) = delete;
  EventMarks& operator=(const EventMarks&) = delete;
  ~EventMarks() override {
    const detail::DeviceCall call;
    for (cudaEvent_t event : events_) detail::warn_cuda(cudaEventDestroy(event), "cudaEventDestroy");
  }

  Put put(std::size_t number, Stream& stream) noexcept override try {
    if (stream.is_capturing()) return Put::refused;
    const detail::StreamOfCall handle = detail::native(stream);
    if (number == events_.size()) {
      cudaEvent_t made = nullptr;
      if (const cudaError_t result = cudaEventCreateWithFlags(&made, cudaEventDefault); result != cudaSuccess)
        return failed(result);
      events_.push_back(made);
    }
    const cudaError_t result = cudaEventRecord(events_[number], handle);
    return result == cudaSuccess ? Put::done : failed(result);
  } catch (const std::exception&) {  // what the next call of the job finds too
    return Put::refused;
  }

  Distance distance(std::size_t from, std::size_t to) noexcept override {
    const detail::DeviceCall call;
    float milliseconds = 0;
    const cudaError_t result = cudaEventElapsedTime(&milliseconds, events_[from], events_[to]);
    if (result == cudaSuccess)
      return {Reached::both,
              std::chrono::round<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>{milliseconds})};
    // It would be reported to the next caller that asks for the last error.
    (void)cudaGetLastError();
    return {result == cudaErrorNotReady || detail::is_late(result) ? Reached::not_yet : Reached::failed, {}};
  }

 private:
  /// Not if work failed: the next call of the job says so.
  static Put failed(cudaError_t result) {
    (void)cudaGetLastError();
    return detail::is_late(result) ? Put::refused : Put::failed;
  }

  std::vector<cudaEvent_t> events_;
};

}  // namespace

std::unique_ptr<DeviceMarks> detail::cuda::make_marks() {
  return std::make_unique<EventMarks>();
}

}  // namespace lockstep
