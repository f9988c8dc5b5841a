// Text from a language model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/nn/gpt.hpp>

namespace lockstep::nn {

struct GenerateOptions {
  std::int64_t length = 256;  ///< bytes to be drawn
  /// What the logits are divided by: below 1 likely bytes get likelier. 0 takes the likeliest byte, of equal ones the
  /// lowest.
  double temperature = 1;
  std::uint64_t seed = 1;
};

/// LOCAL. The continuation of `prompt`, byte by byte, each drawn with the probabilities that `model` gives it behind
/// the last `context` bytes before it. A function of the model's weights and the arguments: the uniform number behind
/// byte i is that of index i of RandomStream{seed, generated_text, 0}. InvalidArgument for an empty prompt, a byte in
/// it outside of the vocabulary, a vocabulary larger than a byte, a negative length or temperature, and logits that are
/// no finite numbers.
std::string generate(Gpt& model, std::string_view prompt, const GenerateOptions& options = {});

}  // namespace lockstep::nn
