#include "core/base/side_thread.hpp"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "core/base/awake_clock.hpp"
#include "core/base/start_thread.hpp"

namespace lockstep {

SideThread::~SideThread() {
  using namespace std::chrono_literals;
  const auto until = AwakeClock::now() + 500ms;
  while (is_busy() && AwakeClock::now() < until) std::this_thread::sleep_for(1ms);
}

bool SideThread::start(std::function<void()> work) {
  if (is_busy()) return false;
  *done_ = false;
  try {
    start_thread("for work that may never end", [work = std::move(work), done = done_] {
      try {
        work();
      } catch (...) {  // such as for want of memory
      }
      *done = true;
    }).detach();
  } catch (const std::exception&) {
    *done_ = true;
    return false;
  }
  return true;
}

}  // namespace lockstep
