// Tables of command lines that are refused, and what the user is told of each.
#pragma once

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

namespace lockstep::test {

struct RefusedOptions {
  std::vector<std::string> arguments;
  std::vector<std::string> told = {};  ///< the pieces of the message that matter
};

/// Calls `run(arguments)` for each row: it must throw an E of one line that has the row's pieces.
template <class E = ConfigError, class Run>
void check_all_refused(const std::vector<RefusedOptions>& rows, Run&& run) {
  for (const RefusedOptions& row : rows) {
    std::string shown;
    for (const std::string& argument : row.arguments) shown += "'" + argument + "' ";
    INFO("arguments: " << shown);
    std::string message;
    try {
      run(row.arguments);
    } catch (const E& error) {
      message = error.what();
    }
    CHECK_FALSE(message.empty());
    CHECK(message.find('\n') == message.npos);
    for (const std::string& piece : row.told) CHECK_THAT(message, Catch::Contains(piece));
  }
}

}  // namespace lockstep::test
