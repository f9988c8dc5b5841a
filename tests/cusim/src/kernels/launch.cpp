// Launches, and what the threads of kernels call (cusim_device.hpp).
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "core.hpp"
#include "cusim_device.hpp"
#include "kernels/access.hpp"
#include "kernels/grid_run.hpp"
#include "kernels/program.hpp"
#include "runtime/call.hpp"
#include "runtime/gpu.hpp"

namespace cusim::device {
namespace {

bool fits(const dim3& extents, const int (&largest)[3]) {
  const unsigned all[] = {extents.x, extents.y, extents.z};
  for (int i = 0; i < 3; ++i)
    if (all[i] == 0 || all[i] > static_cast<unsigned>(largest[i])) return false;
  return true;
}

cudaError_t checked(const cudaLaunchConfig_t& config) {
  const dim3& block = config.blockDim;
  if (!fits(config.gridDim, gpu.largest_grid) || !fits(block, gpu.largest_block) ||
      block.x * block.y * block.z > static_cast<unsigned>(gpu.threads_of_block))
    return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > BlockMemory::most_declared) return cudaErrorInvalidValue;
  return cudaSuccess;
}

dim3 clamped(dim3 grid) {
  const unsigned most = settings().most_blocks;
  if (most == 0) return grid;
  return {std::min(grid.x, most), std::min(grid.y, most), std::min(grid.z, most)};
}

/// Kernels of all streams share the fibers and the notes of accesses, so one runs at a time.
std::mutex one_at_a_time;

bool run(const Launch& launch) {
  const std::unique_lock lock{one_at_a_time, std::try_to_lock};
  if (!lock) return false;
  const GpuAccess access;
  GridRun{launch}.run();
  return true;
}

cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel, Call call, const void* parameters,
                           std::size_t bytes) {
  if (const cudaError_t result = checked(config); result != cudaSuccess) return result;
  if (config.numAttrs > 0) found("a launch has attributes, which are not simulated");
  if (bytes > std::size_t{gpu.parameters_of_kernel}) return cudaErrorInvalidValue;
  auto launch = std::make_shared<Launch>(Launch{.name = program::function_name(kernel),
                                                .kernel = kernel,
                                                .call = call,
                                                .parameters = std::vector<std::byte>(bytes),
                                                .grid = clamped(config.gridDim),
                                                .block = config.blockDim,
                                                .device = current_device()});
  std::memcpy(launch->parameters.data(), parameters, bytes);
  return enqueue(config.stream, launch->name, [launch] { return run(*launch); });
}

GridRun& running(const char* function) {
  GridRun* const run = GridRun::current();
  if (!run) found(fmt::format("the host calls {}, a function of kernels", function));
  return *run;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Call call, const void* parameters,
                   std::size_t bytes) {
  return call_on("cudaLaunchKernelExC", config.stream,
                 [&] { return enqueue_launch(config, kernel, call, parameters, bytes); });
}

void* shared_of_block(const void* declaration, std::size_t bytes) {
  return running("__shared__").shared_object(declaration, bytes);
}

void barrier(Place place) {
  running("__syncthreads").barrier(place);
}

void warp_barrier(unsigned mask, Place place) {
  running("__syncwarp").warp_call({.kind = LaneCall::Kind::barrier, .mask = mask, .place = place});
}

std::uint64_t shuffle(unsigned mask, std::uint64_t value, Shuffle kind, unsigned operand, int width, Place place) {
  return running("__shfl_sync")
      .warp_call({.kind = LaneCall::Kind::shuffle,
                  .mask = mask,
                  .value = value,
                  .shuffle = kind,
                  .operand = operand,
                  .width = static_cast<unsigned>(width),
                  .place = place});
}

unsigned ballot(unsigned mask, bool predicate, Place place) {
  return static_cast<unsigned>(
      running("__ballot_sync")
          .warp_call({.kind = LaneCall::Kind::ballot, .mask = mask, .value = predicate, .place = place}));
}

unsigned active_mask() {
  return running("__activemask").active_mask();
}

void atomic(const void* address, std::size_t bytes) {
  running("an atomic function");
  if (watched.run) check(address, bytes, Access::atomic, true);
}

void refuse_float_atomic() {
  running("atomicAdd").fail("adds a float atomically: the order, and so the sum's bits, would be chance");
}

}  // namespace cusim::device
