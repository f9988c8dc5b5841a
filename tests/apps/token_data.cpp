// Training on tokens, on simulated ranks.
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"
#include "support/refused_options.hpp"
#include "support/token_file.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::uint16_t vocabulary = 600;

/// Tokens of which each says the next one, but for chance.
std::vector<std::uint16_t> tokens(std::size_t count, std::uint64_t set) {
  const RandomStream random{17, RandomStream::Purpose::simulation, set};
  std::vector<std::uint16_t> tokens{599};
  while (tokens.size() < count) {
    const bool jumps = random.below(8, tokens.size()) == 0;
    tokens.push_back(static_cast<std::uint16_t>(jumps ? 592 + random.below(8, tokens.size() + count)
                                                      : 592 + (tokens.back() - 591) % 8));
  }
  return tokens;
}

}  // namespace

TEST_CASE("a gpt learns tokens beyond the bytes, with the same bits on any number of ranks") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  folder.write("train_0.bin", token_file(tokens(900, 0)));
  folder.write("train_1.bin", token_file(tokens(333, 1)));
  folder.write("val.bin", token_file(tokens(200, 2)));
  const Arguments arguments{"--model",         "gpt",  "--data",   folder.path(), "--vocabulary",   "600",
                            "--layers",        "1",    "--heads",  "2",           "--embed",        "16",
                            "--context",       "8",    "--steps",  "20",          "--global-batch", "16",
                            "--learning-rate", "0.02", "--sample", "5",           "--quiet"};
  const Trained one = train_simulated(1, arguments);
  CHECK(one.metrics.front()["loss"].get<double>() == Approx(std::log(600)).epsilon(0.02));
  CHECK(one.result["eval_loss"].get<double>() < 4);
  CHECK_FALSE(one.result.contains("bits_per_byte"));
  for (const int ranks : {2, 4}) {
    const Trained other = train_simulated(ranks, arguments);
    CHECK(other.result["weights_digest"] == one.result["weights_digest"]);
    CHECK(other.written == one.written);
  }
  // Five numbers below the vocabulary.
  std::istringstream written{one.written};
  std::vector<int> numbers;
  for (int number; written >> number;) numbers.push_back(number);
  REQUIRE(numbers.size() == 5);
  for (const int number : numbers) CHECK((number >= 0 && number < 600));
}

TEST_CASE("the preset of GPT-2 sets the sizes that are not given") {
  const auto sizes = [](const Arguments& given) {
    const TrainingOptions all = parse(Arguments{"--data", "x", "--model", "gpt"} + given).training;
    return std::vector{*all.layers, *all.heads, *all.embed, *all.context, *all.vocabulary};
  };
  CHECK(sizes({"--preset", "gpt2"}) == std::vector<std::int64_t>{12, 12, 768, 1024, 50257});
  CHECK(sizes({"--heads", "4", "--preset", "gpt2", "--vocabulary", "9", "--layers", "2"}) ==
        std::vector<std::int64_t>{2, 4, 768, 1024, 9});
  CHECK_THROWS_WITH(sizes({"--preset", "gpt3"}), Catch::StartsWith("--preset gpt3: expected gpt2"));
}

TEST_CASE("files of tokens and texts are told apart") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string file = folder.write("tokens", token_file(tokens(900, 0)));
  const std::string text = folder.write("text", std::string(2000, 'x'));
  const Arguments gpt{"--model", "gpt", "--steps", "1", "--context", "8"};
  check_all_refused({{gpt + Arguments{"--data", file},
                      {file + ": is a file of tokens; expected --vocabulary N, where every token is below N"}},
                     {gpt + Arguments{"--data", text, "--vocabulary", "600"}, {text + ": is no file of tokens"}},
                     {{"--data", text, "--vocabulary", "600"}, {"--vocabulary: expected only with --model gpt"}},
                     {gpt + Arguments{"--data", text, "--vocabulary", "65537"}, {"--vocabulary 65537: expected"}},
                     {gpt + Arguments{"--data", text, "--vocabulary", "600", "--binary"},
                      {"--binary: expected no --vocabulary, which --preset sets too"}}},
                    [](const Arguments& arguments) { (void)train_simulated(2, arguments); });
}

TEST_CASE("a gpt of any bytes is one by choice, which its weights keep") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += static_cast<char>(i * i % 256);
  const std::string data = folder.write("sound", bytes), checkpoints = folder.path() / "run";
  const Arguments gpt{"--model", "gpt",       "--data", data,      "--layers",       "1", "--heads", "1", "--embed",
                      "8",       "--context", "8",      "--quiet", "--global-batch", "16"};
  const Arguments saved{"--checkpoint-dir", checkpoints, "--checkpoint-every", "2"};
  CHECK_THROWS_WITH(train_simulated(2, gpt + Arguments{"--steps", "4"}),
                    Catch::StartsWith(data + ": has a zero byte at 0, which no text has; expected a text file") &&
                        Catch::EndsWith("or --binary, which takes files of any bytes"));
  const Trained trained = train_simulated(2, gpt + saved + Arguments{"--steps", "4", "--binary"});
  CHECK(trained.result.contains("bits_per_byte"));
  const Arguments from{"--resume", checkpoints + "/step-2", "--data", data, "--global-batch", "16", "--quiet"};
  CHECK(train_simulated(1, from + Arguments{"--steps", "4"}).digest() == trained.digest());
  CHECK(train_simulated(1, from + Arguments{"--steps", "4", "--binary"}).digest() == trained.digest());
  const std::string line = folder.write("line", std::string{"a\0b", 3});
  const Arguments prediction{"--resume", checkpoints + "/step-4", "--predict", line, "--sample", "2", "--quiet"};
  CHECK(train_simulated(2, prediction).result["index"] == 0);
}
