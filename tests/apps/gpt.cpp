// The language model end to end: the same bytes on any number of ranks, losses by the byte, and text at the end.
// Each of its options is in training_options.cpp.
#include <algorithm>
#include <array>
#include <cmath>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

/// A file of text, as long as it lives.
class TextFile {
 public:
  explicit TextFile(std::size_t size) : path_{folder_.write("text", small_text(size))} {}

  /// A small model of this text, and `more`.
  Arguments gpt(const Arguments& more) const {
    return Arguments{"--model", "gpt", "--data",  path_, "--layers",  "2",
                     "--heads", "2",   "--embed", "32",  "--context", "16"} +
           more;
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::string path_;
};

/// In bits: what a model that looks at no context has to pay for a byte at least.
double entropy_of_bytes(const std::string& text) {
  std::array<double, 256> counts{};
  for (const char byte : text) ++counts[static_cast<unsigned char>(byte)];
  double bits = 0;
  for (const double count : counts)
    if (count > 0) bits -= count * std::log2(count / static_cast<double>(text.size()));
  return bits / static_cast<double>(text.size());
}

}  // namespace

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with everything on, and shards without samples") {
  // 112 windows of 16 bytes to train on: three batches of 37, which 8 shards do not divide, and one of a single window.
  const TextFile text{2000};
  check_same_on({1, 2, 4, 8}, text.gpt({"--weight-decay", "0.1", "--clip-norm", "0.5", "--schedule", "cosine",
                                        "--warmup-steps", "3", "--accumulate", "3", "--steps", "6", "--global-batch",
                                        "37", "--eval-every", "4", "--sample", "20"}));
}

TEST_CASE("1 and 4 ranks end in the same bytes with the default options of a text", "[extended]") {
  const TextFile text{4000};
  check_same_on({1, 4}, {"--model", "gpt", "--data", text.path(), "--steps", "2"});
}

TEST_CASE("samples are windows of the text, losses and accuracies are by the byte") {
  const TextFile text{2000};
  const Trained trained = train(2, text.gpt({"--epochs", "2", "--global-batch", "50"}));
  std::vector<std::int64_t> samples;
  for (const Json& line : trained.metrics) {
    INFO(line.dump());
    if (line["kind"] == "train") {
      samples.push_back(line["samples"].get<std::int64_t>());
      CHECK_FALSE(line.contains("bits_per_byte"));
    } else {
      CHECK(line["bits_per_byte"].get<double>() == Approx(line["loss"].get<double>() / std::log(2)).epsilon(1e-15));
      CHECK(line["accuracy"].get<double>() <= 1);
    }
  }
  CHECK(samples == std::vector<std::int64_t>{50, 100, 112, 162, 212, 224});
  // Before the first step all bytes are about as likely: their logits have a standard deviation of about 0.1.
  CHECK(trained.metrics.front()["loss"].get<double>() == Approx(std::log(256)).epsilon(0.01));
  CHECK(trained.result["model"] == "gpt");
  CHECK(trained.result["samples"] == 224);
  CHECK(trained.result["bits_per_byte"] == trained.metrics.back()["bits_per_byte"]);
  // Of the last epoch, of whose batches the last one is smaller.
  const auto loss = [&](std::size_t step) { return trained.metrics[step]["loss"].get<double>(); };
  REQUIRE(trained.metrics[3]["kind"] == "eval");
  CHECK(trained.result["train_loss"].get<double>() ==
        Approx((50 * loss(4) + 50 * loss(5) + 12 * loss(6)) / 112).epsilon(1e-12));
}

TEST_CASE("the result and the metrics of a text have a number more than those of images") {
  const TextFile text{2000};
  const Trained trained = train(1, text.gpt({"--steps", "1"}));
  const auto keys_of = [](const Json& object) {
    std::string keys;
    for (const auto& [key, value] : object.items()) keys += key + " ";
    return keys;
  };
  CHECK(keys_of(trained.result) ==
        "ranks shards device model steps samples seconds samples_per_second train_loss eval_loss bits_per_byte "
        "eval_accuracy weights_digest ");
  CHECK(keys_of(trained.metrics.back()) == "kind step epoch loss bits_per_byte accuracy seconds ");
}

TEST_CASE("the gpt learns what bytes stand behind which") {
  const TextFile text{20000};
  const Trained trained =
      train(2, text.gpt({"--epochs", "10", "--learning-rate", "0.01", "--schedule", "cosine", "--clip-norm", "1"}));
  // A word is one of 16, or 4 bits, and of about 4.6 bytes with what ends it: 1 bit a byte is to be had.
  CHECK(trained.result["bits_per_byte"].get<double>() < entropy_of_bytes(small_text(20000)) / 2);
}

TEST_CASE("a sample has as many bytes as asked for, and none that a terminal obeys") {
  const TextFile text{2000};
  const Trained trained = train(2, text.gpt({"--steps", "3", "--sample", "300"}));
  CHECK(bytes_of(trained.written) == 300 + 1);  // and the line break before the result
  CHECK(
      std::ranges::none_of(trained.written, [](char byte) { return byte == '\x1b' || byte == '\r' || byte == '\0'; }));
}

TEST_CASE("a training that diverges ends with a line and an exit code of its own") {
  const TextFile text{2000};
  const Outcome outcome = run_refused(2, text.gpt({"--optimizer", "sgd", "--learning-rate", "1e30", "--steps", "4"}));
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 8);
  CHECK(outcome.out.empty());
  const std::vector<std::string> lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::StartsWith("lockstep: error: the training has diverged: the loss of step 2 is ") &&
                           Catch::Contains("learning rate 1e+30 and gradient norm "));

  const Outcome goes_on = run_job(
      2, text.gpt({"--optimizer", "sgd", "--learning-rate", "1e30", "--steps", "4", "--on-divergence", "continue"}));
  INFO("stderr: " << goes_on.err);
  CHECK(goes_on.exit_code == 0);
  const std::vector<std::string> logged = lines_starting_with(goes_on.err, "[rank ");
  CHECK(std::ranges::count_if(logged, [](const std::string& line) {
          return line.find("has diverged") != std::string::npos;
        }) == 1);  // once, though each later loss is as bad
}
