// The environment variable LOCKSTEP_FAULT, by which a training fails on purpose.
#pragma once

#include <atomic>
#include <cstdlib>

namespace lockstep {

namespace detail {

inline std::atomic<bool> fault_was_read = false;

}  // namespace detail

/// Its text; null if it is not set.
inline const char* fault_variable() {
  return std::getenv("LOCKSTEP_FAULT");
}

/// The same for code that injects the fault.
inline const char* read_fault_variable() {
  detail::fault_was_read = true;
  return fault_variable();
}

/// Whether nothing has injected the fault that is set: true once for each process.
inline bool take_unread_fault() {
  return fault_variable() && !detail::fault_was_read.exchange(true);
}

}  // namespace lockstep
