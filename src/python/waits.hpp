// What threads of this process wait for in calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "python/call.hpp"

namespace lockstep::python {

/// That a thread waits for a call, as long as this object lives.
class [[nodiscard]] ShownWait {
 public:
  explicit ShownWait(const Call& call);
  ShownWait(const ShownWait&) = delete;
  ~ShownWait();

 private:
  const Call& call_;
};

/// A wait, for ranks that ask.
struct FoundWait {
  std::string text;         ///< "barrier (train.py:24)"
  int other = -1;           ///< the rank of the job that a message is with; -1 for calls of a group
  std::string group;        ///< of a call of all its ranks
  std::int64_t number = 0;  ///< that of the call in the group

  /// Whether rank `rank` of the job, which is this one, has to come first.
  bool is_for(int rank) const;
};

// LOCAL, from any thread. How many calls of all its ranks this rank has made in a group.

void open_group(const std::string& group);
std::int64_t count_call(const std::string& group);  ///< the number of one more

/// LOCAL, from any thread. The first of the waits that go on, unless it began later than so long ago.
std::optional<FoundWait> first_wait(std::chrono::steady_clock::duration ago);

}  // namespace lockstep::python
