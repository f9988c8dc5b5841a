// Who holds a lock, as the lock says to whom it refuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct LockHolder {
  std::string host;
  std::int64_t process = 0;
  std::string since;  ///< when it took the lock, such as 2026-01-31T12:00:00Z, by its own clock
  std::string key;    ///< a name that no other holder has

  /// This process, now, with a new key.
  static LockHolder self();
};

/// One line of JSON.
std::string line_about(const LockHolder& holder);

/// Nothing for a text that is none.
std::optional<LockHolder> parse_holder(std::string_view text);

/// "process 12 on host a since 2026-01-31T12:00:00Z", or "another process" if it is not known.
std::string describe(const std::optional<LockHolder>& holder);

}  // namespace lockstep
