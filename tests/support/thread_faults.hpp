// A system without threads, in a test program that links thread_faults.cpp.
#pragma once

namespace lockstep::test {

/// While it lives, the thread that made it can start no other.
class NoThreads {
 public:
  NoThreads();
  NoThreads(const NoThreads&) = delete;
  ~NoThreads();
};

}  // namespace lockstep::test
