// Shards that several threads of a rank compute: the bits of one, whatever the model.
#include <algorithm>
#include <array>
#include <cfenv>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "convnet_support.hpp"
#include "gpt_support.hpp"
#include "models/fit/shard_threads.hpp"
#include "models/input/batches.hpp"
#include "models/nn/mlp.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;
using BatchLoss = ops::Kernels::BatchLoss;

namespace {

constexpr std::int64_t rows_of_shard = 3;

/// Eight shards of up to three of the 19 samples: the seventh has one, the last none.
SampleBatch::Group nineteen(const std::function<SampleBatch(std::int64_t first, std::int64_t samples)>& shard_of) {
  const auto samples_in = [](std::int64_t shard) { return std::clamp<std::int64_t>(19 - 3 * shard, 0, 3); };
  const SampleBatch like = shard_of(0, 0);
  const auto wide = [](const Tensor& rows) {
    Shape shape = rows.shape();
    shape[0] *= 8;
    return Tensor::zeros(rows.dtype(), shape);
  };
  SampleBatch::Group group = make_batch_group({wide(like.inputs), wide(like.labels)}, 8);
  for (std::int64_t i = 0; i < 8; ++i) {
    SampleBatch& shard = group.batches[static_cast<std::size_t>(i)];
    shard.samples = samples_in(i);
    const SampleBatch filled = shard_of(3 * i, shard.samples);
    copy(filled.inputs.view(), shard.inputs.view());
    copy(filled.labels.view(), shard.labels.view());
  }
  return group;
}

std::vector<Model::ShardPlace> places() {
  std::vector<Model::ShardPlace> all;
  for (std::int64_t i = 0; i < 8; ++i) all.push_back({.step = 5, .first_sample = 3 * i});
  return all;
}

struct Made {
  BatchLoss losses;
  Tensor gradients, statistics;
  std::vector<BatchLoss> evaluated;
};

Made made_by(const SampleBatch::Group& group, const GradientBuffer& buffer,
             const std::function<BatchLoss(std::span<const Model::ShardPlace>)>& train,
             const std::function<std::vector<BatchLoss>()>& evaluate) {
  for (const Variable& variable : buffer.variables())
    fill(buffer.of(variable), std::numeric_limits<double>::quiet_NaN());
  const std::vector<Model::ShardPlace> of_shards = places();
  REQUIRE(of_shards.size() == group.batches.size());
  const BatchLoss losses = train(of_shards);
  return {losses, Tensor::copy_of(buffer.flat()), Tensor::copy_of(buffer.statistics()), evaluate()};
}

/// What one thread makes of the shards, and what several do.
void check_bits(Strategy& strategy, Model& model, const GradientBuffer& buffer, const SampleBatch::Group& group) {
  const Made expected = made_by(
      group, buffer, [&](std::span<const Model::ShardPlace> of) { return model.train_shards(group, of, buffer); },
      [&] {
        std::vector<BatchLoss> results;
        for (const SampleBatch& shard : group.batches) results.push_back(model.evaluate_shard(shard));
        return results;
      });
  for (const int count : {2, 4, 8}) {
    CAPTURE(count);
    std::fesetround(FE_UPWARD);  // as another library may leave it, on the thread that makes others
    const auto threads = ShardThreads::make(strategy, model, count, 8);
    std::fesetround(FE_TONEAREST);
    REQUIRE(threads);
    REQUIRE(threads->count() == count);
    for (const int step : {0, 1}) {  // which uses the memory of the first
      CAPTURE(step);
      const Made found = made_by(
          group, buffer,
          [&](std::span<const Model::ShardPlace> of) { return threads->train_shards(group, of, buffer); },
          [&] { return threads->evaluate_shards(group.batches); });
      CHECK(same_bits(found.gradients.view(), expected.gradients.view()));
      CHECK(same_bits(found.statistics.view(), expected.statistics.view()));
      CHECK(found.losses.loss_sum == expected.losses.loss_sum);
      CHECK(found.losses.correct == expected.losses.correct);
      CHECK(found.losses.weight.value_or(19) == expected.losses.weight.value_or(19));
      for (std::size_t i = 0; i < 8; ++i) {
        CHECK(found.evaluated[i].loss_sum == expected.evaluated[i].loss_sum);
        CHECK(found.evaluated[i].correct == expected.evaluated[i].correct);
      }
    }
  }
}

/// A model of one number, with workers, that does with each shard what the test says.
class ModelOf final : public Model {
 public:
  using Body = std::function<void(const Model::ShardPlace&)>;

  ModelOf(Strategy& strategy, Body body)
      : ModelOf{{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {1}); })},
                std::move(body)} {}

  std::string_view name() const override { return "scripted"; }
  std::span<const Variable> variables() const override { return variables_; }
  std::unique_ptr<Model> make_worker() const override {
    return std::unique_ptr<ModelOf>{new ModelOf{variables_, body_}};
  }
  BatchLoss train_shard(const SampleBatch&, const Model::ShardPlace& place, const GradientBuffer& gradients) override {
    body_(place);
    set(gradients.of(variables_[0]), 0, static_cast<double>(place.first_sample));
    return {.loss_sum = 1, .correct = 1, .weight = static_cast<double>(place.first_sample) / 2};
  }
  BatchLoss evaluate_shard(const SampleBatch&) override { return {}; }

 private:
  ModelOf(std::vector<Variable> variables, Body body) : variables_{std::move(variables)}, body_{std::move(body)} {}

  std::vector<Variable> variables_;
  Body body_;
};

/// It computes eight shards on so many threads.
struct ScriptedProgram {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  ModelOf model;
  std::unique_ptr<ShardThreads> threads;
  SampleBatch::Group shards = make_batch_group(make_batch(8, 1, DType::f64), 8);

  ScriptedProgram(int count, ModelOf::Body body) : model{strategy, std::move(body)} {
    strategy.seal();
    threads = ShardThreads::make(strategy, model, count, 8);
  }

  BatchLoss train() { return threads->train_shards(shards, places(), buffer()); }
  GradientBuffer buffer() { return {strategy.store(), model.variables()}; }
};

}  // namespace

TEST_CASE("an mlp has the same bits on 1, 2, 4 and 8 threads") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Mlp model{strategy, {.inputs = 40, .hidden = {33, 20}, .classes = 10, .seed = 3}, automatic()};
  strategy.seal();
  const GradientBuffer buffer{strategy.store(), model.variables()};
  check_bits(strategy, model, buffer, nineteen([](std::int64_t first, std::int64_t samples) {
               return samples_from(first, samples, rows_of_shard, DType::f32, {40, 10});
             }));
}

TEST_CASE("a convnet with batch norm and dropout has the same bits on 1, 2, 4 and 8 threads") {
  ConvnetProgram program{small_convnet(DType::f32, ConvnetOptions::BatchNorm::per_shard, 0.4), automatic()};
  check_bits(program.strategy, program.model, program.buffer(), nineteen([](std::int64_t first, std::int64_t samples) {
               return images_from(first, samples, rows_of_shard, DType::f32);
             }));
}

TEST_CASE("a gpt has the same bits on 1, 2, 4 and 8 threads") {
  GptProgram program{DType::f32, automatic()};
  program.shake();
  check_bits(program.strategy, program.model, program.buffer(), nineteen([](std::int64_t first, std::int64_t samples) {
               return text_from(first, samples, rows_of_shard, small_gpt(DType::f32));
             }));
}

TEST_CASE("weights of labels are added up over threads") {
  ScriptedProgram program{4, [](const Model::ShardPlace&) {}};
  const BatchLoss losses = program.train();
  CHECK(losses.weight == 0.5 * 3 * 28);
  CHECK(losses.loss_sum == 8);
  CHECK(losses.correct == 8);
  CHECK(in_double(program.buffer().of(program.model.variables()[0])) == std::vector{3.0 * 28});
}

TEST_CASE("what shards throw on several threads is thrown once, by the first of them, and then they go on") {
  bool fails = true;
  ScriptedProgram program{4, [&](const Model::ShardPlace& place) {
                            if (fails && place.first_sample >= 3 * 3)
                              throw std::runtime_error{"shard at " + std::to_string(place.first_sample)};
                          }};
  CHECK_THROWS_WITH(program.train(), "shard at 9");
  fails = false;
  CHECK(program.train().loss_sum == 8);
}

TEST_CASE("threads work in the caller's context, where nothing can be done together") {
  std::array<ReplicaContext*, 2> seen{};
  ScriptedProgram program{2, [&](const Model::ShardPlace& place) {
                            seen[place.first_sample < 12 ? 0 : 1] = ReplicaContext::current();
                            if (place.first_sample == 21) (void)ReplicaContext::current()->all_reduce(ReduceOp::sum, 1);
                          }};
  program.strategy.run([&](ReplicaContext& context) {
    CHECK_THROWS_WITH(
        program.train(),
        Catch::Contains("in a shard that a thread computes: expected nothing that the ranks do together"));
    CHECK(seen == std::array{&context, &context});
  });
}

TEST_CASE("as many threads work as the largest power of two that the shards allow") {
  ScriptedProgram program{8, [](const Model::ShardPlace&) {}};
  const auto threads = [&](int wanted, std::int64_t shards) {
    const auto made = ShardThreads::make(program.strategy, program.model, wanted, shards);
    return made ? made->count() : 1;
  };
  CHECK(threads(1, 8) == 1);
  CHECK(threads(2, 8) == 2);
  CHECK(threads(3, 8) == 2);
  CHECK(threads(99, 8) == 8);
  CHECK(threads(4, 1) == 1);
  CHECK(threads(4, 6) == 1);  // 3 are no subtree
  program.group->job().forbid_threads();
  CHECK(threads(2, 8) == 1);
}
