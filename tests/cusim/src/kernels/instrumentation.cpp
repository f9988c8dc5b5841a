// The functions that g++ calls before each access of a kernel (-fsanitize=thread), and those that nvcc calls instead of
// memcpy and its like. The host's functions of a .cu file call them too; they return at once there.
#include <cstddef>
#include <cstring>

#include "kernels/access.hpp"
#include "kernels/fiber.hpp"

namespace cusim {
namespace {

[[gnu::always_inline]] inline bool is_watched(const void* address) {
  const Watched& mine = watched;
  if (!mine.run) [[likely]]
    return false;
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - mine.stack) >= Fiber::bytes;
}

template <std::size_t bytes, Access access, bool aligned = true>
[[gnu::always_inline]] inline void one(const void* address) {
  if (is_watched(address)) check(address, bytes, access, aligned);
}

void range(const void* address, std::size_t bytes, Access access) {
  if (bytes > 0 && is_watched(address)) check(address, bytes, access, false);
}

}  // namespace
}  // namespace cusim

using cusim::Access;

extern "C" {
#pragma GCC visibility push(default)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define CUSIM_ACCESSES(bytes)                         \
  void __tsan_read##bytes(void* address) {            \
    cusim::one<bytes, Access::read>(address);         \
  }                                                   \
  void __tsan_write##bytes(void* address) {           \
    cusim::one<bytes, Access::write>(address);        \
  }                                                   \
  void __tsan_volatile_read##bytes(void* address) {   \
    cusim::one<bytes, Access::read>(address);         \
  }                                                   \
  void __tsan_volatile_write##bytes(void* address) {  \
    cusim::one<bytes, Access::write>(address);        \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* address) {  \
    cusim::one<bytes, Access::read, false>(address);  \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* address) { \
    cusim::one<bytes, Access::write, false>(address); \
  }
CUSIM_ACCESSES(1)
CUSIM_ACCESSES(2)
CUSIM_ACCESSES(4)
CUSIM_ACCESSES(8)
CUSIM_ACCESSES(16)
#undef CUSIM_ACCESSES

void __tsan_read_range(void* address, std::size_t bytes) {
  cusim::range(address, bytes, Access::read);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  cusim::range(address, bytes, Access::write);
}
void __tsan_vptr_update(void** address, void*) {
  cusim::one<8, Access::write>(address);
}
void __tsan_vptr_read(void** address) {
  cusim::one<8, Access::read>(address);
}

void* cusim_memcpy(void* to, const void* from, std::size_t bytes) {
  cusim::range(from, bytes, Access::read);
  cusim::range(to, bytes, Access::write);
  return std::memcpy(to, from, bytes);
}
void* cusim_memmove(void* to, const void* from, std::size_t bytes) {
  cusim::range(from, bytes, Access::read);
  cusim::range(to, bytes, Access::write);
  return std::memmove(to, from, bytes);
}
void* cusim_memset(void* to, int value, std::size_t bytes) {
  cusim::range(to, bytes, Access::write);
  return std::memset(to, value, bytes);
}

#pragma GCC visibility pop
}
