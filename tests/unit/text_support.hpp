// What is in a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/models/input/text.hpp>

#include "models/input/text_sets.hpp"

namespace lockstep::test {

inline std::vector<std::int32_t> numbers_in(const TextSet& set) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(set.tokens->count()));
  set.tokens->read(0, numbers);
  return numbers;
}

inline std::string text_in(const TextSet& set) {
  const std::vector<std::int32_t> numbers = numbers_in(set);
  return {numbers.begin(), numbers.end()};
}

}  // namespace lockstep::test
