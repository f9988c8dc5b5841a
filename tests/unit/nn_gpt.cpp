// The gpt: its variables, gradients, shards and refusals.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "core/device/device.hpp"
#include "gpt_support.hpp"
#include "models/nn/gpt.hpp"
#include "models/nn/initial_values.hpp"
#include "models/ops/reference/reference.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "naive_gpt.hpp"
#include "support/forwarding_stream.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

/// Counts what is asked of it.
class CountingStream final : public test::ForwardingStream {
 public:
  struct Asked {
    int allocations = 0;
    std::size_t bytes = 0;
  };

  explicit CountingStream(Asked& asked) : asked_{asked} {}

  Buffer allocate(std::size_t bytes) override {
    ++asked_.allocations;
    asked_.bytes += bytes;
    return ForwardingStream::allocate(bytes);
  }

 private:
  Asked& asked_;
};

/// What is done with a shard.
enum class With : std::uint8_t { training, evaluation };

/// The bytes that a gpt of these options takes for its first shard.
std::size_t bytes_of_first_shard(const GptOptions& options, const SampleBatch& shard, With with = With::training) {
  CountingStream::Asked asked;
  const auto group = make_local_group();
  group->add_device_plane(std::make_unique<CountingStream>(asked), make_local_communicator());
  Strategy strategy = strategy_on(*group);
  Gpt model{strategy, options, reference()};
  strategy.seal();
  const GradientBuffer buffer{strategy.store(), model.variables()};
  asked = {};
  if (with == With::training)
    model.train_shard(shard, {}, buffer);
  else
    model.evaluate_shard(shard);
  return asked.bytes;
}

std::vector<std::string> described(const Gpt& model) {
  std::vector<std::string> made;
  for (const Variable& variable : model.variables())
    made.push_back(std::string{variable.name()} + ' ' + describe(variable.local()));
  return made;
}

/// -log softmax(logits)[label], in double.
double cross_entropy(const std::vector<double>& logits, std::int32_t label) {
  double sum = 0;
  for (const double each : logits) sum += std::exp(each - logits[static_cast<std::size_t>(label)]);
  return std::log(sum);
}

}  // namespace

TEST_CASE("a gpt creates its variables from the embedding to the last norm") {
  const GptProgram program{{.layers = 1, .heads = 2, .width = 4, .context = 5, .vocabulary = 7}, reference()};
  for (const Variable& variable : program.model.variables()) CHECK(variable.trainable());
  CHECK(described(program.model) ==
        std::vector<std::string>{
            "token_embedding f32[7, 4]", "position_embedding f32[5, 4]", "block_0/attention_norm/gain f32[4]",
            "block_0/attention_norm/bias f32[4]", "block_0/attention/qkv/weight f32[4, 12]",
            "block_0/attention/qkv/bias f32[12]", "block_0/attention/output/weight f32[4, 4]",
            "block_0/attention/output/bias f32[4]", "block_0/mlp_norm/gain f32[4]", "block_0/mlp_norm/bias f32[4]",
            "block_0/expand/weight f32[4, 16]", "block_0/expand/bias f32[16]", "block_0/contract/weight f32[16, 4]",
            "block_0/contract/bias f32[4]", "final_norm/gain f32[4]", "final_norm/bias f32[4]"});
  CHECK(program.model.name() == "gpt");

  std::int64_t weights = 0;
  const GptProgram standard{GptOptions{}, reference()};
  for (const Variable& variable : standard.model.variables()) weights += variable.local().count();
  // 256 tokens and 128 positions of 128; in each of 4 blocks two norms, 128 x 384, 128 x 128, 128 x 512 and 512 x 128
  // with their biases; a norm.
  CHECK(weights == 384 * 128 + 4 * (4 * 128 + 129 * 384 + 129 * 128 + 129 * 512 + 513 * 128) + 2 * 128);
}

TEST_CASE("the initial weights of a gpt are GPT-2's") {
  GptProgram program{
      {.layers = 8, .heads = 2, .width = 6, .context = 5, .vocabulary = 7, .dtype = DType::f64, .seed = 9},
      reference()};
  const auto variables = program.model.variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::string name{variables[i].name()};
    const Shape& shape = variables[i].shape();
    const auto ends_with = [&](const std::string& end) { return name.ends_with(end); };
    const std::vector<double> found = in_double(variables[i].local());
    INFO(name);
    if (ends_with("gain") || ends_with("bias")) {
      CHECK(found == std::vector<double>(found.size(), ends_with("gain") ? 1 : 0));
    } else {
      const bool residual = ends_with("output/weight") || ends_with("contract/weight");
      CHECK(found == normal_values(DType::f64, shape, residual ? 0.005 : 0.02, 9, i, ops::Functions::portable)
                         .to_vector<double>());
    }
  }
}

TEST_CASE("sizes and types that no gpt can have are refused before anything is created") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const auto refused = [&](GptOptions options, const char* message) {
    CHECK_THROWS_WITH((Gpt{strategy, options, reference()}), Catch::Contains(message));
    CHECK_THROWS_AS((Gpt{strategy, options, reference()}), InvalidArgument);
    CHECK(inside(strategy.store()).variables().empty());
  };
  refused({.layers = 0},
          "a gpt of 0 layers, 4 heads, width 128, context 128 and a vocabulary of 256; expected 1 or more");
  refused({.heads = 3}, "heads that divide the width");
  refused({.heads = 0}, "0 heads");
  refused({.width = -4}, "width -4");
  refused({.context = 0}, "context 0");
  refused({.vocabulary = 0}, "vocabulary of 0");
  refused({.dtype = DType::i32}, "a gpt of i32 is not supported; expected f32 or f64");
  refused({.heads = 1, .width = std::int64_t{1} << 40}, "");
}

TEST_CASE("the logits of a gpt are those of its definition, position by position") {
  GptProgram program{DType::f64};
  program.shake();
  const NaiveGpt naive{program.model};
  const std::vector<std::int32_t> tokens{3, 0, 6, 6, 1};
  const std::vector<double> found = program.model.logits_after(tokens);
  for (std::size_t position = 0; position < 5; ++position) {
    const std::vector<double> expected =
        naive.logits({tokens.begin(), tokens.begin() + 1 + static_cast<int>(position)});
    // Sums of up to 24 terms of size up to ten, in another order, behind two blocks of norms that enlarge roundings.
    for (std::size_t token = 0; token < 7; ++token)
      CHECK(found[position * 7 + token] == Approx(expected[token]).epsilon(0).margin(1e-12));
  }
}

TEST_CASE("the gradients of a gpt agree with finite differences") {
  GptProgram program{DType::f64};
  program.shake();
  Gpt& model = program.model;
  const SampleBatch batch = text_from(0, 3, 4);
  const GradientBuffer buffer = program.buffer();
  fill(buffer.flat(), std::numeric_limits<double>::quiet_NaN());
  const ops::Kernels::BatchLoss result = model.train_shard(batch, {}, buffer.at(buffer.flat()));
  CHECK(result.loss_sum == model.evaluate_shard(batch).loss_sum);

  // Central differences are off by h^2 = 1e-10 times a sixth of the third derivative, which behind two blocks of layer
  // norms is of the order of a hundred, and by the rounding of a loss of about 50 over h, some 1e-9.
  const auto loss = [&] { return model.evaluate_shard(batch).loss_sum; };
  const int nonzero = check_against_differences(model.variables(), buffer, loss, {.step = 1e-5, .margin = 2e-8});
  // Not every path is dead: of 1074 all but the keys' biases, which no softmax sees.
  CHECK(nonzero > 1000);
}

TEST_CASE("a gpt that knows nothing loses the logarithm of its vocabulary on each token that counts") {
  GptProgram program{DType::f64};
  fill(program.model.variables()[0].local(), 0);
  const SampleBatch batch = text_from(0, 3, 8);
  CHECK(batch.counted_labels() == 15);
  CHECK(program.model.evaluate_shard(batch).loss_sum == Approx(15 * std::log(7)).epsilon(1e-14));
  CHECK(program.model.train_shard(batch, {}, program.buffer()).loss_sum == Approx(15 * std::log(7)).epsilon(1e-14));
}

TEST_CASE("the loss of a window is that of each of its tokens behind those before it alone") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    GptProgram program{DType::f32, kernels};
    program.shake();
    const SampleBatch batch = text_from(0, 1, 1);
    const auto tokens = batch.inputs.view().elements<std::int32_t>();
    const auto labels = batch.labels.view().elements<std::int32_t>();
    double loss = 0;
    for (std::size_t known = 1; known <= 5; ++known) {
      const std::vector<double> logits = program.model.logits_after(tokens.first(known));
      REQUIRE(logits.size() == 7 * known);
      loss += cross_entropy({logits.end() - 7, logits.end()}, labels[known - 1]);
    }
    // The same logits; their exponentials are floats in the one and doubles in the other, rounded seven times.
    CHECK(program.model.evaluate_shard(batch).loss_sum == Approx(loss).epsilon(8 * 0x1p-24));
  }
}

TEST_CASE("a later token does not change an earlier one's logits, bit for bit") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    GptProgram program{{.layers = 2, .heads = 2, .width = 32, .context = 40, .vocabulary = 50}, kernels};
    program.shake();
    const SampleBatch batch = text_from(0, 1, 1, program.model.options());
    const auto tokens = batch.inputs.view().elements<std::int32_t>();
    const std::vector<double> before = program.model.logits_after(tokens);
    for (std::int32_t& token : tokens.subspan(20)) token = 49 - token;
    const std::vector<double> after = program.model.logits_after(tokens);
    for (std::int64_t position = 0; position < 40; ++position) {
      const auto row = [&](const std::vector<double>& logits) {
        return std::vector<double>(logits.begin() + 50 * position, logits.begin() + 50 * (position + 1));
      };
      CHECK((row(after) == row(before)) == (position < 20));
    }
    const std::vector<double> alone = program.model.logits_after(tokens.first(20));
    CHECK(alone == std::vector<double>(before.begin(), before.begin() + 20 * 50));
  }
}

TEST_CASE("rows of padding change neither the gradients nor the loss of a gpt") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    GptProgram program{dtype};
    program.shake();
    const GradientBuffer buffer = program.buffer();
    const ops::Kernels::BatchLoss tight = program.model.train_shard(text_from(0, 3, 3), {}, buffer);
    const Tensor expected = Tensor::copy_of(buffer.flat());
    // The reference adds in the order of the rows, so here even the bits are the same.
    const ops::Kernels::BatchLoss padded = program.model.train_shard(text_from(0, 3, 9), {}, buffer);
    CHECK(padded.loss_sum == tight.loss_sum);
    CHECK(padded.correct == tight.correct);
    CHECK(same_bits(buffer.flat(), expected.view()));
  }
}

TEST_CASE("a shard without samples gives a gpt no loss and a gradient of positive zeros") {
  GptProgram program{DType::f32, automatic()};
  const GradientBuffer buffer = program.buffer();
  for (const Variable& variable : program.model.variables()) fill(buffer.of(variable), -1);
  const SampleBatch empty = text_from(0, 0, 4);
  const ops::Kernels::BatchLoss result = program.model.train_shard(empty, {}, buffer);
  CHECK(result.loss_sum == 0);
  CHECK(result.correct == 0);
  CHECK(same_bits(buffer.flat(), Tensor::zeros(DType::f32, {buffer.count()}).view()));
  CHECK(program.model.evaluate_shard(empty).loss_sum == 0);
}

TEST_CASE("a shard's bits do not depend on what a gpt did before, and only larger shards than before take memory") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    CountingStream::Asked asked;
    const int& allocations = asked.allocations;
    const auto group = make_local_group();
    group->add_device_plane(std::make_unique<CountingStream>(asked), make_local_communicator());
    Strategy strategy = strategy_on(*group);
    Gpt model{strategy, small_gpt(DType::f32), kernels};
    strategy.seal();
    const GradientBuffer buffer{strategy.store(), model.variables()};
    const SampleBatch shard = text_from(3, 4, 4);
    const ops::Kernels::BatchLoss first = model.train_shard(shard, {}, buffer);
    const Tensor expected = Tensor::copy_of(buffer.flat());

    const int after_first = allocations;
    model.train_shard(text_from(50, 4, 4), {}, buffer);
    model.evaluate_shard(text_from(90, 1, 2));
    CHECK(allocations == after_first);
    model.evaluate_shard(text_from(90, 9, 10));
    CHECK(allocations > after_first);

    const int after_largest = allocations;
    for (const Variable& variable : model.variables())
      fill(buffer.of(variable), std::numeric_limits<double>::quiet_NaN());
    const ops::Kernels::BatchLoss again = model.train_shard(shard, {}, buffer);
    CHECK(again.loss_sum == first.loss_sum);
    CHECK(again.correct == first.correct);
    CHECK(same_bits(buffer.flat(), expected.view()));
    CHECK(model.evaluate_shard(shard).loss_sum == first.loss_sum);
    CHECK(allocations == after_largest);
  }
}

TEST_CASE("a gpt that computes activations again has the same bits") {
  GptOptions options = small_gpt(DType::f32);
  options.layers = 3;
  for (const SharedKernels& kernels : {reference(), automatic()})
    for (const Model::Precision precision : {Model::Precision::full, Model::Precision::bf16}) {
      options.precision = precision;
      options.recompute = false;
      GptProgram keeps{options, kernels};
      options.recompute = true;
      GptProgram recomputes{options, kernels};
      keeps.shake();
      recomputes.shake();
      const GradientBuffer kept = keeps.buffer(), recomputed = recomputes.buffer();
      for (const std::int64_t samples : {4, 2}) {
        const SampleBatch shard = text_from(3, samples, 4);
        const ops::Kernels::BatchLoss loss = keeps.model.train_shard(shard, {}, kept);
        CHECK(recomputes.model.train_shard(shard, {}, recomputed).loss_sum == loss.loss_sum);
        CHECK(same_bits(recomputed.flat(), kept.flat()));
        CHECK(recomputes.model.evaluate_shard(shard).loss_sum == loss.loss_sum);
      }
    }
}

TEST_CASE("a gpt that computes activations again keeps one vector a position for each further block") {
  GptOptions options{.layers = 2, .heads = 2, .width = 8, .context = 16, .vocabulary = 7, .recompute = true};
  const SampleBatch shard = text_from(0, 4, 4, options);
  const std::size_t of_two = bytes_of_first_shard(options, shard);
  options.layers = 7;
  CHECK(bytes_of_first_shard(options, shard) - of_two == 5 * 4 * 16 * 8 * sizeof(float));
}

TEST_CASE("an evaluation takes no more memory than a gpt that computes activations again") {
  GptOptions options{.layers = 7, .heads = 2, .width = 8, .context = 16, .vocabulary = 7};
  const SampleBatch shard = text_from(0, 4, 4, options);
  const std::size_t of_evaluation = bytes_of_first_shard(options, shard, With::evaluation);
  CHECK(of_evaluation < bytes_of_first_shard(options, shard));
  options.recompute = true;
  CHECK(of_evaluation == bytes_of_first_shard(options, shard));
}

TEST_CASE("the gradient of a batch of text is the fixed-order sum of its shards', to rounding") {
  GptProgram program{DType::f64};
  program.shake();
  // Sums of 35 terms of size up to ten: some units of 2^-53 of each.
  check_shards_add_up(
      program.model, program.buffer(), 0, text_from(0, 7, 7),
      [](std::int64_t first, std::int64_t samples) { return text_from(first, samples, 3); }, 1e-12);
}

TEST_CASE("a gpt in f32 is close to one in f64, on every kernel") {
  GptProgram wide{DType::f64};
  wide.shake();
  const GradientBuffer exact = wide.buffer();
  const ops::Kernels::BatchLoss expected = wide.model.train_shard(text_from(0, 3, 4), {}, exact);
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    GptProgram narrow{DType::f32, kernels};
    narrow.shake();  // the same: multiples of 2^-23
    const GradientBuffer buffer = narrow.buffer();
    const ops::Kernels::BatchLoss result = narrow.model.train_shard(text_from(0, 3, 4), {}, buffer);
    // Two blocks of sums of up to 24 terms, each rounded to 2^-24, and norms that enlarge what is rounded.
    CHECK(result.loss_sum == Approx(expected.loss_sum).epsilon(1e-5));
    CHECK(result.correct == expected.correct);
    for (std::size_t v = 0; v < wide.model.variables().size(); ++v) {
      const auto found = in_double(buffer.of(narrow.model.variables()[v]));
      const auto truth = in_double(exact.of(wide.model.variables()[v]));
      for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(truth[i]).epsilon(1e-4).margin(1e-4));
    }
  }
}

TEST_CASE("a shard that is not the gpt's is refused, and no gradient is written") {
  GptProgram program{DType::f32};
  const GradientBuffer buffer = program.buffer();
  fill(buffer.flat(), 7);
  const Tensor before = Tensor::copy_of(buffer.flat());
  const auto refused = [&](const SampleBatch& batch, const char* message) {
    CHECK_THROWS_WITH(program.model.train_shard(batch, {}, buffer), Catch::Contains(message));
    CHECK_THROWS_AS(program.model.evaluate_shard(batch), InvalidArgument);
  };
  const SampleBatch good = text_from(0, 2, 2);
  refused(make_batch(2, 5, DType::f32), "a shard of inputs f32[2, 5] for a gpt of i32[rows, 5]");
  refused(make_text_batch(2, 6), "i32[2, 6] for a gpt of i32[rows, 5]");
  refused({good.inputs, Tensor::zeros(DType::i32, {2}), 2}, "i32[2]; expected i32[2, 5]");
  refused({good.inputs, good.labels, 3}, "3 samples in 2 rows");
  refused({good.inputs, good.labels, -1}, "-1 samples");
  SampleBatch bad = text_from(0, 2, 2);
  bad.inputs.view().elements<std::int32_t>()[9] = 7;
  refused(bad, "index 7 at position 9 is outside of [0, 7)");
  bad = text_from(0, 2, 2);
  bad.labels.view().elements<std::int32_t>()[9] = -1;
  refused(bad, "label -1 of row 9");
  CHECK(same_bits(buffer.flat(), before.view()));

  CHECK_THROWS_WITH(program.model.logits_after({}), "0 tokens for a gpt; expected 1 to 5");
  CHECK_THROWS_AS(program.model.logits_after(std::vector<std::int32_t>(6)), InvalidArgument);
}
