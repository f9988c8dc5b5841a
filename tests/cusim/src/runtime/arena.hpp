// Allocations of device memory in the arena, and of pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core.hpp"
#include "memory.hpp"

namespace cusim {

enum class From { malloc, malloc_async, graph };

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;  ///< as asked for
  int device = 0;
  From from = From::malloc;
  std::uint64_t number = 0;    ///< from 1
  bool is_host_freed = false;  ///< for later calls
  bool is_freed = false;       ///< for the GPU
};

/// Allocates memory and sets its bytes to `state`. Null if the device has too little left.
std::byte* allocate(std::size_t bytes, int device, From from, memory::State state);

/// The allocation that an address lies in, freed or not.
std::optional<Allocation> find_allocation(const void* address);

/// Ends an allocation for later calls of the host. Ends the process if there is none that begins there, or it has been
/// freed before.
Allocation free_for_host(void* begin, std::string_view who);

/// The GPU has come to the stream-ordered allocation: poisons its bytes.
void begin_for_gpu(std::byte* begin);

/// The GPU has come to the free. Its bytes are not used again soon.
void free_for_gpu(std::byte* begin, std::string_view who);

struct Room {
  std::size_t used = 0;
  std::size_t most = 0;  ///< that were used at once
  std::size_t total = 0;
};
Room room_of(int device);

/// Restarts the record of the most memory used.
void reset_most(int device);

// --- Pinned memory ---

void* allocate_pinned(std::size_t bytes);

/// False if no pinned memory begins there.
bool free_pinned(void* begin);

/// False if a part of it is pinned already.
bool pin(void* begin, std::size_t bytes);
bool unpin(void* begin);

/// Ends the process if the bytes are of pinned memory that was freed, or reach out of it.
void check_pinned(const void* address, std::size_t bytes, std::string_view verb, std::string_view who);

}  // namespace cusim
