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

namespace cusim::device {
namespace {

/// What every GPU since compute capability 3.0 takes.
constexpr unsigned most_threads = 1024;
constexpr unsigned most_threads_in_z = 64;
constexpr unsigned most_blocks_in_x = 0x7fffffff;
constexpr unsigned most_blocks_in_y_or_z = 65535;
constexpr std::size_t most_parameter_bytes = 32764;

cudaError_t checked(const cudaLaunchConfig_t& config) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 ||
      grid.x > most_blocks_in_x || grid.y > most_blocks_in_y_or_z || grid.z > most_blocks_in_y_or_z ||
      block.x > most_threads || block.y > most_threads || block.z > most_threads_in_z ||
      block.x * block.y * block.z > most_threads)
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
  if (bytes > most_parameter_bytes) return cudaErrorInvalidValue;
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

void* shared_of_block(const void* declaration, std::size_t bytes, std::size_t) {
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
