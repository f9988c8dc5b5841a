#include "apps/lockstep-run/line_catcher.hpp"

#include <utility>

namespace lockstep::run {

std::string LineCatcher::pass(std::string_view bytes) {
  std::string on;
  for (const char each : bytes) {
    held_ += each;
    if (!caught_ && may_match_) {
      const auto label = labels_.length(held_);
      const std::string_view line = std::string_view{held_}.substr(label.value_or(0));
      if (line == wanted_) {
        caught_ = true;
        held_.clear();
        continue;
      }
      if (!label || std::string_view{wanted_}.starts_with(line)) continue;
    }
    on += std::exchange(held_, {});
    may_match_ = each == '\n' || each == '\r';
  }
  return on;
}

}  // namespace lockstep::run
