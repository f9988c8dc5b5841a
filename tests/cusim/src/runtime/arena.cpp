#include "runtime/arena.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <sys/mman.h>

namespace cusim {

memory::Arena memory::arena;

namespace {

constexpr std::size_t red_zone = 256;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t quarantine_bytes = std::size_t{64} << 20;
constexpr std::size_t quarantine_pieces = 256;

std::size_t place_bytes(std::size_t bytes) {
  // As CUDA's, an allocation begins at a multiple of 256.
  return (bytes + 255) / 256 * 256 + red_zone;
}

struct Store {
  std::mutex mutex;
  std::map<std::byte*, Allocation> all;           ///< in the quarantine too
  std::deque<std::byte*> quarantine;              ///< in the order of their frees
  std::size_t quarantined = 0;                    ///< bytes
  std::multimap<std::size_t, std::byte*> places;  ///< that may be used again, by their bytes
  std::byte* fresh = nullptr;                     ///< nothing beyond has been used
  std::map<int, Room> rooms;
  std::uint64_t numbers = 0;

  std::mutex guard;
  bool is_open = false;
  int users = 0;              ///< GpuAccess that live
  int openers = 0;            ///< OpenForLong that live
  std::byte* used = nullptr;  ///< the end of what is opened
};

Store& store() {
  static Store* const only = new Store;
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
void on_fault(int signal, siginfo_t* info, void* context) {
  if (memory::arena.begin && memory::holds(info->si_addr))
    found(fmt::format("the host touches device memory: {}", memory::describe(info->si_addr)));
  (void)context;
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

void open_arena() {
  if (memory::arena.begin) return;
  memory::Arena made;
  const auto devices = static_cast<std::size_t>(std::max(1, settings().devices));
  made.bytes = (4 * devices * settings().memory_bytes + (std::size_t{1} << 30)) / huge_page * huge_page;
  made.states = static_cast<std::uint8_t*>(reserve(made.bytes, PROT_READ | PROT_WRITE));
  made.writers = static_cast<std::uint32_t*>(reserve(made.bytes * 2, PROT_READ | PROT_WRITE));
  made.readers = static_cast<std::uint32_t*>(reserve(made.bytes * 2, PROT_READ | PROT_WRITE));
  const bool guarded = settings().guard_memory;
  made.begin = static_cast<std::byte*>(reserve(made.bytes, guarded ? PROT_NONE : PROT_READ | PROT_WRITE));
  // Opening and closing is then quick. Without huge pages it is slow, and no less right.
  madvise(made.begin, made.bytes, MADV_HUGEPAGE);
  {
    const std::lock_guard lock{store().guard};
    memory::arena = made;
    store().used = made.begin;
  }
  store().fresh = made.begin + red_zone;
  if (guarded) watch_faults();
}

void protect(std::byte* begin, std::byte* end, int protection) {
  if (begin == end) return;
  if (mprotect(begin, static_cast<std::size_t>(end - begin), protection) != 0)
    found("the memory of simulated GPUs cannot be guarded");
}

/// Under the guard's lock.
void close_if_unused(bool even_if_for_long) {
  Store& all = store();
  if (!all.is_open || all.users > 0 || (all.openers > 0 && !even_if_for_long)) return;
  all.is_open = false;
  if (!all.used) return;
  protect(memory::arena.begin, all.used, PROT_NONE);
  watch_faults();
}

/// More of the arena is used: it is opened with the rest.
void use_up_to(std::byte* end) {
  Store& all = store();
  const std::lock_guard lock{all.guard};
  const std::size_t bytes =
      (static_cast<std::size_t>(end - memory::arena.begin) + huge_page - 1) / huge_page * huge_page;
  std::byte* const rounded = memory::arena.begin + std::min(bytes, memory::arena.bytes);
  if (rounded <= all.used) return;
  if (all.is_open && settings().guard_memory) protect(all.used, rounded, PROT_READ | PROT_WRITE);
  all.used = rounded;
}

/// Null if none is left.
std::byte* take_place(std::size_t bytes) {
  Store& all = store();
  const std::size_t needed = place_bytes(bytes);
  const auto again = all.places.lower_bound(needed);
  // A place that is much larger is left to a larger allocation.
  if (again != all.places.end() && again->first <= needed + needed / 8) {
    std::byte* const begin = again->second;
    all.places.erase(again);
    return begin;
  }
  const auto left = static_cast<std::size_t>(memory::arena.begin + memory::arena.bytes - all.fresh);
  if (left >= needed) {
    std::byte* const begin = all.fresh;
    all.fresh += needed;
    use_up_to(all.fresh);
    return begin;
  }
  if (again == all.places.end()) return nullptr;
  std::byte* const begin = again->second;
  const std::size_t rest = again->first - needed;
  all.places.erase(again);
  if (rest > red_zone) all.places.emplace(rest, begin + needed);
  return begin;
}

void poison(std::byte* begin, std::size_t bytes) {
  const GpuAccess access;
  std::memset(begin, memory::poison, bytes);
}

void set_states(std::byte* begin, std::size_t bytes, memory::State state) {
  std::memset(memory::arena.states + memory::index_of(begin), state, bytes);
}

/// No piece of work has touched the bytes, or `piece` has written them.
void set_pieces(std::byte* begin, std::size_t bytes, std::uint32_t piece) {
  const std::size_t first = memory::index_of(begin) / 2;
  const std::size_t cells = (bytes + 1) / 2;
  std::fill_n(memory::arena.writers + first, cells, piece);
  std::fill_n(memory::arena.readers + first, cells, 0u);
}

void leave_quarantine() {
  Store& all = store();
  while (all.quarantined > quarantine_bytes || all.quarantine.size() > quarantine_pieces) {
    std::byte* const begin = all.quarantine.front();
    all.quarantine.pop_front();
    const std::size_t bytes = all.all.at(begin).bytes;
    all.quarantined -= bytes;
    all.all.erase(begin);
    set_states(begin, bytes, memory::outside);
    all.places.emplace(place_bytes(bytes), begin);
  }
}

/// Locked.
Allocation* find_in(const void* address) {
  Store& all = store();
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  auto next = all.all.upper_bound(at);
  if (next == all.all.begin()) return nullptr;
  Allocation& before = std::prev(next)->second;
  return at < before.begin + std::max<std::size_t>(1, before.bytes) ? &before : nullptr;
}

std::string_view function_of(From from) {
  return from == From::malloc ? "cudaMalloc" : "cudaMallocAsync";
}

}  // namespace

std::byte* allocate(std::size_t bytes, int device, From from, memory::State state) {
  Store& all = store();
  std::byte* begin = nullptr;
  {
    const std::lock_guard lock{all.mutex};
    open_arena();
    Room& room = all.rooms[device];
    if (bytes > settings().memory_bytes - room.used) return nullptr;
    const std::byte* const fresh = all.fresh;
    begin = take_place(bytes);
    if (!begin) return nullptr;
    room.used += bytes;
    room.most = std::max(room.most, room.used);
    all.all[begin] = {begin, bytes, device, from, ++all.numbers, false, false};
    set_states(begin, bytes, state);
    if (begin < fresh) set_pieces(begin, bytes, 0);  // else it is all zero
  }
  if (state == memory::unwritten) poison(begin, bytes);
  return begin;
}

Found find_allocation(const void* address) {
  const std::lock_guard lock{store().mutex};
  const Allocation* const at = find_in(address);
  return at ? Found{true, *at} : Found{};
}

Allocation free_for_host(void* begin, std::string_view who) {
  const std::lock_guard lock{store().mutex};
  Allocation* const at = find_in(begin);
  if (!at || at->begin != begin) found(fmt::format("{} of {}, which no allocation begins at", who, begin));
  if (at->is_host_freed) found(fmt::format("{} of memory that was freed before", who));
  at->is_host_freed = true;
  return *at;
}

void begin_for_gpu(std::byte* begin) {
  const Found at = find_allocation(begin);
  if (!at.is_any || at.allocation.is_freed) return;  // cudaFree, which waits for nothing, came first
  set_states(begin, at.allocation.bytes, memory::unwritten);
  set_pieces(begin, at.allocation.bytes, memory::current_piece());
  poison(begin, at.allocation.bytes);
}

void free_for_gpu(std::byte* begin, std::string_view who) {
  const Found at = find_allocation(begin);
  memory::note_write(begin, at.allocation.bytes, memory::current_piece(), who);
  poison(begin, at.allocation.bytes);
  set_states(begin, at.allocation.bytes, memory::freed);
  if (at.allocation.from == From::graph) return;  // the graph's next launch allocates it again
  Store& all = store();
  const std::lock_guard lock{all.mutex};
  Allocation& own = all.all.at(begin);
  own.is_freed = true;
  all.rooms[own.device].used -= own.bytes;
  all.quarantine.push_back(begin);
  all.quarantined += own.bytes;
  leave_quarantine();
}

Room room_of(int device) {
  const std::lock_guard lock{store().mutex};
  Room room = store().rooms[device];
  room.total = settings().memory_bytes;
  return room;
}

std::string memory::describe(const void* address) {
  const Found at = find_allocation(address);
  if (!at.is_any) return fmt::format("{}, in no allocation", address);
  const Allocation& own = at.allocation;
  return fmt::format("byte {} of the {} bytes that {} number {} has returned{}",
                     static_cast<const std::byte*>(address) - own.begin, own.bytes, function_of(own.from), own.number,
                     own.is_freed        ? ", freed since"
                     : own.is_host_freed ? ", to be freed"
                                         : "");
}

GpuAccess::GpuAccess() {
  if (!settings().guard_memory) return;
  Store& all = store();
  const std::lock_guard lock{all.guard};
  ++all.users;
  if (!all.is_open && all.used) protect(memory::arena.begin, all.used, PROT_READ | PROT_WRITE);
  all.is_open = true;
}

GpuAccess::~GpuAccess() {
  if (!settings().guard_memory) return;
  const std::lock_guard lock{store().guard};
  --store().users;
  close_if_unused(false);
}

OpenForLong::OpenForLong() {
  const std::lock_guard lock{store().guard};
  ++store().openers;
}

void close_for_host() {
  const std::lock_guard lock{store().guard};
  close_if_unused(true);
}

OpenForLong::~OpenForLong() {
  const std::lock_guard lock{store().guard};
  --store().openers;
  close_if_unused(false);
}

}  // namespace cusim
