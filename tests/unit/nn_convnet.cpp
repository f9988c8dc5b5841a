// The convnet: its variables, gradients, shards and refusals.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "convnet_support.hpp"
#include "core/base/element_count.hpp"
#include "models/nn/convnet.hpp"
#include "models/ops/image_kernels.hpp"
#include "models/ops/reference/reference.hpp"
#include "sync/group/local_group.hpp"
#include "sync/reduce/fixed_order_sum.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

/// With and without batch norm, with and without dropout.
std::vector<ConvnetOptions> all_of(DType dtype) {
  return {small_convnet(dtype), small_convnet(dtype, ConvnetOptions::BatchNorm::per_shard),
          small_convnet(dtype, ConvnetOptions::BatchNorm::none, 0.4),
          small_convnet(dtype, ConvnetOptions::BatchNorm::per_shard, 0.4)};
}

/// For images in colour.
ConvnetOptions colour(DType dtype) {
  ConvnetOptions options = small_convnet(dtype, ConvnetOptions::BatchNorm::per_shard);
  options.channels = 3;
  return options;
}

/// For the convnet of these options, whatever its channels.
SampleBatch samples_for(const ConvnetOptions& options, std::int64_t samples, std::int64_t capacity) {
  return lockstep::nn::samples_from(0, samples, capacity, options.dtype,
                                    {.features = 72 * options.channels, .classes = 3});
}

std::string text(const ConvnetOptions& options) {
  return std::string{options.batch_norm == ConvnetOptions::BatchNorm::none ? "" : "batch norm, "} + "dropout " +
         std::to_string(options.dropout);
}

std::vector<std::string> variables_of(const Convnet& model) {
  std::vector<std::string> made;
  for (const Variable& variable : model.variables())
    made.push_back(std::string{variable.name()} + ' ' + describe(variable.shape()));
  return made;
}

}  // namespace

TEST_CASE("a convnet creates its variables layer by layer") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group), other = strategy_on(*group);
  const Convnet plain{strategy, {}, reference()};
  CHECK(plain.name() == "convnet");
  CHECK(plain.statistics() == 0);
  CHECK(plain.moving_averages().empty());
  CHECK(variables_of(plain) == std::vector<std::string>{"conv_0/weight [3, 3, 1, 32]", "conv_0/bias [32]",
                                                        "conv_1/weight [3, 3, 32, 64]", "conv_1/bias [64]",
                                                        "dense_0/weight [9216, 128]", "dense_0/bias [128]",
                                                        "dense_1/weight [128, 10]", "dense_1/bias [10]"});
  const Convnet normalised{other, small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard), reference()};
  CHECK(normalised.statistics() == 2 * (3 + 4));
  std::vector<std::string_view> averages;
  for (const SyncOnReadVariable& each : normalised.moving_averages()) averages.push_back(each.name());
  CHECK(averages == std::vector<std::string_view>{"batch_norm_0/moving_mean", "batch_norm_0/moving_variance",
                                                  "batch_norm_1/moving_mean", "batch_norm_1/moving_variance"});
  CHECK(variables_of(normalised) ==
        std::vector<std::string>{"conv_0/weight [3, 3, 1, 3]", "conv_0/bias [3]", "batch_norm_0/gamma [3]",
                                 "batch_norm_0/beta [3]", "conv_1/weight [3, 3, 3, 4]", "conv_1/bias [4]",
                                 "batch_norm_1/gamma [4]", "batch_norm_1/beta [4]", "dense_0/weight [16, 5]",
                                 "dense_0/bias [5]", "dense_1/weight [5, 3]", "dense_1/bias [3]"});
  for (const Variable& variable : normalised.variables()) CHECK(variable.trainable());
}

TEST_CASE("a convnet that cannot be is refused before anything is created") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const auto refused = [&](const ConvnetOptions& options, const char* message) {
    CHECK_THROWS_AS((Convnet{strategy, options, reference()}), InvalidArgument);
    CHECK_THROWS_WITH((Convnet{strategy, options, reference()}), Catch::Contains(message));
  };
  refused({.height = 5}, "images of 5 x 28; expected 6 x 6 or more");
  refused({.width = -1}, "images of 28 x -1");
  refused({.channels = 0}, "images of 0 channels; expected 1 or more");
  refused({.filters = {0, 64}}, "0 and 64 filters");
  refused({.hidden = 0}, "0 hidden units");
  refused({.classes = -2}, "-2 classes");
  refused({.dropout = 1}, "a dropout rate of 1");
  refused({.dtype = DType::i32}, "a convnet of i32");
  refused({.hidden = std::int64_t{1} << 62}, "");
  CHECK(inside(strategy.store()).variables().empty());
}

TEST_CASE("the gradients of a convnet agree with finite differences") {
  std::vector<ConvnetOptions> all = all_of(DType::f64);
  all.push_back(colour(DType::f64));
  for (const ConvnetOptions& options : all) {
    CAPTURE(text(options), options.channels);
    ConvnetProgram program{options};
    const SampleBatch batch = samples_for(options, 6, 8);
    const Model::ShardPlace place{.step = 5, .first_sample = 11};
    const GradientBuffer buffer = program.buffer();
    program.model.train_shard(batch, place, buffer);
    // Differences need other memory: each loss overwrites the gradients.
    const Tensor other = Tensor::zeros(DType::f64, {buffer.count()});
    const auto loss = [&] {
      return program.model.train_shard(batch, place, buffer.at(other.view()).with_statistics(buffer.statistics()))
          .loss_sum;
    };
    // A step h of 1e-6: third derivatives count for 1e-12 of themselves, and the rounding of the loss for some 1e-15 *
    // 10 / h = 1e-8. No relu or maximum may change sides within h; with these data none does.
    const int nonzero =
        check_against_differences(program.model.variables(), buffer, loss, {.step = 1e-6, .margin = 3e-8});
    CHECK(nonzero > 200);  // of 260 and more: not every path is dead
  }
}

TEST_CASE("rows of padding change neither the gradients nor the statistics of a convnet") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const ConvnetOptions& options : all_of(dtype)) {
      CAPTURE(name_of(dtype), text(options));
      ConvnetProgram program{options};
      const GradientBuffer buffer = program.buffer();
      const Model::ShardPlace place{.step = 1, .first_sample = 4};
      const ops::Kernels::BatchLoss tight = program.model.train_shard(images_from(0, 5, 5, dtype), place, buffer);
      const Tensor expected = Tensor::copy_of(buffer.flat());
      const Tensor statistics = Tensor::copy_of(buffer.statistics());
      // The reference adds in the order of the rows, so here even the bits are the same.
      const ops::Kernels::BatchLoss padded = program.model.train_shard(images_from(0, 5, 16, dtype), place, buffer);
      CHECK(padded.loss_sum == tight.loss_sum);
      CHECK(padded.correct == tight.correct);
      CHECK(same_bits(buffer.flat(), expected.view()));
      CHECK(same_bits(buffer.statistics(), statistics.view()));
    }
}

TEST_CASE("a shard without samples gives a convnet positive zeros") {
  for (const ConvnetOptions& options : all_of(DType::f32)) {
    ConvnetProgram program{options, automatic()};
    const GradientBuffer buffer = program.buffer();
    for (const Variable& variable : program.model.variables()) fill(buffer.of(variable), -1);
    fill(buffer.statistics(), -1);
    const SampleBatch empty = images_from(0, 0, 16, DType::f32);
    const ops::Kernels::BatchLoss result = program.model.train_shard(empty, {}, buffer);
    CHECK(result.loss_sum == 0);
    CHECK(result.correct == 0);
    CHECK(same_bits(buffer.flat(), Tensor::zeros(DType::f32, {buffer.count()}).view()));
    CHECK(same_bits(buffer.statistics(), Tensor::zeros(DType::f32, {program.model.statistics()}).view()));
    CHECK(program.model.evaluate_shard(empty).loss_sum == 0);
  }
}

TEST_CASE("a shard's bits do not depend on what the convnet did before") {
  for (const SharedKernels& kernels : {reference(), automatic()})
    for (const ConvnetOptions& options : all_of(DType::f32)) {
      CAPTURE(kernels->name(), text(options));
      ConvnetProgram program{options, kernels};
      const GradientBuffer buffer = program.buffer();
      const SampleBatch shard = images_from(3, 13, 16, DType::f32);
      const Model::ShardPlace place{.step = 2, .first_sample = 3};
      const ops::Kernels::BatchLoss first = program.model.train_shard(shard, place, buffer);
      const Tensor expected = Tensor::copy_of(buffer.flat());
      const Tensor statistics = Tensor::copy_of(buffer.statistics());
      const double evaluated = program.model.evaluate_shard(shard).loss_sum;

      program.model.train_shard(images_from(50, 16, 16, DType::f32), {.step = 3}, buffer);
      program.model.evaluate_shard(images_from(90, 40, 64, DType::f32));  // another capacity, larger
      program.model.evaluate_shard(images_from(90, 2, 8, DType::f32));    // and smaller
      for (const Variable& variable : program.model.variables())
        fill(buffer.of(variable), std::numeric_limits<double>::quiet_NaN());
      fill(buffer.statistics(), std::numeric_limits<double>::quiet_NaN());
      const ops::Kernels::BatchLoss again = program.model.train_shard(shard, place, buffer);
      CHECK(again.loss_sum == first.loss_sum);
      CHECK(again.correct == first.correct);
      CHECK(same_bits(buffer.flat(), expected.view()));
      CHECK(same_bits(buffer.statistics(), statistics.view()));
      CHECK(program.model.evaluate_shard(shard).loss_sum == evaluated);
    }
}

TEST_CASE("a batch has the same gradient and the same dropout however it is cut into shards") {
  for (const double dropout : {0.0, 0.4}) {
    ConvnetProgram program{small_convnet(DType::f64, ConvnetOptions::BatchNorm::none, dropout)};
    // Sums of up to 21 * 42 terms of size 1, rounded to 2^-53 each, in two orders.
    check_shards_add_up(
        program.model, program.buffer(), 9, images_from(0, 21, 24, DType::f64),
        [](std::int64_t first, std::int64_t samples) { return images_from(first, samples, 16, DType::f64); }, 1e-12);
  }
}

TEST_CASE("dropout is another one in another step, for other samples, and for nobody in evaluation") {
  ConvnetProgram plain{small_convnet(DType::f64)},
      dropping{small_convnet(DType::f64, ConvnetOptions::BatchNorm::none, 0.4)};
  const SampleBatch batch = images_from(0, 6, 8, DType::f64);
  const auto loss = [&](const Model::ShardPlace& place) {
    return dropping.model.train_shard(batch, place, dropping.buffer()).loss_sum;
  };
  const double first = loss({.step = 1});
  CHECK(loss({.step = 1}) == first);
  CHECK(loss({.step = 2}) != first);
  CHECK(loss({.step = 1, .first_sample = 1}) != first);
  CHECK(first != plain.model.evaluate_shard(batch).loss_sum);
  CHECK(dropping.model.evaluate_shard(batch).loss_sum == plain.model.evaluate_shard(batch).loss_sum);
  CHECK(plain.model.train_shard(batch, {.step = 1}, plain.buffer()).loss_sum ==
        plain.model.evaluate_shard(batch).loss_sum);
}

TEST_CASE("moving averages come to the statistics that every step has, and an evaluation to the loss of training") {
  ConvnetProgram program{small_convnet(DType::f64, ConvnetOptions::BatchNorm::per_shard)};
  const SampleBatch batch = images_from(0, 6, 8, DType::f64);
  const GradientBuffer buffer = program.buffer();
  const double trained = program.model.train_shard(batch, {}, buffer).loss_sum;
  CHECK(std::abs(program.model.evaluate_shard(batch).loss_sum - trained) > 1e-3);
  // What the averages began with has shrunk to 0.9^400, below 1e-18.
  for (int step = 0; step < 400; ++step) program.model.absorb_statistics(buffer.statistics(), 6);
  CHECK(program.model.evaluate_shard(batch).loss_sum == Approx(trained).epsilon(1e-12));
}

TEST_CASE("the first step's moving averages are a tenth of its statistics, each sample weighing the same") {
  ConvnetProgram program{small_convnet(DType::f64, ConvnetOptions::BatchNorm::per_shard)};
  const auto moving = [&] {
    std::vector<double> all;
    for (const auto& state : inside(program.strategy.store()).variables())
      if (state->synchronization == Variable::Synchronization::on_read)
        for (const double x :
             in_double(state->segment->values.view().slice(state->offset, element_count(state->shape))))
          all.push_back(x);
    return all;
  };
  const std::vector<double> before = moving();
  const GradientBuffer buffer = program.buffer();
  std::vector<double> total(14);
  for (const auto& [first, samples] : {std::pair{0, 5}, std::pair{5, 2}, std::pair{7, 0}}) {
    program.model.train_shard(images_from(first, samples, 8, DType::f64), {}, buffer);
    for (std::size_t i = 0; i < 14; ++i) total[i] += in_double(buffer.statistics())[i];
  }
  program.model.absorb_statistics(Tensor::zeros(DType::f64, {14}).view(), 0);
  CHECK(moving() == before);
  program.model.absorb_statistics(Tensor::from(total, {14}).view(), 7);
  // In memory the last variable created is the first: variances and means of the second layer, then of the first.
  const std::vector<double> after = moving();
  for (std::size_t i = 0; i < 14; ++i) CHECK(after[i] == Approx(0.9 * before[i] + 0.1 * (total[i] / 7)).epsilon(1e-15));
}

TEST_CASE("moving averages have the same bits on any number of ranks that divides the shards") {
  std::vector<Tensor> shards;
  ConvnetProgram program{small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard), automatic()};
  const GradientBuffer buffer = program.buffer();
  for (std::int64_t shard = 0; shard < 8; ++shard) {
    program.model.train_shard(images_from(3 * shard, shard == 7 ? 0 : 3, 16, DType::f32), {}, buffer);
    shards.push_back(Tensor::copy_of(buffer.statistics()));
  }
  const auto averages = [&](std::size_t ranks) {
    const std::size_t each = 8 / ranks;
    const Tensor of_ranks = Tensor::zeros(DType::f32, {static_cast<std::int64_t>(ranks) * 14});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      FixedOrderAccumulator sum{DType::f32, 14};
      for (std::size_t shard = rank * each; shard < (rank + 1) * each; ++shard) {
        copy(shards[shard].view(), sum.next());
        sum.push();
      }
      sum.finish(of_ranks.view().slice(static_cast<std::int64_t>(rank) * 14, 14));
    }
    const Tensor total = Tensor::zeros(DType::f32, {14});
    fixed_order_sum(of_ranks.view(), static_cast<int>(ranks), total.view());
    ConvnetProgram fresh{small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard), automatic()};
    fresh.model.absorb_statistics(total.view(), 21);
    return fresh.model.evaluate_shard(images_from(0, 16, 16, DType::f32)).loss_sum;
  };
  const double alone = averages(1);
  for (const std::size_t ranks : {2, 4, 8}) CHECK(averages(ranks) == alone);
}

TEST_CASE("a convnet of f32 is close to one of f64, on every kernel") {
  const auto all = [](DType dtype) {
    std::vector<ConvnetOptions> options = all_of(dtype);
    options.push_back(colour(dtype));
    return options;
  };
  for (std::size_t which = 0; which < 5; ++which) {
    const ConvnetOptions options = all(DType::f64)[which], in_f32 = all(DType::f32)[which];
    ConvnetProgram wide{options};
    const GradientBuffer exact = wide.buffer();
    const ops::Kernels::BatchLoss expected = wide.model.train_shard(samples_for(options, 20, 32), {}, exact);
    for (const SharedKernels& kernels : {reference(), automatic()}) {
      CAPTURE(which, kernels->name());
      ConvnetProgram narrow{in_f32, kernels};
      const GradientBuffer buffer = narrow.buffer();
      const ops::Kernels::BatchLoss result = narrow.model.train_shard(samples_for(in_f32, 20, 32), {}, buffer);
      CHECK(result.loss_sum == Approx(expected.loss_sum).epsilon(1e-6));
      CHECK(result.correct == expected.correct);
      // Five layers of sums of up to 20 * 42 terms of size 1, each rounded to 2^-24.
      for (std::size_t v = 0; v < wide.model.variables().size(); ++v) {
        const auto found = in_double(buffer.of(narrow.model.variables()[v]));
        const auto truth = in_double(exact.of(wide.model.variables()[v]));
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(truth[i]).epsilon(0).margin(1e-4));
      }
    }
  }
}

TEST_CASE("a shard that is not the convnet's is refused, and nothing is written") {
  ConvnetProgram program{small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard, 0.4)};
  const GradientBuffer buffer = program.buffer();
  fill(buffer.flat(), 7);
  fill(buffer.statistics(), 7);
  const Tensor before = Tensor::copy_of(buffer.flat()), statistics = Tensor::copy_of(buffer.statistics());
  const auto refused = [&](const SampleBatch& batch, const char* message) {
    CHECK_THROWS_WITH(program.model.train_shard(batch, {}, buffer), Catch::Contains(message));
    CHECK_THROWS_AS(program.model.evaluate_shard(batch), InvalidArgument);
  };
  const SampleBatch good = images_from(0, 4, 4, DType::f32);
  refused(images_from(0, 4, 4, DType::f64), "f64[4, 72] for a convnet of f32[rows, 72]");
  refused(make_batch(4, 73, DType::f32), "f32[4, 73]");
  refused({good.inputs, Tensor::zeros(DType::i32, {3}), 3}, "i32[3]; expected i32[4]");
  refused({good.inputs, good.labels, 5}, "5 samples in 4 rows");
  refused({good.inputs, Tensor::from({0, 1, 3, 2}, {4}), 4}, "label 3");
  CHECK_THROWS_WITH(program.model.train_shard(good, {.step = -1}, buffer), Catch::Contains("step -1"));
  const Tensor other = Tensor::zeros(DType::f32, {buffer.count()});
  CHECK_THROWS_AS(program.model.train_shard(good, {}, buffer.at(other.view())), InvalidArgument);
  CHECK_THROWS_WITH(program.model.train_shard(good, {}, buffer.at(other.view())),
                    "a place f32[0] for the statistics of a convnet, which are [14]");
  CHECK(same_bits(buffer.flat(), before.view()));
  CHECK(same_bits(buffer.statistics(), statistics.view()));

  CHECK_THROWS_WITH(program.model.absorb_statistics(Tensor::zeros(DType::f32, {13}).view(), 1),
                    "statistics f32[13] for a convnet, whose are f32[14]");
  CHECK_THROWS_AS(program.model.absorb_statistics(Tensor::zeros(DType::f64, {14}).view(), 1), InvalidArgument);
  CHECK_THROWS_WITH(program.model.absorb_statistics(buffer.statistics(), -1),
                    "statistics of -1 samples; expected 0 or more");
}
