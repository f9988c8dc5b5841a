// Command lines of lockstep-run.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep-run/command_line.hpp"

namespace lockstep::run {

using Texts = std::vector<std::string>;

/// Without a scheduler, unless `variable` reads what one left.
inline CommandLine parse(
    const Texts& words, const ReadVariable& variable = [](const char*) -> const char* { return nullptr; }) {
  std::vector<const char*> argv{"lockstep-run"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), variable);
}

}  // namespace lockstep::run
