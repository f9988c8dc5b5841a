#include "core/control/run_delay.hpp"

#include <cstdint>
#include <fstream>

namespace lockstep {

std::chrono::nanoseconds run_delay() {
  std::ifstream file{"/proc/thread-self/schedstat"};
  std::int64_t ran = 0, ready = 0;
  return file >> ran >> ready ? std::chrono::nanoseconds{ready} : std::chrono::nanoseconds{};
}

}  // namespace lockstep
