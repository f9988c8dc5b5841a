// What pieces of work tell of the memory they touch.
#include <fmt/format.h>

#include "core.hpp"
#include "memory.hpp"
#include "runtime/arena.hpp"

namespace cusim {
namespace {

/// The first byte that is not as it should be.
const std::byte* culprit(const std::byte* at, std::size_t bytes, bool is_read) {
  const std::byte* const end = at + bytes;
  for (; at < end; ++at)
    if (!memory::holds(at) || (is_read ? !memory::is_written(at, 1) : !memory::may_touch(at, 1))) return at;
  return end;
}

std::string_view what_is(std::uint8_t state) {
  switch (state) {
    case memory::unwritten: return "which nothing has written";
    case memory::freed: return "which is freed";
    case memory::pending: return "which its stream has not come to allocate";
    default: return "outside of every allocation";
  }
}

}  // namespace

void memory::refuse(const void* address, std::size_t bytes, std::string_view access, std::string_view who) {
  const auto* const begin = static_cast<const std::byte*>(address);
  const std::byte* at = culprit(begin, bytes, false);
  if (at == begin + bytes) at = culprit(begin, bytes, true);
  if (at == begin + bytes) at = begin;
  const std::uint8_t state = holds(at) ? arena.states[index_of(at)] : std::uint8_t{outside};
  // Beyond an allocation's end, the message is about the allocation it came from.
  const std::string where =
      state == outside ? fmt::format("{} bytes beyond {}", at - begin, describe(begin)) : describe(at);
  found(fmt::format("{} {} {} bytes from {} on, of which one is {}: {}", who, access, bytes, address, what_is(state),
                    where));
}

void reads(const void* from, std::size_t bytes, std::string_view who) {
  if (bytes == 0) return;
  if (!memory::holds(from)) return check_pinned(from, bytes, "reads", who);
  if (!memory::may_touch_all(from, bytes) || !memory::is_written(from, bytes))
    memory::refuse(from, bytes, "reads", who);
  memory::note_read(from, bytes, memory::current_piece(), who);
}

void writes(const void* to, std::size_t bytes, std::string_view who) {
  if (bytes == 0) return;
  if (!memory::holds(to)) return check_pinned(to, bytes, "writes", who);
  if (!memory::may_touch_all(to, bytes)) memory::refuse(to, bytes, "writes", who);
  memory::note_write(to, bytes, memory::current_piece(), who);
  memory::mark_written(to, bytes);
}

}  // namespace cusim
