// The order of a group's calls, some of which callbacks of futures make.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include <pybind11/pybind11.h>

#include <lockstep/sync/group/group.hpp>

#include "python/call.hpp"

namespace lockstep::python {

/// A callback of a future runs when its call has ended, at a moment that differs between ranks, and may make calls of
/// the same group. So that their order is one on all ranks, each callback has a turn, which begins where the program
/// adds it to the future: calls that the program makes later are held until the callback has returned, and those of the
/// callback come before them. Thread-safe.
class Turns : public std::enable_shared_from_this<Turns> {
 public:
  using Submit = std::function<Group::Request()>;

  Turns() = default;
  Turns(const Turns&) = delete;

  /// LOCAL, never blocks. Calls `submit` once, now or when the turns before have ended.
  std::shared_ptr<Task> add(Submit submit);

  /// LOCAL, with Python's lock. The callback, for a future: it runs in a turn that begins now.
  pybind11::function in_turn(pybind11::function callback);

 private:
  class HeldTask;
  class Turn;
  using Entries = std::list<std::shared_ptr<HeldTask>>;  ///< null for a turn

  Entries::iterator begin();
  void end(Entries::iterator turn);
  /// With the mutex. Where this thread's next call comes: before the turn that it is in, or else last.
  Entries::iterator place();

  std::mutex mutex_;  ///< guards `entries_`, and is held while a call is submitted
  Entries entries_;   ///< calls that have not been submitted, and turns that have not ended; the first is a turn
};

}  // namespace lockstep::python
