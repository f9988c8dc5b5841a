// The memory of the simulated GPUs: one reserved range of addresses, with a state for each byte and the last accesses
// of each pair of bytes beside it. Copies and kernels check and update both. Inside libcudart alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cusim::memory {

/// What a byte of the arena is. Bit 0: a piece of work may touch it. Bit 1: it holds what a piece of work wrote.
enum State : std::uint8_t {
  outside = 0,    ///< no allocation: between two of them, or never used
  unwritten = 1,  ///< allocated, poisoned
  written = 3,
  freed = 4,    ///< the GPU has come to its free; not used again soon
  pending = 8,  ///< cudaMallocAsync has returned it, but its stream has not come to the allocation
};

inline constexpr unsigned char poison = 0xcb;

/// The arena: where every allocation of device memory lies. Begins at a multiple of 2 MiB.
struct Arena {
  std::byte* begin = nullptr;  ///< null before the first allocation
  std::size_t bytes = 0;
  std::uint8_t* states = nullptr;          ///< a State for each byte
  std::uint32_t* writers = nullptr;        ///< for each pair of bytes, the piece of work that wrote it last; 0: none
  std::uint32_t* readers = nullptr;        ///< and a piece of work that read it since
  std::uint32_t* other_readers = nullptr;  ///< and one that did, unordered with that
};
extern Arena arena;

/// False before the first allocation, when the arena has no bytes.
inline bool holds(const void* address) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - arena.begin) < arena.bytes;
}
inline std::size_t index_of(const void* address) {
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - arena.begin);
}

/// Whether all of the bytes may be touched. `address` is in the arena.
inline bool may_touch(const void* address, std::size_t bytes) {
  const std::uint8_t* state = arena.states + index_of(address);
  std::uint64_t all = 0x0101010101010101u;
  for (; bytes >= 8; bytes -= 8, state += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, state, 8);
    all &= eight;
  }
  for (; bytes > 0; --bytes, ++state) all &= 0x0101010101010100u | *state;
  return all == 0x0101010101010101u;
}

/// The same where only the first byte is known to be in the arena.
inline bool may_touch_all(const void* address, std::size_t bytes) {
  return holds(static_cast<const std::byte*>(address) + bytes - 1) && may_touch(address, bytes);
}

/// Whether all of the bytes have been written (and may be touched).
inline bool is_written(const void* address, std::size_t bytes) {
  const std::uint8_t* state = arena.states + index_of(address);
  for (; bytes >= 8; bytes -= 8, state += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, state, 8);
    if (eight != 0x0303030303030303u) return false;
  }
  for (; bytes > 0; --bytes, ++state)
    if (*state != written) return false;
  return true;
}

/// Marks bytes that may be touched as written.
inline void mark_written(const void* address, std::size_t bytes) {
  std::memset(arena.states + index_of(address), written, bytes);
}

/// For a message: what lies at `address` and how it came there, as "byte 12 of the 8 bytes that cudaMalloc 3 returned,
/// freed since".
std::string describe(const void* address);

/// Ends the process with a message about an access that may_touch or is_written has refused.
[[noreturn]] void refuse(const void* address, std::size_t bytes, std::string_view access, std::string_view who);

// --- Order of pieces of work ---

/// The number of the piece of work that this thread runs, from 1; 0 outside of one. Stays the same while it runs.
std::uint32_t current_piece();

/// Whether piece `earlier` was made to come before piece `later` (by their stream, by events, by the host's waits), so
/// that it is no chance that it did. True for 0.
bool is_ordered(std::uint32_t earlier, std::uint32_t later);

/// Ends the process if a piece that is not ordered with `piece` has written the bytes; notes the read. `who` is the
/// piece's name in the message. In the arena.
void note_read(const void* address, std::size_t bytes, std::uint32_t piece, std::string_view who);

/// The same for a write, against writers and readers.
void note_write(const void* address, std::size_t bytes, std::uint32_t piece, std::string_view who);

}  // namespace cusim::memory
