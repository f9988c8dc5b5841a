// How a store calls the counters of its optimizers' steps.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace lockstep::detail {

/// "optimizer", "optimizer_1", "optimizer_2", …: the names of optimizers that ask for none.
inline std::string default_optimizer_name(int number) {
  return number == 0 ? "optimizer" : fmt::format("optimizer_{}", number);
}

/// "optimizer@steps".
inline std::string step_counter(std::string_view optimizer) {
  return fmt::format("{}@steps", optimizer);
}

}  // namespace lockstep::detail
