// What is said of a stall that does not end the job.
#pragma once

#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

namespace lockstep {

/// `sentence` would have ended it.
inline void warn_of_stall(const std::string& sentence) {
  log::warning(fmt::format("{} (--on-stall observe: the job goes on)", sentence));
}

}  // namespace lockstep
