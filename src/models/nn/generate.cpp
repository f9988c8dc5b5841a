#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/models/nn/generate.hpp>

#include "models/nn/gpt.hpp"

namespace lockstep::nn {
namespace {

void check(std::span<const std::int32_t> prompt, const GptOptions::Generation& options) {
  if (prompt.empty()) throw InvalidArgument{"generate: the prompt is empty; expected 1 token or more"};
  if (options.length < 0)
    throw InvalidArgument{fmt::format("generate: the length is {}; expected 0 or more", options.length)};
  if (!(options.temperature >= 0) || std::isinf(options.temperature))
    throw InvalidArgument{
        fmt::format("generate: the temperature is {}; expected a number from 0 on", options.temperature)};
}

Gpt& gpt_of(Model& model) {
  if (auto* const gpt = dynamic_cast<Gpt*>(&model)) return *gpt;
  throw InvalidArgument{fmt::format("generate: a model '{}' draws no text; expected one of make_gpt", model.name())};
}

/// The first token at which the cumulative probability exceeds `uniform`. Overwrites the logits.
std::size_t draw(std::span<double> logits, double temperature, double uniform) {
  if (!std::ranges::all_of(logits, [](double each) { return std::isfinite(each); }))
    throw InvalidArgument{"generate: the model's logits are not finite numbers"};
  const auto largest = std::ranges::max_element(logits);
  if (temperature == 0) return static_cast<std::size_t>(largest - logits.begin());

  const double highest = *largest;
  double sum = 0;
  for (double& each : logits) each = sum += std::exp((each - highest) / temperature);
  const auto drawn = std::ranges::upper_bound(logits, uniform * sum);
  return static_cast<std::size_t>(drawn - logits.begin());
}

}  // namespace

std::vector<std::int32_t> generate(Model& model, std::span<const std::int32_t> prompt,
                                   const GptOptions::Generation& options) {
  Gpt& gpt = gpt_of(model);
  check(prompt, options);
  std::vector<std::int32_t> tokens{prompt.begin(), prompt.end()};
  const RandomStream random{options.seed, RandomStream::Purpose::generated_text, 0};
  for (std::int64_t i = 0; i < options.length; ++i) {
    const std::size_t known = std::min(tokens.size(), static_cast<std::size_t>(gpt.options().context));
    std::vector<double> logits = gpt.logits_after(std::span{tokens}.last(known));
    const std::span after_last = std::span{logits}.last(static_cast<std::size_t>(gpt.options().vocabulary));
    const std::size_t token = draw(after_last, options.temperature, random.uniform(static_cast<std::uint64_t>(i)));
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  tokens.erase(tokens.begin(), tokens.begin() + std::ssize(prompt));
  return tokens;
}

std::string generate(Model& model, std::string_view prompt, const GptOptions::Generation& options) {
  const std::int64_t vocabulary = gpt_of(model).options().vocabulary;
  if (vocabulary > 256)
    throw InvalidArgument{
        fmt::format("generate: a vocabulary of {} tokens is not one of bytes; expected 256 or fewer", vocabulary)};
  std::vector<std::int32_t> bytes;
  for (const char byte : prompt) bytes.push_back(static_cast<unsigned char>(byte));
  std::string text;
  for (const std::int32_t token : generate(model, bytes, options)) text.push_back(static_cast<char>(token));
  return text;
}

}  // namespace lockstep::nn
