// Tokens of a tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/input/tokens.hpp"

namespace lockstep {

/// Tokens that are in memory.
std::shared_ptr<const TokenSequence> tokens_of_numbers(std::vector<std::int32_t> numbers);

}  // namespace lockstep
