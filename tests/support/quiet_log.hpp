// For tests of what the log warns of, many times over.
#pragma once

#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"

namespace lockstep::test {

/// As long as it lives, the log has errors alone.
class QuietLog {
 public:
  QuietLog() { log::set_level(log::Level::error); }
  QuietLog(const QuietLog&) = delete;
  ~QuietLog() { log::set_level(log::Level::info); }
};

}  // namespace lockstep::test
