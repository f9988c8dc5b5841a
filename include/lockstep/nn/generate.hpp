// Text from a language model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/nn/gpt.hpp>

namespace lockstep::nn {

struct GenerateOptions {
  std::int64_t length = 256;  ///< bytes to draw
  /// Divides the logits; below 1, likely bytes become likelier. 0 takes the likeliest byte, and the lowest of several
  /// equally likely ones.
  double temperature = 1;
  std::uint64_t seed = 1;
};

/// LOCAL, blocking. Returns the continuation of `prompt`, without the prompt. Each byte is drawn with the probabilities
/// that `model` gives it after the last `context` bytes. The result is a function of the model's weights and the
/// arguments: byte i takes the uniform number at index i of RandomStream{seed, generated_text, 0}. InvalidArgument for
/// an empty prompt, a byte in it outside the vocabulary, a vocabulary of more than 256 tokens, a negative length, a
/// temperature that is negative or not finite, and logits that are not finite.
std::string generate(Gpt& model, std::string_view prompt, const GenerateOptions& options = {});

}  // namespace lockstep::nn
