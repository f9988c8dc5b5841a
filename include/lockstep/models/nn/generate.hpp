// Text from a language model.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/nn/models.hpp>

namespace lockstep::nn {

/// LOCAL, blocking. Returns the continuation of `prompt`, without the prompt. Each token is drawn from the
/// probabilities that `model`, made by make_gpt, predicts after the last `context` tokens. The result is a function of
/// the model's weights and the arguments: token i takes the uniform number at index i of RandomStream{seed,
/// generated_text, 0}. InvalidArgument for a model of another kind, for an empty prompt, a token in it outside the
/// vocabulary, a negative length, a temperature that is negative or not finite, and logits that are not finite.
LOCKSTEP_API std::vector<std::int32_t> generate(Model& model, std::span<const std::int32_t> prompt,
                                                const GptOptions::Generation& options = {});

/// The same for a model whose tokens are bytes. InvalidArgument also for a vocabulary of more than 256 tokens.
LOCKSTEP_API std::string generate(Model& model, std::string_view prompt, const GptOptions::Generation& options = {});

}  // namespace lockstep::nn
