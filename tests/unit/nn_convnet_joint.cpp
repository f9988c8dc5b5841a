// The convnet with batch norm over all shards of a step, on one rank.
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "convnet_support.hpp"
#include "core/comm/backends.hpp"
#include "models/input/batches.hpp"
#include "support/reductions_of.hpp"
#include "sync/reduce/declared_sums.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

/// How many samples each shard has: of other sizes, and none.
const std::vector<std::int64_t> sizes{5, 0, 3, 6, 1};
constexpr std::int64_t all_samples = 15;

ConvnetOptions joint(DType dtype, double dropout = 0) {
  return small_convnet(dtype, ConvnetOptions::BatchNorm::whole_batch, dropout);
}

/// The shards of step 9, and where their gradients go.
struct Shards {
  SampleBatch::Group group;
  std::vector<Model::ShardPlace> places;
  std::vector<Tensor> gradients, statistics;
  std::vector<GradientBuffer> buffers;

  Shards(ConvnetProgram& program, DType dtype, std::int64_t capacity) {
    const auto count = static_cast<std::int64_t>(sizes.size());
    group = make_batch_group(make_batch(count * capacity, 72, dtype), count);
    const GradientBuffer like = program.buffer();
    std::int64_t first = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      SampleBatch& batch = group.batches[i];
      const SampleBatch own = images_from(first, sizes[i], capacity, dtype);
      copy(own.inputs.view(), batch.inputs.view());
      copy(own.labels.view(), batch.labels.view());
      batch.samples = sizes[i];
      places.push_back({.step = 9, .first_sample = first});
      gradients.push_back(Tensor::zeros(dtype, {like.count()}));
      statistics.push_back(noise(dtype, {program.model.statistics()}, i));
      buffers.push_back(like.at(gradients.back().view()).with_statistics(statistics.back().view()));
      for (const Variable& variable : program.model.variables()) fill(buffers.back().of(variable), 7);
      first += sizes[i];
    }
  }

  std::vector<double> gradient() const { return sum_of(gradients); }
  std::vector<double> all_statistics() const { return sum_of(statistics); }

 private:
  static std::vector<double> sum_of(const std::vector<Tensor>& parts) {
    std::vector<double> sum(static_cast<std::size_t>(parts.front().count()));
    for (const Tensor& part : parts)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += in_double(part.view())[i];
    return sum;
  }
};

struct Result {
  double loss = 0;
  std::int64_t correct = 0;
};

/// On one rank, whose sums over the ranks are what it brings.
Result train(Convnet& model, JointBatch batch, std::span<const GradientBuffer> gradients) {
  const Range all{0, std::ssize(gradients)};
  batch.subtrees = {&all, 1};
  const auto communicator = make_local_communicator();
  const auto reductions = test::in_fixed_order(*communicator);
  const SumList list{gradients.front().dtype(), model.joint()->joint_sums()};
  DeclaredSums ranks{*reductions, list, Stream::host()};
  Result result;
  for (const auto& each : model.joint()->train_jointly(batch, gradients, ranks)) {
    result.loss += each.read().loss_sum;
    result.correct += each.read().correct;
  }
  ranks.require_all_made();
  return result;
}

Result train(Convnet& model, const Shards& shards) {
  return train(model, {shards.group, shards.places, all_samples}, shards.buffers);
}

void check_close(const std::vector<double>& found, const std::vector<double>& expected, double margin) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(0).margin(margin));
}

}  // namespace

TEST_CASE("a convnet is a joint model where batch norm takes the whole batch, and only there") {
  CHECK(ConvnetProgram{joint(DType::f32)}.model.joint() != nullptr);
  CHECK(ConvnetProgram{small_convnet(DType::f32)}.model.joint() == nullptr);
  CHECK(ConvnetProgram{small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard)}.model.joint() == nullptr);
  CHECK(ConvnetProgram{joint(DType::f32)}.model.joint()->joint_sums() == std::vector<std::int64_t>{3, 3, 4, 4, 8, 6});
}

TEST_CASE("shards of any size are normalised as if they were one batch, forward and back") {
  for (const double dropout : {0.0, 0.4}) {
    CAPTURE(dropout);
    ConvnetProgram program{joint(DType::f64, dropout)};
    const GradientBuffer whole = program.buffer();
    const ops::Kernels::BatchLoss expected =
        program.model.train_shard(images_from(0, all_samples, 16, DType::f64), {.step = 9}, whole);
    const Shards shards{program, DType::f64, 8};
    const Result result = train(program.model, shards);
    CHECK(result.loss == Approx(expected.loss_sum).epsilon(1e-14));
    CHECK(result.correct == expected.correct);
    // Sums of up to 15 * 42 terms of size 1, rounded to 2^-53 each, in two orders, through five layers.
    check_close(shards.gradient(), in_double(whole.flat()), 1e-12);
    check_close(shards.all_statistics(), in_double(whole.statistics()), 1e-12);
  }
}

TEST_CASE("in f32, and on other kernels, they are so to the bits that f32 has") {
  for (const SharedKernels& kernels : {reference(), automatic()}) {
    CAPTURE(kernels->name());
    ConvnetProgram program{joint(DType::f32), kernels};
    const GradientBuffer whole = program.buffer();
    program.model.train_shard(images_from(0, all_samples, 16, DType::f32), {.step = 9}, whole);
    const Shards shards{program, DType::f32, 8};
    train(program.model, shards);
    // As above with 2^-24.
    check_close(shards.gradient(), in_double(whole.flat()), 1e-4);
    check_close(shards.all_statistics(), in_double(whole.statistics()), 1e-4);
  }
}

TEST_CASE("an only shard that is the whole batch has the bits of train_shard") {
  for (const double dropout : {0.0, 0.4}) {
    ConvnetProgram program{joint(DType::f32, dropout), automatic()};
    const GradientBuffer buffer = program.buffer();
    const SampleBatch::Group group = make_batch_group(images_from(0, 0, 8, DType::f32), 1);
    const SampleBatch own = images_from(3, 6, 8, DType::f32);
    copy(own.inputs.view(), group.inputs.view());
    copy(own.labels.view(), group.labels.view());
    SampleBatch::Group filled = group;
    filled.batches.front().samples = 6;
    const Model::ShardPlace place{.step = 2, .first_sample = 3};
    const ops::Kernels::BatchLoss expected = program.model.train_shard(filled.batches.front(), place, buffer);
    const Tensor gradients = Tensor::copy_of(buffer.flat()), statistics = Tensor::copy_of(buffer.statistics());
    const Result result = train(program.model, {filled, {&place, 1}, 6}, {&buffer, 1});
    CHECK(result.loss == expected.loss_sum);
    CHECK(same_bits(buffer.flat(), gradients.view()));
    CHECK(same_bits(buffer.statistics(), statistics.view()));
  }
}

TEST_CASE("the gradients of shards that are normalised together agree with finite differences") {
  for (const double dropout : {0.0, 0.4}) {
    CAPTURE(dropout);
    ConvnetProgram program{joint(DType::f64, dropout)};
    const Shards shards{program, DType::f64, 6};
    train(program.model, shards);
    const GradientBuffer sum = program.buffer();
    const std::vector<double> gradient = shards.gradient();
    for (std::size_t i = 0; i < gradient.size(); ++i) set(sum.flat(), static_cast<std::int64_t>(i), gradient[i]);
    const Shards other{program, DType::f64, 6};  // each loss overwrites the gradients
    const auto loss = [&] { return train(program.model, other).loss; };
    // As for a shard by itself: rounding counts for some 1e-15 * 20 / h, and no maximum may change sides within h.
    const int nonzero = check_against_differences(program.model.variables(), sum, loss, {.step = 1e-6, .margin = 6e-8});
    CHECK(nonzero > 200);
  }
}

TEST_CASE("a shard without samples adds positive zeros, and a batch of none does no more") {
  ConvnetProgram program{joint(DType::f32), automatic()};
  Shards shards{program, DType::f32, 8};
  train(program.model, shards);
  const auto is_zero = [](const Tensor& tensor) {
    return same_bits(tensor.view(), Tensor::zeros(DType::f32, tensor.shape()).view());
  };
  CHECK(is_zero(shards.gradients[1]));
  CHECK(is_zero(shards.statistics[1]));
  CHECK_FALSE(is_zero(shards.gradients[0]));

  for (SampleBatch& batch : shards.group.batches) batch.samples = 0;
  const Result result = train(program.model, {shards.group, shards.places, 0}, shards.buffers);
  CHECK(result.loss == 0);
  CHECK(result.correct == 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(is_zero(shards.gradients[i]));
    CHECK(is_zero(shards.statistics[i]));
  }
}

TEST_CASE("a batch of a single sample has finite gradients") {
  ConvnetProgram program{joint(DType::f64)};
  Shards shards{program, DType::f64, 8};
  for (SampleBatch& batch : shards.group.batches) batch.samples = batch.samples == 1 ? 1 : 0;
  const Result result = train(program.model, {shards.group, shards.places, 1}, shards.buffers);
  CHECK(std::isfinite(result.loss));
  for (const double x : shards.gradient()) CHECK(std::isfinite(x));
}

TEST_CASE("what shards yield together does not depend on what the convnet did before") {
  ConvnetProgram program{joint(DType::f32, 0.4), automatic()};
  Shards first{program, DType::f32, 8};
  const double loss = train(program.model, first).loss;
  program.model.train_shard(images_from(40, 20, 32, DType::f32), {.step = 3}, program.buffer());
  program.model.evaluate_shard(images_from(90, 40, 64, DType::f32));
  Shards again{program, DType::f32, 8};
  CHECK(train(program.model, again).loss == loss);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(same_bits(again.gradients[i].view(), first.gradients[i].view()));
    CHECK(same_bits(again.statistics[i].view(), first.statistics[i].view()));
  }
}

TEST_CASE("shards that do not fit are refused before the first sum") {
  ConvnetProgram program{joint(DType::f32)};
  Shards shards{program, DType::f32, 8};
  const auto communicator = make_local_communicator();
  const auto reductions = test::in_fixed_order(*communicator);
  const SumList none;  // so that a sum would be refused in other words
  const auto refused = [&](const JointBatch& batch, std::span<const GradientBuffer> gradients, const char* message) {
    DeclaredSums ranks{*reductions, none, Stream::host()};
    const auto call = [&] { program.model.joint()->train_jointly(batch, gradients, ranks); };
    CHECK_THROWS_AS(call(), InvalidArgument);
    CHECK_THROWS_WITH(call(), Catch::Contains(message));
  };
  refused({shards.group, std::span{shards.places}.first(4), 15}, shards.buffers,
          "5 shards with 4 places and 5 places for gradients");
  refused({shards.group, shards.places, 15}, std::span{shards.buffers}.first(1), "and 1 places for gradients");
  refused({{}, {}, 15}, {}, "0 shards with 0 places");
  refused({shards.group, shards.places, 14}, shards.buffers,
          "14 samples on all ranks, of which this one has 15; expected as many or more");
  std::vector<GradientBuffer> without = shards.buffers;
  without[4] = without[4].at(shards.gradients[4].view());
  refused({shards.group, shards.places, 15}, without, "for the statistics of a convnet, which are [14]");
  shards.group.batches[3].samples = 9;
  refused({shards.group, shards.places, 15}, shards.buffers, "9 samples in 8 rows");
}
