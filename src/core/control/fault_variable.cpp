#include "core/control/fault_variable.hpp"

#include <atomic>
#include <cstdlib>

namespace lockstep {
namespace {

std::atomic<bool> was_read = false;

}  // namespace

const char* fault_variable() {
  return std::getenv("LOCKSTEP_FAULT");
}

const char* read_fault_variable() {
  was_read = true;
  return fault_variable();
}

bool take_unread_fault() {
  return fault_variable() && !was_read.exchange(true);
}

}  // namespace lockstep
