// Command lines of lockstep-run.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep-run/command_line.hpp"

namespace lockstep::run {

using Texts = std::vector<std::string>;

inline CommandLine parse(const Texts& words) {
  std::vector<const char*> argv{"lockstep-run"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

}  // namespace lockstep::run
