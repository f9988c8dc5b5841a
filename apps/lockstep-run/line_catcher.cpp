#include "apps/lockstep-run/line_catcher.hpp"

#include <utility>

namespace lockstep::run {

std::string LineCatcher::pass(std::string_view bytes) {
  std::string on;
  for (const char each : bytes) {
    if (!caught_ && may_match_ && each == wanted_[held_.size()]) {
      held_ += each;
      if (held_ != wanted_) continue;
      caught_ = true;
      held_.clear();
      continue;
    }
    on += std::exchange(held_, {}) + each;
    may_match_ = each == '\n' || each == '\r';
  }
  return on;
}

}  // namespace lockstep::run
