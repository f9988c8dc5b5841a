#include "kernels/fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include "core.hpp"

namespace cusim {
namespace {

constexpr std::size_t most_fibers = 8192;
constexpr std::size_t page = 4096;

/// What a fiber that starts hands to its first function.
struct Start {
  std::jmp_buf* context;
  Fiber::Body body;
  ucontext_t creator;
};
Start* start = nullptr;

void first_function() {
  const Fiber::Body body = start->body;
  if (_setjmp(*start->context) == 0) setcontext(&start->creator);
  for (;;) body();
}

}  // namespace

Fiber::Fiber(std::byte* lowest, std::size_t colour, Body body) : lowest_{lowest} {
  Start mine{.context = &context_, .body = body, .creator = {}};
  start = &mine;
  ucontext_t first{};
  getcontext(&first);
  first.uc_stack.ss_sp = lowest;
  // Stacks of different colours do not meet in the same lines of a cache.
  first.uc_stack.ss_size = bytes - colour % 60 * 64;
  makecontext(&first, first_function, 0);
  swapcontext(&mine.creator, &first);
}

void FiberPool::grow(std::size_t count) {
  if (count > most_fibers) found("a launch needs more fibers than there are");
  if (!stacks_) {
    void* const made = mmap(nullptr, most_fibers * Fiber::bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (made == MAP_FAILED) found("no address space for the stacks of a kernel's threads");
    stacks_ = static_cast<std::byte*>(made);
  }
  while (fibers_.size() < count) {
    std::byte* const lowest = stacks_ + fibers_.size() * Fiber::bytes;
    // One that grows too far must not reach its neighbour.
    mprotect(lowest, page, PROT_NONE);
    fibers_.push_back(new Fiber{lowest, fibers_.size(), body_});
  }
}

bool FiberPool::holds(const void* address) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - stacks_) < most_fibers * Fiber::bytes;
}

}  // namespace cusim
