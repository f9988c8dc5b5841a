// Pinned memory of the host. What is freed is kept for a while, so that work that comes too late is noticed.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "runtime/arena.hpp"

namespace cusim {
namespace {

constexpr std::size_t kept_bytes = std::size_t{64} << 20;

struct Block {
  std::size_t bytes = 0;
  bool is_ours = false;  ///< of cudaMallocHost, not of cudaHostRegister
  bool is_freed = false;
};

struct Pinned {
  std::mutex mutex;
  std::map<std::byte*, Block> blocks;
  std::deque<std::byte*> freed;
  std::size_t freed_bytes = 0;
};

Pinned& pinned() {
  static Pinned* const only = new Pinned;
  return *only;
}

using At = std::map<std::byte*, Block>::iterator;

/// The block that holds the address, freed or not. Locked.
At find(const void* address) {
  auto& blocks = pinned().blocks;
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const At next = blocks.upper_bound(at);
  if (next == blocks.begin()) return blocks.end();
  const At before = std::prev(next);
  return at < before->first + before->second.bytes ? before : blocks.end();
}

}  // namespace

void* allocate_pinned(std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  if (!begin) return nullptr;
  std::memset(begin, memory::poison, bytes);
  const std::lock_guard lock{pinned().mutex};
  pinned().blocks[begin] = {bytes, true, false};
  return begin;
}

bool free_pinned(void* begin) {
  Pinned& all = pinned();
  const std::lock_guard lock{all.mutex};
  const At at = all.blocks.find(static_cast<std::byte*>(begin));
  if (at == all.blocks.end() || !at->second.is_ours) return false;
  if (at->second.is_freed) found("cudaFreeHost of memory that was freed before");
  at->second.is_freed = true;
  std::memset(at->first, memory::poison, at->second.bytes);
  all.freed.push_back(at->first);
  all.freed_bytes += at->second.bytes;
  while (all.freed_bytes > kept_bytes && all.freed.size() > 1) {
    std::byte* const oldest = all.freed.front();
    all.freed.pop_front();
    all.freed_bytes -= all.blocks.at(oldest).bytes;
    all.blocks.erase(oldest);
    std::free(oldest);
  }
  return true;
}

bool pin(void* begin, std::size_t bytes) {
  const std::lock_guard lock{pinned().mutex};
  auto* const at = static_cast<std::byte*>(begin);
  const At next = pinned().blocks.lower_bound(at);
  if (find(begin) != pinned().blocks.end()) return false;
  if (next != pinned().blocks.end() && next->first < at + bytes) return false;
  pinned().blocks[at] = {bytes, false, false};
  return true;
}

bool unpin(void* begin) {
  const std::lock_guard lock{pinned().mutex};
  const At at = pinned().blocks.find(static_cast<std::byte*>(begin));
  if (at == pinned().blocks.end() || at->second.is_ours) return false;
  pinned().blocks.erase(at);
  return true;
}

void check_pinned(const void* address, std::size_t bytes, std::string_view verb, std::string_view who) {
  const std::lock_guard lock{pinned().mutex};
  const At at = find(address);
  if (at == pinned().blocks.end()) return;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - at->first);
  if (at->second.is_freed) found(fmt::format("{} {} pinned memory that cudaFreeHost has freed", who, verb));
  if (offset + bytes > at->second.bytes)
    found(fmt::format("{} {} {} bytes from byte {} of {} bytes of pinned memory", who, verb, bytes, offset,
                      at->second.bytes));
}

Memory memory_at(const void* address) {
  if (memory::holds(address)) {
    const std::optional<Allocation> at = find_allocation(address);
    if (!at || at->is_host_freed) return {};
    return {MemoryKind::device, at->device, at->begin, at->bytes};
  }
  const std::lock_guard lock{pinned().mutex};
  const At at = find(address);
  if (at == pinned().blocks.end() || at->second.is_freed) return {};
  return {MemoryKind::pinned, -1, at->first, at->second.bytes};
}

}  // namespace cusim
