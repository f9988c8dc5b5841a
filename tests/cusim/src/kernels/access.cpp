#include "kernels/access.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core.hpp"
#include "kernels/grid_run.hpp"
#include "kernels/program.hpp"
#include "memory.hpp"

namespace cusim {

constinit thread_local Watched watched;

namespace {

/// Memory that was looked up in this launch.
struct Known {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

/// Of the launch that runs.
std::uint32_t piece = 0;
std::array<Known, 8> known_pinned;
std::size_t next_pinned = 0;
std::array<Known, 8> own;
std::size_t next_own = 0;
bool has_other_devices = false;

/// Whether one of `known` holds the bytes.
bool is_in(const std::array<Known, 8>& known, const void* address, std::size_t bytes) {
  return std::any_of(known.begin(), known.end(), [&](const Known& memory) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - memory.begin);
    return offset < memory.bytes && bytes <= memory.bytes - offset;
  });
}

Shadow& device_shadow() {
  static auto* const shadow = new Shadow{memory::arena.bytes};
  return *shadow;
}

const char* verb(Access access) {
  switch (access) {
    case Access::read: return "reads";
    case Access::write: return "writes";
    case Access::atomic: break;
  }
  return "atomically updates";
}

[[noreturn]] void fail(const GridRun& run, const void* address, std::size_t bytes, Access access,
                       const std::string& why) {
  run.fail(fmt::format("{} {} bytes at {}, {}", verb(access), bytes, fmt::ptr(address), why));
}

/// With whom the running thread races.
std::string other_accesses(const GridRun& run, const Race& race) {
  const Mark other = *race.others;
  const uint3 block = run.block_of(other);
  const char* const did = race.did == Access::atomic  ? "updated atomically"
                          : race.did == Access::write ? "wrote"
                                                      : "read";
  const bool here = other.phase() == run.accessor().me.phase();
  switch (other.who()) {
    case Mark::Who::grid: return fmt::format("several blocks {}; nothing orders them", did);
    case Mark::Who::block:
    case Mark::Who::warp:
      return fmt::format("several threads of block {} {}; no barrier lies between", text_of(block), did);
    case Mark::Who::thread: break;
  }
  return fmt::format("thread {} of block {} {}; {}", text_of(run.thread_index(other.thread())), text_of(block), did,
                     here ? "no barrier lies between" : "nothing orders blocks");
}

void check_race(Shadow& shadow, std::size_t index, std::size_t bytes, Access access, const GridRun& run,
                const Accessor& by, const void* address, std::string (*where)(const void*)) {
  if (const Race race = shadow.note(index, bytes, access, by)) [[unlikely]]
    fail(run, address, bytes, access, fmt::format("{}, which {}", where(address), other_accesses(run, race)));
}

/// That the memory is of the launch's own GPU. Access to that of others would have to be enabled.
void check_owner(const GridRun& run, const void* address, std::size_t bytes, Access access) {
  if (is_in(own, address, bytes)) return;
  const Memory memory = memory_at(address);
  if (memory.kind != MemoryKind::device) return;  // the host has freed it, to take effect later
  if (memory.device != run.launch().device)
    fail(run, address, bytes, access,
         fmt::format("which is memory of device {}; the kernel runs on device {}", memory.device, run.launch().device));
  own[next_own++ % own.size()] = {memory.begin, memory.bytes};
}

// --- Other pieces of work ---

/// Pieces that come before the one that runs, as far as that was asked. Most memory has few writers.
std::array<std::uint32_t, 4> pieces_before;
std::size_t next_before = 0;

bool comes_before(std::uint32_t other) {
  if (other == piece || std::find(pieces_before.begin(), pieces_before.end(), other) != pieces_before.end())
    return true;
  if (!memory::is_ordered(other, piece)) return false;
  pieces_before[next_before++ % pieces_before.size()] = other;
  return true;
}

/// What memory::note_read and note_write do, quickly where all earlier accesses come before.
void note_piece(const void* address, std::size_t bytes, bool writes, const GridRun& run) {
  const std::size_t first = (memory::index_of(address) + 1) / 2;
  const std::size_t end = (memory::index_of(address) + bytes) / 2;
  for (std::size_t cell = first; cell < end; ++cell) {
    std::uint32_t& writer = memory::arena.writers[cell];
    std::uint32_t& reader = memory::arena.readers[cell];
    std::uint32_t& other_reader = memory::arena.other_readers[cell];
    if (writer == piece || (!writes && (reader == piece || other_reader == piece))) continue;
    if (!comes_before(writer) || !comes_before(reader) || (writes && !comes_before(other_reader))) {
      (writes ? memory::note_write : memory::note_read)(address, bytes, piece, run.launch().name);
      return;
    }
    if (writes) {
      writer = piece;
      if (other_reader != 0) other_reader = 0;
    }
    reader = writes ? 0 : piece;
  }
}

// --- Device memory ---

std::string where_in_device(const void* address) {
  return memory::describe(address);
}

void check_device(GridRun& run, const void* address, std::size_t bytes, Access access) {
  const std::size_t index = memory::index_of(address);
  if (access == Access::write) {
    if (!memory::may_touch(address, bytes)) [[unlikely]]
      fail(run, address, bytes, access, where_in_device(address));
    memory::mark_written(address, bytes);
  } else if (!memory::is_written(address, bytes)) [[unlikely]] {
    fail(run, address, bytes, access,
         where_in_device(address) + (memory::may_touch(address, bytes) ? ", which nobody has written" : ""));
  }
  if (has_other_devices) check_owner(run, address, bytes, access);
  if (piece != 0) note_piece(address, bytes, access != Access::read, run);
  check_race(device_shadow(), index, bytes, access, run, run.accessor_to_device(), address, where_in_device);
}

// --- Shared memory ---

std::string where_in_shared(const void* address) {
  return block_memory().describe(block_memory().index_of(address));
}

void check_shared(GridRun& run, const void* address, std::size_t bytes, Access access) {
  BlockMemory& shared = block_memory();
  const std::size_t index = shared.index_of(address);
  if (BlockMemory::slot_of(index) != run.block().slot)
    fail(run, address, bytes, access, "which is the shared memory of another block");
  std::uint8_t* const states = shared.states() + index;
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    if (!(states[byte] & memory::unwritten)) fail(run, address, bytes, access, where_in_shared(address));
    if (access == Access::write)
      states[byte] = memory::written;
    else if (states[byte] != memory::written)
      fail(run, address, bytes, access, where_in_shared(address) + ", which no thread of the block has written");
  }
  check_race(shared.shadow(), index, bytes, access, run, run.accessor_to_shared(), address, where_in_shared);
}

// --- Everything else ---

void check_elsewhere(GridRun& run, const void* address, std::size_t bytes, Access access) {
  const auto* const at = static_cast<const std::byte*>(address);
  if (is_in(known_pinned, address, bytes)) return;
  const std::vector<std::byte>& parameters = run.launch().parameters;
  if (at >= parameters.data() && at + bytes <= parameters.data() + parameters.size()) {
    if (access == Access::read) return;
    fail(run, address, bytes, access, "which is a parameter of the kernel");
  }
  if (fibers().holds(address)) fail(run, address, bytes, access, "which is the local memory of another thread");
  if (program::is_constant(address)) {
    if (access == Access::read) return;
    fail(run, address, bytes, access, "which is constant");
  }
  if (const Memory found_memory = memory_at(address); found_memory.kind == MemoryKind::pinned) {
    if (at + bytes > found_memory.begin + found_memory.bytes)
      fail(run, address, bytes, access, "which is beyond the end of its pinned memory");
    known_pinned[next_pinned++ % known_pinned.size()] = {found_memory.begin, found_memory.bytes};
    return;
  }
  if (reinterpret_cast<std::uintptr_t>(address) < 4096) fail(run, address, bytes, access, "which is a null pointer");
  fail(run, address, bytes, access, "which is the host's memory");
}

}  // namespace

void begin_checks(GridRun& run) {
  watched.run = &run;
  piece = memory::current_piece();
  known_pinned = {};
  own = {};
  has_other_devices = settings().devices > 1;
  pieces_before = {};
}

void check(const void* address, std::size_t bytes, Access access, bool aligned) {
  GridRun& run = *watched.run;
  run.pass();
  if (aligned && reinterpret_cast<std::uintptr_t>(address) % bytes != 0) [[unlikely]]
    fail(run, address, bytes, access, fmt::format("which is not a multiple of {}", bytes));
  if (memory::holds(address))
    check_device(run, address, bytes, access);
  else if (block_memory().holds(address))
    check_shared(run, address, bytes, access);
  else
    check_elsewhere(run, address, bytes, access);
}

}  // namespace cusim
