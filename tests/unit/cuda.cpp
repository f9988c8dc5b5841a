// What becomes of CUDA's answers. The definitions below come before those of the runtime library, so that calls answer
// what a test says: there is no GPU and no driver.

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/device.hpp"
#include "core/device/device_call.hpp"
#include "core/device/devices.hpp"
#include "models/ops/cuda/cublas.hpp"
#include "models/ops/cuda/launch.hpp"
#include "support/child_process.hpp"
#include "sync/reduce/cuda/launch.hpp"

using namespace lockstep;
using detail::check_cuda;

namespace {

/// The runtime's answers by the name of the call, and the error that it keeps for who asks for the last one.
struct FakeRuntime {
  std::map<std::string, cudaError_t> answers;
  cudaError_t last = cudaSuccess;
  std::set<std::string> calls;   ///< that were made
  std::set<std::string> unseen;  ///< those that a watchdog would not see

  cudaError_t answer(const std::string& call) {
    calls.insert(call);
    if (const auto seen = detail::device_calls(); seen.begun == seen.ended) unseen.insert(call);
    const cudaError_t result = answers[call];
    if (result != cudaSuccess) last = result;
    return result;
  }
};

FakeRuntime* runtime = nullptr;

/// A runtime for a test, that of the process as long as it lives.
class WithRuntime : public FakeRuntime {
 public:
  WithRuntime() { runtime = this; }
  WithRuntime(const WithRuntime&) = delete;
  ~WithRuntime() { runtime = nullptr; }
};

cudaError_t answer(const char* call) {
  return runtime ? runtime->answer(call) : cudaSuccess;
}

std::byte memory_of_gpu[1024];

}  // namespace

extern "C" {

cudaError_t cudaGetLastError() {
  return runtime ? std::exchange(runtime->last, cudaSuccess) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 3;
  return answer("cudaGetDevice");
}
cudaError_t cudaSetDevice(int) {
  return answer("cudaSetDevice");
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return answer("cudaGetDeviceCount");
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12020;
  return answer("cudaDriverGetVersion");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  for (int i = 0; i < 16; ++i) properties->uuid.bytes[i] = static_cast<char>(device == 0 ? i : 0xf0 + i);
  return answer("cudaGetDeviceProperties");
}
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* all) {
  *left = 1000;
  *all = std::size_t{80} << 30;
  return answer("cudaMemGetInfo");
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) {
  return answer("cudaStreamCreateWithFlags");
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return answer("cudaStreamDestroy");
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return answer("cudaStreamQuery");
}
cudaError_t cudaMallocAsync(void** data, std::size_t, cudaStream_t) {
  *data = memory_of_gpu;
  return answer("cudaMallocAsync");
}
cudaError_t cudaFreeAsync(void*, cudaStream_t) {
  return answer("cudaFreeAsync");
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return answer("cudaLaunchKernelExC");
}

}  // extern "C"

namespace {

const std::string illegal_address = "an illegal memory access was encountered (cudaErrorIllegalAddress)";

cudaError_t launch_ops_add() {
  float sum[1] = {}, x[1] = {};
  return ops::cuda::launch_add<float>(sum, x, 1, nullptr);
}
cudaError_t launch_reduce_add() {
  float sum[1] = {}, x[1] = {};
  return detail::cuda::launch_add<float>(sum, x, 1, nullptr);
}

}  // namespace

// First, because it takes a process that has seen no such failure yet.
// The first of the process, before any other needs the library.
TEST_CASE("cuBLASLt is loaded by who uses it, not by every process") {
  const std::string file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  const auto is_loaded = [&] { return ::dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr; };
  CHECK_FALSE(is_loaded());
  CHECK(ops::cuda::cublas_lt()->version() >= 10000 * CUBLAS_VER_MAJOR);
  CHECK(is_loaded());
}

TEST_CASE("a process reports a failure of work on the GPU once, however many buffers go after it") {
  const bool thrown_before = GENERATE(false, true);
  test::ChildProcess process{[&] {
    WithRuntime cuda;
    const auto stream = make_cuda_device(0)->make_stream();
    std::vector<Buffer> buffers;
    for (int i = 0; i < 3; ++i) buffers.push_back(inside(*stream).allocate(16));
    cuda.answers = {{"cudaFreeAsync", cudaErrorIllegalAddress}, {"cudaStreamQuery", cudaErrorIllegalAddress}};
    if (thrown_before) {
      try {
        stream->synchronize();
      } catch (const DeviceError&) {
      }
    }
    test::CapturedStderr captured;
    buffers.clear();
    const std::string& said = captured.text();
    const std::string late = "warning: work enqueued earlier on cuda:3 failed: " + illegal_address;
    const auto first = said.find(late + "; cudaFreeAsync found it\n");
    const bool once =
        first != std::string::npos && said.find("work enqueued", first + late.size()) == std::string::npos;
    return (thrown_before ? said.empty() : once) ? 0 : 1;
  }};
  CHECK(process.wait() == 0);
}

TEST_CASE("a call that failed is named, with its device and, if the process has one, its rank") {
  WithRuntime cuda;
  const std::string reason = "invalid device ordinal (cudaErrorInvalidDevice)";
  CHECK_THROWS_WITH(check_cuda(cudaErrorInvalidDevice, "cudaSetDevice"), "cudaSetDevice failed on cuda:3: " + reason);
  const auto product = [] { ops::cuda::check_cublas(CUBLAS_STATUS_NOT_INITIALIZED, "cublasLtMatmul"); };
  CHECK_THROWS_WITH(product(), Catch::StartsWith("cublasLtMatmul failed on cuda:3: "));
  log::set_rank(5);
  CHECK_THROWS_WITH(check_cuda(cudaErrorInvalidDevice, "cudaSetDevice"),
                    "cudaSetDevice failed on cuda:3 of rank 5: " + reason);
  CHECK_THROWS_WITH(product(), Catch::StartsWith("cublasLtMatmul failed on cuda:3 of rank 5: "));
  log::set_rank(-1);
  cuda.answers["cudaGetDevice"] = cudaErrorNoDevice;
  CHECK_THROWS_WITH(check_cuda(cudaErrorInvalidDevice, "cudaSetDevice"), "cudaSetDevice failed: " + reason);
}

TEST_CASE("a failure of work on the GPU is not blamed on the call that finds it") {
  WithRuntime cuda;
  const std::string late = "work enqueued earlier on cuda:3 failed: " + illegal_address + "; ";
  const auto stream = make_cuda_device(0)->make_stream();
  cuda.answers = {{"cudaLaunchKernelExC", cudaErrorIllegalAddress}, {"cudaStreamQuery", cudaErrorIllegalAddress}};
  CHECK_THROWS_WITH(check_cuda(launch_ops_add(), "the launch of add"), late + "the launch of add found it");
  CHECK_THROWS_WITH(check_cuda(launch_reduce_add(), "the launch of add"), late + "the launch of add found it");
  CHECK_THROWS_WITH(stream->synchronize(), late + "cudaStreamQuery found it");
  CHECK_THROWS_WITH(ops::cuda::check_cublas(CUBLAS_STATUS_EXECUTION_FAILED, "cublasLtMatmul"),
                    late + "cublasLtMatmul found it");
  // A launch that CUDA refuses is to blame itself.
  cuda.answers["cudaLaunchKernelExC"] = cudaErrorInvalidConfiguration;
  CHECK_THROWS_WITH(check_cuda(launch_ops_add(), "the launch of add"),
                    Catch::StartsWith("the launch of add failed on cuda:3: invalid configuration argument"));
}

TEST_CASE("an error that an earlier call left behind is none of the next one's") {
  WithRuntime cuda;
  const auto stream = make_cuda_device(0)->make_stream();
  cuda.last = cudaErrorInvalidValue;
  CHECK(launch_ops_add() == cudaSuccess);
  CHECK(launch_reduce_add() == cudaSuccess);
  CHECK_NOTHROW(inside(*stream).allocate(16));
  // And what was thrown is not left behind.
  cuda.answers["cudaStreamQuery"] = cudaErrorInvalidValue;
  CHECK_THROWS_AS(stream->synchronize(), DeviceError);
  CHECK(cuda.last == cudaSuccess);
}

TEST_CASE("memory that cannot be given back is a warning, and left to nobody else") {
  WithRuntime cuda;
  const auto said_by_free = [&](cudaError_t result) {
    cuda.answers["cudaFreeAsync"] = result;
    const auto stream = make_cuda_device(0)->make_stream();
    test::CapturedStderr captured;
    { const Buffer buffer = inside(*stream).allocate(16); }
    CHECK(cuda.last == cudaSuccess);
    CHECK_NOTHROW(stream->synchronize());
    return captured.text();
  };
  CHECK(said_by_free(cudaSuccess).empty());
  const std::string said = said_by_free(cudaErrorInvalidValue);
  CHECK_THAT(said,
             Catch::Contains("warning: cudaFreeAsync failed on cuda:3: invalid argument (cudaErrorInvalidValue)"));
  CHECK(said.find("cudaFreeAsync") == said.rfind("cudaFreeAsync"));
  // At the end of the process the driver may be gone before the buffers.
  CHECK(said_by_free(cudaErrorCudartUnloading).empty());
}

TEST_CASE("a GPU is known by its UUID, and has as much memory as CUDA says") {
  WithRuntime cuda;
  CHECK(cuda_device_uuids() ==
        std::vector<std::string>{"000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"});
  CHECK(memory_bytes(DeviceKind::cuda) == std::uint64_t{80} << 30);
  CHECK(detail::why_no_cuda_device().empty());
  cuda.answers["cudaGetDeviceCount"] = cudaErrorInsufficientDriver;
  CHECK(cuda_device_uuids().empty());
  CHECK_THAT(detail::why_no_cuda_device(), Catch::StartsWith("the NVIDIA driver is too old: it supports CUDA 12.2, "));
  CHECK(cuda.last == cudaSuccess);
}

TEST_CASE("the watchdog sees each call to the driver, and that it has ended") {
  const detail::DeviceCalls before = detail::device_calls();
  WithRuntime cuda;
  {
    const auto stream = make_cuda_device(0)->make_stream();
    const Buffer memory = inside(*stream).allocate(16);
    stream->synchronize();
    CHECK(cuda_device_count() == 2);
    CHECK(cuda_device_uuids().size() == 2);
    const auto operand_of_a_launch = detail::native(*stream);
    const detail::DeviceCalls calls = detail::device_calls();
    CHECK(calls.begun == calls.ended + 1);
  }
  CHECK(cuda.calls.size() == 8);
  CHECK(cuda.unseen == std::set<std::string>{});
  const detail::DeviceCalls after = detail::device_calls();
  CHECK(after.begun - before.begun >= cuda.calls.size());
  CHECK(after.ended == after.begun);
}
