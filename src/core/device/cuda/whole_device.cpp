// Waiting for everything that the process has on its GPU, whichever library enqueued it. CUDA cannot be asked whether
// that is done, and its answer has no limit, so another thread waits for it.
#include <chrono>
#include <cstddef>
#include <future>

#include "core/base/start_thread.hpp"
#include "core/device/cuda/backend.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/host_wait.hpp"

namespace lockstep {
namespace {

/// Makes `call` on a thread of its own, with this process's GPU, and waits for its answer as for any other work of the
/// GPU. If the wait is given up, the process ends, and the thread with it.
template <class Call>
cudaError_t answer_to(Call call) {
  auto [thread, result] = start_task("that waits for the GPU", [call, index = detail::cuda::device_index()] {
    const cudaError_t bound = cudaSetDevice(index);
    return bound == cudaSuccess ? call() : bound;
  });
  thread.detach();
  std::future<cudaError_t>& answer = result;  // for clang, which captures no structured binding
  detail::wait_on_host([&] { return answer.wait_for(std::chrono::seconds{0}) == std::future_status::ready; });
  return answer.get();
}

}  // namespace

void detail::cuda::synchronize_device() {
  check_cuda(answer_to([] { return cudaDeviceSynchronize(); }), "cudaDeviceSynchronize");
}

void detail::cuda::read_device(void* to, const void* from, std::size_t bytes) {
  synchronize_device();
  check_cuda(answer_to([=] { return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost); }), "cudaMemcpy");
}

}  // namespace lockstep
