// What threads of this process wait for in calls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "python/call.hpp"

namespace lockstep::python {

/// Counts the calls that this rank makes of all ranks of a group, so that it knows whether others wait for it there.
class CountedCalls {
 public:
  explicit CountedCalls(std::string group);
  CountedCalls(const CountedCalls&) = delete;
  ~CountedCalls();

  const std::string& group() const { return group_; }
  std::int64_t made() const { return made_; }
  /// The number of one more.
  std::int64_t count() { return ++made_; }

 private:
  std::string group_;
  std::atomic<std::int64_t> made_ = 0;
};

/// While it lives, shows that a thread waits for a call.
class [[nodiscard]] ShownWait {
 public:
  explicit ShownWait(const Call& call);
  ShownWait(const ShownWait&) = delete;
  ~ShownWait();

 private:
  std::int64_t number_;
};

/// A wait, for ranks that ask.
struct FoundWait {
  int other = -1;           ///< the rank of the job that a message is with; -1 for calls of a group
  std::int64_t number = 0;  ///< that of a call in the group
  std::string group = {};   ///< of a call of all its ranks
  std::string text = {};    ///< "barrier (train.py:24)"

  /// Whether it ends only after this process, rank `rank` of the job, has made its call.
  bool is_for(int rank) const;
};

/// LOCAL, from any thread. The oldest wait, if it began at least so long ago and needs more than time.
std::optional<FoundWait> first_wait(std::chrono::steady_clock::duration ago);

}  // namespace lockstep::python
