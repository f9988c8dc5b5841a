// Errors, devices, limits of launches.
#include "kernels.hpp"
#include "probe.hpp"

using namespace lockstep::probes;

namespace {

int devices() {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  return count;
}

int current() {
  int device = -1;
  OK(cudaGetDevice(&device));
  return device;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  OK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

/// Of the kernel that fails late, if it does.
cudaError_t end_of(cudaStream_t stream) {
  cudaError_t last = cudaSuccess;
  (void)within_limit([&] { return (last = cudaStreamQuery(stream)) != cudaErrorNotReady; });
  return last;
}

void expect_sticky(cudaError_t error) {
  expect("cudaGetLastError is", cudaGetLastError(), error);
  expect("cudaGetLastError again is", cudaGetLastError(), error);
  void* made = nullptr;
  expect("cudaMalloc is", cudaMalloc(&made, 100), error);
  expect("cudaDeviceSynchronize is", cudaDeviceSynchronize(), error);
}

}  // namespace

// CUDA Runtime API, cudaGetLastError: returns the thread's last error, and resets it to cudaSuccess.
PROBE(get_last_error_resets) {
  expect("no such device:", cudaSetDevice(devices()), cudaErrorInvalidDevice);
  expect("cudaGetLastError is", cudaGetLastError(), cudaErrorInvalidDevice);
  expect("cudaGetLastError again is", cudaGetLastError(), cudaSuccess);
}

// CUDA Runtime API, cudaPeekAtLastError: does not reset it.
PROBE(peek_does_not_reset) {
  expect("no such device:", cudaSetDevice(devices()), cudaErrorInvalidDevice);
  expect("cudaPeekAtLastError is", cudaPeekAtLastError(), cudaErrorInvalidDevice);
  expect("cudaPeekAtLastError again is", cudaPeekAtLastError(), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
}

// CUDA Runtime API, cudaGetLastError: it is the last error of any call, so calls that succeed leave it.
PROBE(success_leaves_the_last_error) {
  expect("no such device:", cudaSetDevice(devices()), cudaErrorInvalidDevice);
  OK(cudaSetDevice(0));
  { const Array<int> other{{1}}; }
  expect("cudaGetLastError is", cudaGetLastError(), cudaErrorInvalidDevice);
}

// CUDA Runtime API, cudaGetLastError: the error is that of the host thread.
PROBE(last_error_belongs_to_the_thread) {
  expect("no such device:", cudaSetDevice(devices()), cudaErrorInvalidDevice);
  cudaError_t other = cudaErrorUnknown;
  std::thread{[&] { other = cudaGetLastError(); }}.join();
  expect("another thread's last error is", other, cudaSuccess);
  expect("this thread's is", cudaGetLastError(), cudaErrorInvalidDevice);
}

// CUDA C++ Programming Guide, Error checking: cudaErrorNotReady of cudaStreamQuery and cudaEventQuery is no error, and
// cudaGetLastError and cudaPeekAtLastError do not report it.
PROBE(not_ready_is_no_last_error) {
  const Stream stream;
  const Event event;
  Gate gate{stream};
  OK(cudaEventRecord(event, stream));
  expect_waits("the stream answers", stream);
  expect("cudaPeekAtLastError is", cudaPeekAtLastError(), cudaSuccess);
  expect_waits("the event answers", event);
  expect("cudaGetLastError is", cudaGetLastError(), cudaSuccess);
}

// CUDA Runtime API, cudaGetErrorName: the enumerator's name, or "unrecognized error code".
PROBE(errors_have_names) {
  expect<std::string>("the name is", cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  expect<std::string>("the name is", cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  expect<std::string>("the name is", cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

// CUDA Runtime API, cudaSetDevice: a device that does not exist is refused, and the current one stays.
PROBE(invalid_device_keeps_the_current) {
  OK(cudaSetDevice(devices() - 1));
  expect("no such device:", cudaSetDevice(devices()), cudaErrorInvalidDevice);
  expect("no such device:", cudaSetDevice(-1), cudaErrorInvalidDevice);
  const int after = current();
  OK(cudaSetDevice(0));
  expect("the current device is", after, devices() - 1);
}

// CUDA C++ Programming Guide, Device selection: the current device is the host thread's, and 0 in a new one.
PROBE(current_device_belongs_to_the_thread) {
  if (devices() < 2) throw NotTried{"there is one GPU only"};
  OK(cudaSetDevice(1));
  int first = -1;
  int then = -1;
  std::thread{[&] {
    (void)cudaGetDevice(&first);
    (void)cudaSetDevice(0);
    (void)cudaGetDevice(&then);
  }}.join();
  const int after = current();
  OK(cudaSetDevice(0));
  expect("a new thread's device is", first, 0);
  expect("this thread's device is still", after, 1);
}

// CUDA C++ Programming Guide, Device selection: memory is allocated on the current device, and streams are made there.
PROBE(allocations_go_to_the_current_device) {
  if (devices() < 2) throw NotTried{"there is one GPU only"};
  OK(cudaSetDevice(1));
  cudaPointerAttributes attributes{};
  {
    const Array<int> at{{1}};
    OK(cudaPointerGetAttributes(&attributes, at.data()));
  }
  OK(cudaSetDevice(0));
  expect("the memory's device is", attributes.device, 1);
}

// CUDA C++ Programming Guide, Error checking: a kernel's errors come up in later calls; after cudaErrorIllegalAddress
// (CUDA Runtime API, Data types) every call returns it, and the process must end.
PROBE_IN(ends_cusim, illegal_address_is_sticky) {
  const Stream stream;
  OK(launch_write(nullptr, stream));
  expect("the stream's end is", end_of(stream), cudaErrorIllegalAddress);
  expect_sticky(cudaErrorIllegalAddress);
}

// CUDA C++ Programming Guide, Device memory accesses: an access of 4 bytes needs an address that is a multiple of 4;
// CUDA Runtime API, cudaErrorMisalignedAddress: sticky too.
PROBE_IN(ends_cusim, misaligned_access_is_sticky) {
  const Stream stream;
  const Array<char> at(100);
  OK(launch_write(at.data() + 1, stream));
  expect("the stream's end is", end_of(stream), cudaErrorMisalignedAddress);
  expect_sticky(cudaErrorMisalignedAddress);
}

// CUDA Runtime API, cudaErrorInvalidConfiguration: a launch asks for too many threads or blocks, or none.
PROBE(launch_of_no_blocks_is_refused) {
  const Stream stream;
  expect("the launch is", launch_empty(dim3(0), dim3(32), stream), cudaErrorInvalidConfiguration);
  expect("the launch is", launch_empty(dim3(1, 0), dim3(32), stream), cudaErrorInvalidConfiguration);
  expect("the launch is", launch_empty(dim3(1), dim3(0), stream), cudaErrorInvalidConfiguration);
}
PROBE(launch_of_1025_threads_is_refused) {
  const Stream stream;
  expect("the launch is", launch_empty(dim3(1), dim3(1025), stream), cudaErrorInvalidConfiguration);
  expect("the launch is", launch_empty(dim3(1), dim3(32, 33), stream), cudaErrorInvalidConfiguration);
  OK(launch_empty(dim3(1), dim3(1024), stream));
  wait(stream);
}
PROBE(launch_of_65_threads_in_z_is_refused) {
  const Stream stream;
  expect("the launch is", launch_empty(dim3(1), dim3(1, 1, 65), stream), cudaErrorInvalidConfiguration);
  OK(launch_empty(dim3(1), dim3(1, 1, 64), stream));
  wait(stream);
}
PROBE(launch_of_65536_blocks_in_y_or_z_is_refused) {
  const Stream stream;
  expect("the launch is", launch_empty(dim3(1, 65536), dim3(1), stream), cudaErrorInvalidConfiguration);
  expect("the launch is", launch_empty(dim3(1, 1, 65536), dim3(1), stream), cudaErrorInvalidConfiguration);
}

// CUDA C++ Programming Guide, Error checking: a launch that is refused for its configuration leaves an error that is
// not sticky: the next launch runs.
PROBE(refused_launch_is_not_sticky) {
  const Stream stream;
  const Array<int> at{{0}};
  expect("the launch is", launch_empty(dim3(0), dim3(1), stream), cudaErrorInvalidConfiguration);
  expect("cudaGetLastError is", cudaGetLastError(), cudaErrorInvalidConfiguration);
  OK(launch_fill(at.data(), 1, 2, stream));
  wait(stream);
  OK(cudaGetLastError());
  expect("the kernel writes", at.values()[0], 2);
}

// CUDA C++ Programming Guide, Compute capabilities: the limits of launches that lockstep's kernels count on.
PROBE(device_has_the_documented_limits) {
  expect("threads of a block:", attribute(cudaDevAttrMaxThreadsPerBlock), 1024);
  expect("threads of a warp:", attribute(cudaDevAttrWarpSize), 32);
  expect("blocks in x:", attribute(cudaDevAttrMaxGridDimX), 2147483647);
  expect("blocks in y:", attribute(cudaDevAttrMaxGridDimY), 65535);
  expect("blocks in z:", attribute(cudaDevAttrMaxGridDimZ), 65535);
  expect("at least 48 KiB of shared memory", attribute(cudaDevAttrMaxSharedMemoryPerBlock) >= 48 << 10);
  expect("memory pools", attribute(cudaDevAttrMemoryPoolsSupported) == 1);
}
