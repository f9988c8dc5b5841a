// A GPU as a device. Memory comes from the driver's own stream-ordered pool, which keeps released memory, so a training
// step allocates without the driver's help.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/backend.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/device.hpp"
#include "core/device/device_call.hpp"
#include "core/device/host_wait.hpp"
#include "core/device/stream_spans.hpp"

namespace lockstep {
namespace {

using detail::check_cuda;
using detail::DeviceCall;
using detail::warn_cuda;

/// What a query says.
bool is_done(cudaError_t result, const char* call) {
  if (result == cudaErrorNotReady) {
    // Not a failure, but CUDA would report it to the next caller that asks for the last error.
    (void)cudaGetLastError();
    return false;
  }
  check_cuda(result, call);
  return true;
}

/// A CUDA stream, owned once. The Stream shares it with the memory that is released through it.
class StreamHandle {
 public:
  explicit StreamHandle(int device) : device_{device} {
    const DeviceCall call;
    bind();
    // Non-blocking: not ordered with the process's default stream, which nothing here uses.
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  StreamHandle(const StreamHandle&) = delete;
  StreamHandle& operator=(const StreamHandle&) = delete;
  ~StreamHandle() {
    const DeviceCall call;
    warn_cuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  cudaStream_t get() const { return stream_; }

  /// Each thread has its own current device, and new threads begin with GPU 0.
  void bind() const {
    const DeviceCall call;
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
  }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const StreamHandle& stream) {
    const DeviceCall call;
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    try {
      check_cuda(cudaEventRecord(event_, stream.get()), "cudaEventRecord");
    } catch (...) {
      // Says nothing if it finds the same late failure.
      warn_cuda(cudaEventDestroy(event_), "cudaEventDestroy");
      throw;
    }
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override {
    const DeviceCall call;
    warn_cuda(cudaEventDestroy(event_), "cudaEventDestroy");
  }

  bool done() const override {
    const DeviceCall call;
    return is_done(cudaEventQuery(event_), "cudaEventQuery");
  }

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device) : device_{device}, handle_{std::make_shared<const StreamHandle>(device)} {}

  DeviceKind kind() const override { return DeviceKind::cuda; }

  Buffer allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, 0, DeviceKind::cuda, nullptr};
    handle_->bind();
    const DeviceCall call;
    void* data = nullptr;
    const cudaError_t result = cudaMallocAsync(&data, bytes, handle_->get());
    if (result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw DeviceError{fmt::format("no {} bytes of memory are left{}", bytes, detail::device_and_rank())};
    }
    check_cuda(result, "cudaMallocAsync");
    return {data, bytes, DeviceKind::cuda, [stream = handle_](void* held) {
              const DeviceCall call;
              warn_cuda(cudaFreeAsync(held, stream->get()), "cudaFreeAsync");
            }};
  }

  Buffer allocate_pinned(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, 0, DeviceKind::cpu, nullptr};
    handle_->bind();
    const DeviceCall call;
    void* data = nullptr;
    const cudaError_t result = cudaMallocHost(&data, bytes);
    if (result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      throw DeviceError{fmt::format("the host has no {} bytes of pinned memory left", bytes)};
    }
    check_cuda(result, "cudaMallocHost");
    std::memset(data, 0, bytes);
    return {data, bytes, DeviceKind::cpu, [](void* held) {
              const DeviceCall call;
              warn_cuda(cudaFreeHost(held), "cudaFreeHost");
            }};
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    handle_->bind();
    const DeviceCall call;
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_->get()), "cudaMemcpyAsync");
  }

  void fill_zero(void* to, std::size_t bytes) override {
    if (bytes == 0) return;
    handle_->bind();
    const DeviceCall call;
    check_cuda(cudaMemsetAsync(to, 0, bytes, handle_->get()), "cudaMemsetAsync");
  }

  std::unique_ptr<Event> record() override {
    handle_->bind();
    return std::make_unique<CudaEvent>(*handle_);
  }

  void wait(const Event& event) override {
    const auto* const recorded = dynamic_cast<const CudaEvent*>(&event);
    if (!recorded) return;  // the host's work is already done
    handle_->bind();
    const DeviceCall call;
    check_cuda(cudaStreamWaitEvent(handle_->get(), recorded->get(), 0), "cudaStreamWaitEvent");
  }

  void synchronize() override {
    handle_->bind();
    StreamTrace::Wait traced{*this};
    detail::wait_on_host([this] {
      const DeviceCall call;
      return is_done(cudaStreamQuery(handle_->get()), "cudaStreamQuery");
    });
    traced.over();
  }

  std::unique_ptr<Stream> make_sibling() override { return std::make_unique<CudaStream>(device_); }

  bool is_capturing() const override {
    const DeviceCall call;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(handle_->get(), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;  // an invalidated capture has not ended either
  }

  cudaStream_t native() const {
    handle_->bind();
    return handle_->get();
  }

 private:
  int device_;
  std::shared_ptr<const StreamHandle> handle_;
};

std::atomic<int> bound_index = -1;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_{index} {
    const DeviceCall call;
    check_cuda(cudaSetDevice(index), "cudaSetDevice");
    int has_pools = 0;
    check_cuda(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, index), "cudaDeviceGetAttribute");
    if (!has_pools) throw DeviceError{fmt::format("cuda:{} has no memory pools, which lockstep needs", index)};
    cudaMemPool_t pool = nullptr;
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
    std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
    bound_index = index;
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return fmt::format("cuda:{}", index_); }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CudaStream>(index_); }

 private:
  int index_;
};

}  // namespace

detail::StreamOfCall detail::native(Stream& stream) {
  const auto* const own = dynamic_cast<const CudaStream*>(&stream);
  if (!own) throw InvalidArgument{"a stream of the cpu has no handle of CUDA's"};
  return StreamOfCall{own->native()};
}

int detail::bound_device() {
  return bound_index;
}

int detail::cuda::device_index() {
  if (bound_index < 0) throw DeviceError{"this process has bound no GPU"};
  return bound_index;
}

std::uint64_t detail::cuda::memory_bytes() {
  const DeviceCall call;
  std::size_t unused = 0;
  std::size_t all = 0;
  check_cuda(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  return all;
}

int detail::cuda::device_count() {
  const DeviceCall call;
  int count = 0;
  // Without a driver, this fails and leaves the count untouched.
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

std::vector<std::string> detail::cuda::device_uuids() {
  const DeviceCall call;
  std::vector<std::string> uuids;
  for (int index = 0; index < device_count(); ++index) {
    cudaDeviceProp gpu{};
    check_cuda(cudaGetDeviceProperties(&gpu, index), "cudaGetDeviceProperties");
    std::string& uuid = uuids.emplace_back();
    for (const char byte : gpu.uuid.bytes) uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return uuids;
}

std::unique_ptr<Device> detail::cuda::make_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

}  // namespace lockstep
