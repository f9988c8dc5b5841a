#include "kernels/grid_run.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "kernels/access.hpp"

// The built-in variables of the running thread; cuda_runtime.h declares them constant, under these names.
#define CUSIM_BUILT_IN(type, name) \
  [[gnu::visibility("default")]] constinit thread_local type name [[gnu::tls_model("initial-exec")]] {}
CUSIM_BUILT_IN(uint3, cusim_thread_index);
CUSIM_BUILT_IN(uint3, cusim_block_index);
CUSIM_BUILT_IN(dim3, cusim_block_size);
CUSIM_BUILT_IN(dim3, cusim_grid_size);
#undef CUSIM_BUILT_IN

namespace cusim {
namespace {

constinit thread_local GridRun* current_run [[gnu::tls_model("initial-exec")]] = nullptr;

constexpr unsigned warp_lanes = 32;
constexpr unsigned most_threads_at_once = 2048;
/// Between two switches of threads, on average half as many.
constexpr std::uint32_t most_accesses_between = 127;

/// Unique in the process, since the cells of accesses outlive their launch.
std::uint32_t next_phase = 1;

uint3 coordinates(std::uint32_t number, const dim3& extents) {
  return {number % extents.x, number / extents.x % extents.y, number / extents.x / extents.y};
}

}  // namespace

/// The body of every fiber.
void run_thread() {
  GridRun& run = *current_run;
  run.launch_.call(run.launch_.kernel, run.launch_.parameters.data());
  run.end_thread();
}

FiberPool& fibers() {
  static auto* const pool = new FiberPool{run_thread};
  return *pool;
}

BlockMemory& block_memory() {
  static auto* const memory = new BlockMemory;
  return *memory;
}

std::string text_of(uint3 index) {
  return fmt::format("({},{},{})", index.x, index.y, index.z);
}

GridRun* GridRun::current() {
  return current_run;
}

GridRun::GridRun(const Launch& launch)
    : launch_{launch},
      checks_{settings().check_kernels},
      random_{checks_ ? draw("preempt", ~std::uint64_t{0}) : 0},
      thread_count_{launch.block.x * launch.block.y * launch.block.z},
      blocks_to_come_(static_cast<std::size_t>(launch.grid.x) * launch.grid.y * launch.grid.z) {
  // The last comes first.
  std::iota(blocks_to_come_.rbegin(), blocks_to_come_.rend(), 0);
  std::size_t at_once = 1;
  if (checks_) {
    for (std::size_t left = blocks_to_come_.size(); left > 1; --left)
      std::swap(blocks_to_come_[left - 1], blocks_to_come_[random_.below(static_cast<std::uint32_t>(left))]);
    const std::size_t most = std::clamp<std::size_t>(most_threads_at_once / thread_count_, 1, BlockMemory::slots);
    at_once = 1 + random_.below(static_cast<std::uint32_t>(most));
  }
  blocks_.resize(std::min(at_once, blocks_to_come_.size()));
  accessor_.first_phase = next_phase;
  const unsigned switched_after = 1 + random_.below(most_accesses_between);
  accesses_until_switch_ = checks_ ? switched_after : 0;
}

void GridRun::run() {
  fibers().grow(blocks_.size() * thread_count_);
  std::size_t fiber = 0;
  for (RunningBlock& block : blocks_) {
    block.slot = static_cast<std::size_t>(&block - blocks_.data());
    block.threads.resize(thread_count_);
    block.warps.resize((thread_count_ + warp_lanes - 1) / warp_lanes);
    for (unsigned number = 0; number < thread_count_; ++number)
      block.threads[number] = {
          .fiber = &fibers()[fiber++], .block = &block, .index = thread_index(number), .number = number};
    begin_block(block);
  }
  current_run = this;
  cusim_block_size = launch_.block;
  cusim_grid_size = launch_.grid;
  if (checks_) begin_checks(*this);
  if (_setjmp(end_) == 0) go_on();
  watched = {};
  current_run = nullptr;
}

uint3 GridRun::thread_index(unsigned number) const {
  return coordinates(number, launch_.block);
}

uint3 GridRun::block_index(std::uint32_t number) const {
  return coordinates(number, launch_.grid);
}

uint3 GridRun::block_of(Mark mark) const {
  return block_index(accessor_.block_of_phase[mark.phase() - accessor_.first_phase]);
}

/// False if none is left.
bool GridRun::begin_block(RunningBlock& block) {
  if (blocks_to_come_.empty()) return false;
  block.number = blocks_to_come_.back();
  blocks_to_come_.pop_back();
  block.index = block_index(block.number);
  block.ended = 0;
  ++blocks_running_;
  block_memory().begin(block.slot);
  for (unsigned first = 0; first < thread_count_; first += warp_lanes)
    block.warps[first / warp_lanes].begin(std::min(warp_lanes, thread_count_ - first));
  enter_phase(block);
  block.first_phase = block.phase;
  for (RunningThread& thread : block.threads) ready_.push_back(&thread);
  return true;
}

void GridRun::enter_phase(RunningBlock& block) {
  block.phase = next_phase++;
  accessor_.block_of_phase.push_back(block.number);
  for (Warp& warp : block.warps) warp.order.restart();
}

// --- Which thread runs ---

void GridRun::place_accessor() {
  const RunningBlock& block = *running_->block;
  const Warp& warp = block.warps[running_->warp()];
  accessor_.me = Mark{block.phase, running_->number, warp.order.stamp(running_->lane())};
  accessor_.block = block.number;
  accessor_.warp = &warp.order;
}

/// Makes ready_[at] the running thread.
void GridRun::resume(std::size_t at) {
  running_at_ = at;
  running_ = ready_[at];
  cusim_thread_index = running_->index;
  cusim_block_index = running_->block->index;
  if (!checks_) return;
  place_accessor();
  watched.stack = running_->fiber->lowest();
}

void GridRun::go_on() {
  if (ready_.empty()) {
    if (blocks_running_ > 0) stuck();
    _longjmp(end_, 1);
  }
  const auto count = static_cast<std::uint32_t>(ready_.size());
  resume(checks_ ? random_.below(count) : count - 1);
  running_->fiber->go_on();
}

void GridRun::switch_threads() {
  accesses_until_switch_ = 1 + random_.below(most_accesses_between);
  RunningThread* const before = running_;
  resume(random_.below(static_cast<std::uint32_t>(ready_.size())));
  if (running_ != before) running_->fiber->go_on(before->fiber->context());
}

/// Returns once the running thread has been put among the ready ones again.
void GridRun::wait() {
  ready_[running_at_] = ready_.back();
  ready_.pop_back();
  if (_setjmp(running_->fiber->context()) == 0) go_on();
}

// --- What threads wait for ---

void GridRun::end_thread() {
  RunningThread& thread = *running_;
  RunningBlock& block = *thread.block;
  Warp& warp = block.warps[thread.warp()];
  if (!block.at_barrier.empty())
    fail(fmt::format("ends, while {} threads of its block wait in __syncthreads ({})", block.at_barrier.size(),
                     text_of(block.barrier)));
  warp.end(thread.lane());
  for (unsigned lane = 0; warp.waiting() != 0 && lane < warp_lanes; ++lane)
    if (warp.waiting() >> lane & 1 && warp.is_complete(lane)) release(warp, block, lane);
  ready_[running_at_] = ready_.back();
  ready_.pop_back();
  if (++block.ended == thread_count_) {
    --blocks_running_;
    begin_block(block);
  }
  if (_setjmp(thread.fiber->context()) == 0) go_on();
}

void GridRun::barrier(device::Place place) {
  RunningBlock& block = *running_->block;
  if (block.ended > 0)
    fail(fmt::format("is in __syncthreads ({}), which {} threads of its block have not reached before they ended",
                     text_of(place), block.ended));
  if (block.at_barrier.empty()) {
    block.barrier = place;
  } else if (block.barrier.line != place.line || std::string_view{block.barrier.file} != place.file) {
    fail(fmt::format("is in __syncthreads ({}), while {} threads of its block wait in another one ({})", text_of(place),
                     block.at_barrier.size(), text_of(block.barrier)));
  }
  if (block.at_barrier.size() + 1 < thread_count_) {
    block.at_barrier.push_back(running_);
    wait();
    return;
  }
  ready_.insert(ready_.end(), block.at_barrier.begin(), block.at_barrier.end());
  block.at_barrier.clear();
  enter_phase(block);
  place_accessor();
}

/// Ends the call in which `lane` waits: the others of the call are ready again.
void GridRun::release(Warp& warp, RunningBlock& block, unsigned lane) {
  std::string wrong;
  std::uint32_t lanes = warp.complete(lane, wrong);
  if (!wrong.empty()) fail(wrong);
  const auto first = static_cast<unsigned>(&warp - block.warps.data()) * warp_lanes;
  for (unsigned other = 0; other < warp_lanes; ++other)
    if (lanes >> other & 1 && &block.threads[first + other] != running_)
      ready_.push_back(&block.threads[first + other]);
}

std::uint64_t GridRun::warp_call(const LaneCall& call) {
  RunningBlock& block = *running_->block;
  const unsigned lane = running_->lane();
  Warp& warp = block.warps[running_->warp()];
  if (const std::string wrong = warp.call(lane, call); !wrong.empty()) fail(wrong);
  if (warp.is_complete(lane)) {
    release(warp, block, lane);
    place_accessor();
  } else {
    wait();
  }
  return warp.result(lane);
}

std::uint32_t GridRun::active_mask() {
  const Warp& warp = running_->block->warps[running_->warp()];
  const std::uint32_t possible = warp.present() & ~warp.waiting();
  // Which other lanes run at the same time is chance.
  return (possible & random_.below(0xffffffff)) | 1u << running_->lane();
}

void* GridRun::shared_object(const void* declaration, std::size_t bytes) {
  void* const object = block_memory().object(running_->block->slot, declaration, bytes);
  if (!object) fail(fmt::format("has more than {} bytes of shared memory", BlockMemory::most_declared));
  return object;
}

// --- Ends ---

void GridRun::fail(const std::string& what) const {
  found(fmt::format("kernel {}: block {} thread {} {}", launch_.name, text_of(running_->block->index),
                    text_of(running_->index), what));
}

/// No thread can go on.
void GridRun::stuck() const {
  for (const RunningBlock& block : blocks_) {
    for (const RunningThread& thread : block.threads) {
      const Warp& warp = block.warps[thread.warp()];
      if (!(warp.waiting() >> thread.lane() & 1)) continue;
      const LaneCall& call = warp.call_of(thread.lane());
      found(fmt::format("kernel {}: block {} thread {} waits for ever in {} with mask {:#010x} ({})", launch_.name,
                        text_of(block.index), text_of(thread.index), name_of(call.kind), call.mask,
                        text_of(call.place)));
    }
  }
  for (const RunningBlock& block : blocks_)
    if (!block.at_barrier.empty())
      found(fmt::format("kernel {}: block {} thread {} waits for ever in __syncthreads ({})", launch_.name,
                        text_of(block.index), text_of(block.at_barrier.front()->index), text_of(block.barrier)));
  found(fmt::format("kernel {}: no thread can go on", launch_.name));
}

}  // namespace cusim
