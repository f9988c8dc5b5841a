// One launch while it runs: its blocks, a few at a time, with a fiber for each thread, all on the operating-system
// thread that calls `run`.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core.hpp"
#include "cusim_device.hpp"
#include "kernels/block_memory.hpp"
#include "kernels/fiber.hpp"
#include "kernels/random.hpp"
#include "kernels/shadow.hpp"
#include "kernels/warp.hpp"

namespace cusim {

/// What was launched.
struct Launch {
  std::string name;
  const void* kernel = nullptr;
  device::Call call = nullptr;
  std::vector<std::byte> parameters;
  dim3 grid;
  dim3 block;
  int device = 0;
};

struct RunningBlock;

/// A thread of a kernel.
struct RunningThread {
  Fiber* fiber = nullptr;
  RunningBlock* block = nullptr;
  uint3 index{};
  unsigned number = 0;  ///< in its block

  unsigned lane() const { return number % 32; }
  unsigned warp() const { return number / 32; }
};

/// A block that runs.
struct RunningBlock {
  std::size_t slot = 0;
  uint3 index{};
  std::uint32_t number = 0;  ///< in its grid
  std::uint32_t first_phase = 0;
  std::uint32_t phase = 0;
  unsigned ended = 0;  ///< threads
  std::vector<RunningThread> threads;
  std::vector<Warp> warps;
  std::vector<RunningThread*> at_barrier;
  device::Place barrier{};  ///< at which they wait
};

class GridRun {
 public:
  explicit GridRun(const Launch& launch);
  GridRun(const GridRun&) = delete;

  /// Runs all blocks.
  void run();

  /// The launch that the calling operating-system thread runs, else null.
  static GridRun* current();

  // What the running thread calls.
  void barrier(device::Place place);
  std::uint64_t warp_call(const LaneCall& call);
  std::uint32_t active_mask();
  void* shared_object(const void* declaration, std::size_t bytes);
  /// Perhaps another thread goes on first.
  void pass() {
    if (--accesses_until_switch_ == 0) switch_threads();
  }

  /// Ends the process: the running thread did `what`.
  [[noreturn]] void fail(const std::string& what) const;

  const Launch& launch() const { return launch_; }
  const RunningBlock& block() const { return *running_->block; }
  const Accessor& accessor() const { return accessor_; }
  /// For an access to device memory, which the launches before have left.
  const Accessor& accessor_to_device() {
    accessor_.since = accessor_.first_phase;
    return accessor_;
  }
  /// For an access to shared memory, which the blocks that had it before have left.
  const Accessor& accessor_to_shared() {
    accessor_.since = running_->block->first_phase;
    return accessor_;
  }
  /// Coordinates of the block of a phase of this launch.
  uint3 block_of(Mark mark) const;
  uint3 thread_index(unsigned number) const;

 private:
  friend void run_thread();

  bool begin_block(RunningBlock& block);
  void enter_phase(RunningBlock& block);
  void end_thread();
  void release(Warp& warp, RunningBlock& block, unsigned lane);
  void switch_threads();
  void wait();
  void place_accessor();
  void resume(std::size_t at);
  [[noreturn]] void go_on();
  [[noreturn]] void stuck() const;
  uint3 block_index(std::uint32_t number) const;

  const Launch& launch_;
  const bool checks_;
  Random random_;
  unsigned thread_count_;
  unsigned accesses_until_switch_ = 0;
  std::vector<std::uint32_t> blocks_to_come_;
  std::vector<RunningBlock> blocks_;
  std::size_t blocks_running_ = 0;
  std::vector<RunningThread*> ready_;
  std::size_t running_at_ = 0;  ///< in ready_
  RunningThread* running_ = nullptr;
  Accessor accessor_;
  std::jmp_buf end_;
};

/// What the launches of a process use one after the other.
FiberPool& fibers();
BlockMemory& block_memory();

std::string text_of(uint3 index);

}  // namespace cusim
