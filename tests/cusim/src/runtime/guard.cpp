#include "runtime/guard.hpp"

#include <algorithm>
#include <csignal>
#include <mutex>

#include <fmt/format.h>
#include <sys/mman.h>

#include "memory.hpp"

namespace cusim {

memory::Arena memory::arena;

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

struct Guard {
  std::mutex mutex;
  bool is_open = false;
  int users = 0;              ///< GpuAccess that live
  int openers = 0;            ///< OpenForLong that live
  std::byte* used = nullptr;  ///< the end of what is opened
};

Guard& guard() {
  static Guard* const only = new Guard;
  return *only;
}

/// At a multiple of a huge page, as much of the memory is changed at once.
void* reserve(std::size_t bytes, int protection) {
  void* const at = mmap(nullptr, bytes + huge_page, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) found(fmt::format("no {} bytes of address space for the memory of simulated GPUs", bytes));
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(at) % huge_page;
  void* const begin = static_cast<std::byte*>(at) + (beyond ? huge_page - beyond : 0);
  madvise(begin, bytes, MADV_DONTDUMP);
  return begin;
}

struct sigaction before_ours;

/// A fault in the arena is the host's: GPU work is checked before it touches anything.
void on_fault(int signal, siginfo_t* info, void*) {
  if (memory::holds(info->si_addr))
    found(fmt::format("the host touches device memory: {}", memory::describe(info->si_addr)));
  sigaction(signal, &before_ours, nullptr);  // the access is done again, under the handler there was before
}

/// Runners of tests set a handler of their own for each test, so that this is done again and again.
void watch_faults() {
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGSEGV, &ours, &before_ours);
}

void protect(std::byte* begin, std::byte* end, int protection) {
  if (begin == end) return;
  if (mprotect(begin, static_cast<std::size_t>(end - begin), protection) != 0)
    found("the memory of simulated GPUs cannot be guarded");
}

/// Locked.
void close_if_unused(bool even_if_for_long) {
  Guard& all = guard();
  if (!all.is_open || all.users > 0 || (all.openers > 0 && !even_if_for_long)) return;
  all.is_open = false;
  if (!all.used) return;
  protect(memory::arena.begin, all.used, PROT_NONE);
  watch_faults();
}

}  // namespace

void reserve_arena() {
  if (memory::arena.begin) return;
  memory::Arena made;
  const auto devices = static_cast<std::size_t>(std::max(1, settings().devices));
  made.bytes = (4 * devices * settings().memory_bytes + (std::size_t{1} << 30)) / huge_page * huge_page;
  made.states = static_cast<std::uint8_t*>(reserve(made.bytes, PROT_READ | PROT_WRITE));
  made.writers = static_cast<std::uint32_t*>(reserve(made.bytes * 2, PROT_READ | PROT_WRITE));
  made.readers = static_cast<std::uint32_t*>(reserve(made.bytes * 2, PROT_READ | PROT_WRITE));
  made.other_readers = static_cast<std::uint32_t*>(reserve(made.bytes * 2, PROT_READ | PROT_WRITE));
  const bool guarded = settings().guard_memory;
  made.begin = static_cast<std::byte*>(reserve(made.bytes, guarded ? PROT_NONE : PROT_READ | PROT_WRITE));
  // Opening and closing is then quick. Without huge pages it is slow, and no less right.
  madvise(made.begin, made.bytes, MADV_HUGEPAGE);
  {
    const std::lock_guard lock{guard().mutex};
    memory::arena = made;
    guard().used = made.begin;
  }
  if (guarded) watch_faults();
}

void use_up_to(std::byte* end) {
  Guard& all = guard();
  const std::lock_guard lock{all.mutex};
  const std::size_t bytes =
      (static_cast<std::size_t>(end - memory::arena.begin) + huge_page - 1) / huge_page * huge_page;
  std::byte* const rounded = memory::arena.begin + std::min(bytes, memory::arena.bytes);
  if (rounded <= all.used) return;
  if (all.is_open && settings().guard_memory) protect(all.used, rounded, PROT_READ | PROT_WRITE);
  all.used = rounded;
}

GpuAccess::GpuAccess() {
  if (!settings().guard_memory) return;
  Guard& all = guard();
  const std::lock_guard lock{all.mutex};
  ++all.users;
  if (!all.is_open && all.used) protect(memory::arena.begin, all.used, PROT_READ | PROT_WRITE);
  all.is_open = true;
}

GpuAccess::~GpuAccess() {
  if (!settings().guard_memory) return;
  const std::lock_guard lock{guard().mutex};
  --guard().users;
  close_if_unused(false);
}

OpenForLong::OpenForLong() {
  const std::lock_guard lock{guard().mutex};
  ++guard().openers;
}

void close_for_host() {
  const std::lock_guard lock{guard().mutex};
  close_if_unused(true);
}

OpenForLong::~OpenForLong() {
  const std::lock_guard lock{guard().mutex};
  --guard().openers;
  close_if_unused(false);
}

}  // namespace cusim
