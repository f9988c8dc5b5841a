#include "kernels/block_memory.hpp"

#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "core.hpp"
#include "memory.hpp"

namespace cusim {
namespace {

// Wide, so that an index that is too large by as much as an array has elements meets no other object.
constexpr std::size_t gap = 32 << 10;

}  // namespace

BlockMemory::BlockMemory() : states_(bytes, memory::outside), shadow_{bytes} {
  void* const made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) found("no memory for the shared memory of blocks");
  memory_ = static_cast<std::byte*>(made);
}

void BlockMemory::begin(std::size_t slot) {
  for (const Object& object : objects_[slot]) {
    std::memset(states_.data() + object.begin, memory::outside, object.bytes);
    std::memset(memory_ + object.begin, memory::poison, object.bytes);
  }
  objects_[slot].clear();
}

void* BlockMemory::object(std::size_t slot, const void* declaration, std::size_t size) {
  std::size_t begin = slot * slot_bytes + gap;
  std::size_t declared = size;
  for (const Object& object : objects_[slot]) {
    if (object.declaration == declaration) return memory_ + object.begin;
    begin = (object.begin + object.bytes + gap + 255) / 256 * 256;
    declared += object.bytes;
  }
  if (declared > most_declared || begin + size + gap > (slot + 1) * slot_bytes) return nullptr;
  objects_[slot].push_back({declaration, begin, size});
  std::memset(states_.data() + begin, memory::unwritten, size);
  std::memset(memory_ + begin, memory::poison, size);
  return memory_ + begin;
}

std::string BlockMemory::describe(std::size_t index) const {
  const auto& objects = objects_[slot_of(index)];
  for (std::size_t at = 0; at < objects.size(); ++at) {
    const auto offset = static_cast<std::ptrdiff_t>(index - objects[at].begin);
    const auto size = static_cast<std::ptrdiff_t>(objects[at].bytes);
    if (offset < -static_cast<std::ptrdiff_t>(gap / 2) || offset >= size + static_cast<std::ptrdiff_t>(gap / 2))
      continue;
    return fmt::format("byte {} of the {} bytes of shared array {}", offset, size, at + 1);
  }
  return "shared memory outside of every array";
}

}  // namespace cusim
