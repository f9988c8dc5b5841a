// What is fuzzed: every reader of bytes that a user, or another program, hands to lockstep.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

/// A reader, given one input.
struct Target {
  std::string_view name;  ///< also the folder of its corpus

  /// Reads `input`: whether the reader accepts it. Any exception but the refusal that the reader promises leaves this
  /// function, as does BrokenPromise.
  bool (*read)(std::string_view input);
};

/// The reader did something that its contract excludes.
struct BrokenPromise {
  std::string what;
};

std::span<const Target> targets();

/// Null where there is none.
const Target* find_target(std::string_view name);

}  // namespace lockstep::fuzz
