#include "runtime/arena.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "runtime/guard.hpp"

namespace cusim {

namespace {

constexpr std::size_t red_zone = 256;
constexpr std::size_t quarantine_bytes = std::size_t{64} << 20;
constexpr std::size_t quarantine_pieces = 256;

std::size_t place_bytes(std::size_t bytes) {
  // As CUDA's, an allocation begins at a multiple of 256.
  return (bytes + 255) / 256 * 256 + red_zone;
}

struct Store {
  std::mutex mutex;
  std::map<std::byte*, Allocation> all;      ///< in the quarantine too
  std::deque<std::byte*> quarantine;         ///< in the order of their frees
  std::size_t quarantined = 0;               ///< bytes
  std::map<std::byte*, std::size_t> places;  ///< that may be used again, and their bytes; no two are neighbours
  std::byte* fresh = nullptr;                ///< nothing beyond has been used
  std::map<int, Room> rooms;
  std::uint64_t numbers = 0;
};

Store& store() {
  static Store* const only = new Store;
  return *only;
}

/// Null if none is left.
std::byte* take_place(std::size_t bytes) {
  Store& all = store();
  const std::size_t needed = place_bytes(bytes);
  const auto again =
      std::find_if(all.places.begin(), all.places.end(), [&](const auto& place) { return place.second >= needed; });
  if (again == all.places.end()) {
    const auto left = static_cast<std::size_t>(memory::arena.begin + memory::arena.bytes - all.fresh);
    if (left < needed) return nullptr;
    std::byte* const begin = all.fresh;
    all.fresh += needed;
    use_up_to(all.fresh);
    return begin;
  }
  const auto [begin, place] = *again;
  all.places.erase(again);
  if (place > needed) all.places.emplace(begin + needed, place - needed);
  return begin;
}

/// With its free neighbours, it becomes one place.
void give_place_back(std::byte* begin, std::size_t bytes) {
  auto& places = store().places;
  auto at = places.emplace(begin, place_bytes(bytes)).first;
  if (const auto next = std::next(at); next != places.end() && at->first + at->second == next->first) {
    at->second += next->second;
    places.erase(next);
  }
  if (at == places.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  places.erase(at);
}

void poison(std::byte* begin, std::size_t bytes) {
  const GpuAccess access;
  std::memset(begin, memory::poison, bytes);
}

void set_states(std::byte* begin, std::size_t bytes, memory::State state) {
  // Without the checks of kernels nobody knows what those write.
  if (state == memory::unwritten && !settings().check_kernels) state = memory::written;
  std::memset(memory::arena.states + memory::index_of(begin), state, bytes);
}

/// No piece of work has touched the bytes, or `piece` has written them.
void set_pieces(std::byte* begin, std::size_t bytes, std::uint32_t piece) {
  const std::size_t first = memory::index_of(begin) / 2;
  const std::size_t cells = (bytes + 1) / 2;
  std::fill_n(memory::arena.writers + first, cells, piece);
  std::fill_n(memory::arena.readers + first, cells, 0u);
  // Mostly zero, and then not touched, so that it needs no memory.
  for (std::size_t cell = first; cell < first + cells; ++cell)
    if (memory::arena.other_readers[cell] != 0) memory::arena.other_readers[cell] = 0;
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
    give_place_back(begin, bytes);
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
    if (!all.fresh) {
      reserve_arena();
      all.fresh = memory::arena.begin + red_zone;
    }
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

std::optional<Allocation> find_allocation(const void* address) {
  const std::lock_guard lock{store().mutex};
  const Allocation* const at = find_in(address);
  return at ? std::optional{*at} : std::nullopt;
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
  const std::optional<Allocation> at = find_allocation(begin);
  if (!at || at->is_freed) return;  // cudaFree, which waits for nothing, came first
  set_states(begin, at->bytes, memory::unwritten);
  set_pieces(begin, at->bytes, memory::current_piece());
  poison(begin, at->bytes);
}

void free_for_gpu(std::byte* begin, std::string_view who) {
  const Allocation at = find_allocation(begin).value();
  memory::note_write(begin, at.bytes, memory::current_piece(), who);
  poison(begin, at.bytes);
  set_states(begin, at.bytes, memory::freed);
  if (at.from == From::graph) return;  // the graph's next launch allocates it again
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

void reset_most(int device) {
  const std::lock_guard lock{store().mutex};
  Room& room = store().rooms[device];
  room.most = room.used;
}

std::string memory::describe(const void* address) {
  const std::optional<Allocation> at = find_allocation(address);
  if (!at) return fmt::format("{}, in no allocation", address);
  const Allocation& own = *at;
  return fmt::format("byte {} of the {} bytes that {} number {} has returned{}",
                     static_cast<const std::byte*>(address) - own.begin, own.bytes, function_of(own.from), own.number,
                     own.is_freed        ? ", freed since"
                     : own.is_host_freed ? ", to be freed"
                                         : "");
}

}  // namespace cusim
