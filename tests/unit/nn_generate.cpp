// Text that a gpt writes.
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/nn/generate.hpp>

#include "gpt_support.hpp"
#include "models/input/batches.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

GptOptions bytes(DType dtype) {
  return {.layers = 1, .heads = 2, .width = 8, .context = 6, .vocabulary = 128, .dtype = dtype, .seed = 2};
}

/// A model whose logits are the same behind every text: all vectors of tokens but the first `logits` of them are zero,
/// and the last norm gives (1, 0, …) for anything.
void pin_logits(const Gpt& model, const std::vector<double>& logits) {
  const auto variables = model.variables();
  fill(variables[0].local(), 0);
  const std::int64_t width = model.options().width;
  for (std::size_t token = 0; token < logits.size(); ++token)
    set(variables[0].local(), static_cast<std::int64_t>(token) * width, logits[token]);
  const TensorView gain = variables[variables.size() - 2].local(), bias = variables.back().local();
  fill(gain, 0);
  fill(bias, 0);
  set(bias, 0, 1);
}

/// The mean loss of a byte.
double train(GptProgram& program, const TextSet& text, int steps) {
  const auto kernels = detail::make_update_kernels(detail::Functions::of_library, Stream::host());
  SampleBatch batch = make_text_batch(text.count(), text.context);
  std::vector<std::int64_t> all;
  for (std::int64_t sample = 0; sample < text.count(); ++sample) all.push_back(sample);
  fill_batch(text, all, batch);
  const GradientBuffer buffer = program.buffer();
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    loss = program.model.train_shard(batch, {}, buffer).loss_sum / static_cast<double>(batch.counted_labels());
    for (const Variable& variable : program.model.variables())
      kernels->sgd(variable.local(), buffer.of(variable),
                   {.learning_rate = 0.5, .divisor = static_cast<double>(batch.counted_labels())});
  }
  return loss;
}

}  // namespace

TEST_CASE("without temperature the likeliest byte is taken, of equal ones the lowest") {
  GptProgram program{bytes(DType::f32), automatic()};
  pin_logits(program.model, {0, 1, 5, 3, 5});
  CHECK(generate(program.model, "x", {.length = 3, .temperature = 0}) == "\x02\x02\x02");
  CHECK(generate(program.model, "x", {.length = 0}).empty());
}

TEST_CASE("bytes are drawn with the probabilities of their logits") {
  GptProgram program{bytes(DType::f64), reference()};
  const double nothing = -1000;
  std::vector<double> logits(128, nothing);
  for (std::size_t token : {65, 66, 67}) logits[token] = std::log(static_cast<double>(token - 64));
  pin_logits(program.model, logits);  // 1/6, 2/6, 3/6
  // The draws of this seed, by a Python program: 0.67, 0.27, 0.58, 0.91, 0.435, 0.11, 0.19, 0.29.
  CHECK(generate(program.model, "x", {.length = 8, .seed = 7}) == "CBCCBABB");
  // Half the temperature squares the odds: 1/14, 4/14, 9/14.
  CHECK(generate(program.model, "x", {.length = 8, .temperature = 0.5, .seed = 7}) == "CBCCCBBB");

  std::map<char, double> counts;
  constexpr int draws = 3000;
  for (const char byte : generate(program.model, "x", {.length = draws, .seed = 1})) ++counts[byte];
  CHECK(counts.size() == 3);
  for (const auto& [byte, count] : counts) {
    const double share = (byte - 64) / 6.;
    CHECK(std::abs(count - draws * share) < 4 * std::sqrt(draws * share * (1 - share)));  // four standard deviations
  }
}

TEST_CASE("what is generated depends on the weights, the prompt's last bytes and the options alone") {
  GptProgram program{bytes(DType::f32), automatic()};
  program.shake();
  const std::string text = generate(program.model, "abcdefgh", {.length = 30, .seed = 4});
  CHECK(text.size() == 30);
  CHECK(generate(program.model, "abcdefgh", {.length = 30, .seed = 4}) == text);
  CHECK(generate(program.model, "zzcdefgh", {.length = 30, .seed = 4}) == text);  // beyond the context
  CHECK(generate(program.model, "abcdezgh", {.length = 30, .seed = 4}) != text);
  CHECK(generate(program.model, "abcdefgh", {.length = 30, .seed = 5}) != text);
  CHECK(generate(program.model, "abcdefgh", {.length = 12, .seed = 4}) == text.substr(0, 12));
}

TEST_CASE("a gpt learns a text by heart and says it") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    const std::string verse = "to be, or not to be, that is it";
    const TextSet text{tokens_of_text({verse.begin(), verse.end()}), 30};
    REQUIRE(text.count() == 1);
    GptProgram program{{.layers = 1, .heads = 2, .width = 16, .context = 30, .vocabulary = 128, .seed = 2}, kernels};
    CHECK(train(program, text, 1) == Approx(std::log(128)).epsilon(0.02));
    CHECK(train(program, text, 300) < 0.1);
    CHECK(generate(program.model, "to be,", {.length = 25, .temperature = 0}) == verse.substr(6));
  }
}

TEST_CASE("what cannot be generated is refused") {
  GptProgram program{bytes(DType::f32), reference()};
  const auto refused = [&](std::string_view prompt, const GptOptions::Generation& options, const std::string& message) {
    CHECK_THROWS_AS(generate(program.model, prompt, options), InvalidArgument);
    CHECK_THROWS_WITH(generate(program.model, prompt, options), Catch::Contains(message));
  };
  refused("", {}, "generate: the prompt is empty; expected 1 token or more");
  refused("\x80", {}, "index 128 at position 0 is outside of [0, 128)");
  refused("a", {.length = -1}, "generate: the length is -1; expected 0 or more");
  for (const double temperature :
       {-1., std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    refused("a", {.temperature = temperature}, "generate: the temperature is ");
  fill(program.model.variables().back().local(), std::numeric_limits<double>::quiet_NaN());
  refused("a", {}, "generate: the model's logits are not finite numbers");

  GptProgram words{{.layers = 1, .heads = 1, .width = 2, .context = 2, .vocabulary = 257}, reference()};
  CHECK_THROWS_WITH(generate(words.model, "a"),
                    "generate: a vocabulary of 257 tokens is not one of bytes; expected 256 "
                    "or fewer");
  const auto mlp = make_mlp(words.strategy, {.inputs = 2, .hidden = {}, .classes = 2}, reference());
  CHECK_THROWS_WITH(generate(*mlp, "a"), "generate: a model 'mlp' draws no text; expected one of make_gpt");
}

TEST_CASE("a gpt has logits of texts alone, and not of samples") {
  GptProgram program{bytes(DType::f32), reference()};
  CHECK_THROWS_WITH(program.model.Model::logits(text_from(0, 1, 2)), "a model 'gpt' has no logits");
}
