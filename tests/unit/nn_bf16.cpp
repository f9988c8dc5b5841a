// Models that compute in bf16: near those of f32, with the same bits wherever a shard is computed.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/input/batches.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/gpt.hpp"
#include "models/nn/mlp.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "text_support.hpp"

namespace lockstep::test::nn_bf16_cases {

using namespace lockstep::nn;

namespace {

constexpr std::int64_t side = 8, context = 9, vocabulary = 21;

using MakeModel = std::function<std::unique_ptr<Model>(Strategy&, Model::Precision, SharedKernels)>;

struct ModelCase {
  std::string name;
  MakeModel make;
};

MakeModel convnet(ConvnetOptions::BatchNorm norm, double dropout) {
  return [=](Strategy& strategy, Model::Precision precision, SharedKernels kernels) -> std::unique_ptr<Model> {
    const ConvnetOptions options{.height = side,
                                 .width = side,
                                 .filters = {4, 6},
                                 .hidden = 12,
                                 .batch_norm = norm,
                                 .dropout = dropout,
                                 .precision = precision};
    return std::make_unique<Convnet>(strategy, options, std::move(kernels));
  };
}

std::unique_ptr<Model> mlp(Strategy& strategy, Model::Precision precision, SharedKernels kernels) {
  const MlpOptions options{.inputs = side * side, .hidden = {33, 20}, .precision = precision};
  return std::make_unique<Mlp>(strategy, options, std::move(kernels));
}

std::unique_ptr<Model> gpt(Strategy& strategy, Model::Precision precision, SharedKernels kernels) {
  const GptOptions options{
      .layers = 2, .heads = 2, .width = 16, .context = context, .vocabulary = vocabulary, .precision = precision};
  return std::make_unique<Gpt>(strategy, options, std::move(kernels));
}

std::vector<ModelCase> models() {
  return {{"mlp", mlp},
          {"convnet", convnet(ConvnetOptions::BatchNorm::none, 0)},
          {"convnet with batch norm and dropout", convnet(ConvnetOptions::BatchNorm::per_shard, 0.25)},
          {"gpt", gpt}};
}

/// A model on one replica.
struct Program {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  std::unique_ptr<Model> model;
  Tensor statistics;

  Program(const ModelCase& of, Model::Precision precision, const SharedKernels& kernels)
      : model{of.make(strategy, precision, kernels)}, statistics{Tensor::zeros(DType::f32, {model->statistics()})} {
    strategy.seal();
  }

  GradientBuffer buffer() {
    return GradientBuffer{strategy.store(), model->variables()}.with_statistics(statistics.view());
  }
};

SampleBatch::Group batch_of(const Model& model, const std::vector<std::int64_t>& samples, std::int64_t capacity) {
  const auto shards = std::ssize(samples);
  const bool text = model.name() == "gpt";
  const auto make = [&](std::int64_t rows) {
    return text ? make_text_batch(rows, context) : make_batch(rows, side * side, DType::f32);
  };
  SampleBatch::Group group = make_batch_group(make(shards * capacity), shards);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    SampleBatch& own = group.batches[i];
    own.samples = samples[i];
    const auto first = static_cast<std::uint64_t>(i) * 1000;
    const RandomStream random{23, RandomStream::Purpose::initial_value, first};
    for (std::int64_t j = 0; j < own.inputs.count(); ++j) {
      const double number = random.uniform(static_cast<std::uint64_t>(j));
      const auto at = static_cast<std::size_t>(j);
      if (text)
        own.inputs.view().elements<std::int32_t>()[at] = static_cast<std::int32_t>(number * vocabulary);
      else
        own.inputs.view().elements<float>()[at] = static_cast<float>(number);
    }
    std::int32_t label = static_cast<std::int32_t>(i);
    for (std::int32_t& each : own.labels.view().elements<std::int32_t>()) each = label++ % 10;
  }
  return group;
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("a model in bf16 has nearly the loss and the gradient of one in f32, on every kernel") {
  for (const ModelCase& of : models())
    for (const SharedKernels& kernels : {reference(), automatic()}) {
      INFO(of.name << ", " << kernels->name());
      Program full{of, Model::Precision::full, kernels}, narrow{of, Model::Precision::bf16, kernels};
      const SampleBatch::Group group = batch_of(*full.model, {7, 5}, 8);
      const std::vector<Model::ShardPlace> places{{}, {.first_sample = 7}};
      const GradientBuffer expected = full.buffer(), found = narrow.buffer();
      const ops::Kernels::BatchLoss loss = full.model->train_shards(group, places, expected);
      const ops::Kernels::BatchLoss rounded = narrow.model->train_shards(group, places, found);
      CHECK(rounded.loss_sum != loss.loss_sum);
      CHECK(std::abs(rounded.loss_sum - loss.loss_sum) < loss.loss_sum * 0x1p-8);
      CHECK(found.dtype() == DType::f32);
      auto distance = found.flat().to_vector<float>();
      const auto wanted = expected.flat().to_vector<float>();
      for (std::size_t i = 0; i < distance.size(); ++i) distance[i] -= wanted[i];
      // A rounding is off by 2^-9 at most, and a gradient has passed some ten. Where a sum near zero changes its sign,
      // ReLU lets another gradient through.
      CHECK(norm(distance) < norm(wanted) * 0x1p-4);
      CHECK(std::abs(narrow.model->evaluate_shard(group.batches[0]).loss_sum -
                     full.model->evaluate_shard(group.batches[0]).loss_sum) < loss.loss_sum * 0x1p-8);
    }
}

TEST_CASE("shards in bf16 have the same bits together, alone, and by a worker") {
  for (const ModelCase& of : models()) {
    INFO(of.name);
    Program program{of, Model::Precision::bf16, automatic()};
    const SampleBatch::Group group = batch_of(*program.model, {8, 8, 3, 0}, 8);
    const std::vector<Model::ShardPlace> places{{}, {.first_sample = 8}, {.first_sample = 16}, {.first_sample = 19}};
    const GradientBuffer buffer = program.buffer();
    (void)program.model->train_shards(group, places, buffer);
    const Tensor together = Tensor::on_host(buffer.flat());

    FixedOrderAccumulator sum{DType::f32, buffer.count()};
    const std::unique_ptr<Model> worker = program.model->make_worker();
    REQUIRE(worker);
    for (std::size_t i = 0; i < places.size(); ++i) {
      Model& model = i % 2 == 0 ? *program.model : *worker;
      (void)model.train_shard(group.batches[i], places[i], buffer);
      copy(buffer.flat(), sum.next());
      sum.push();
    }
    const Tensor alone = Tensor::zeros(DType::f32, {buffer.count()});
    sum.finish(alone.view());
    CHECK(same_bits(alone.view(), together.view()));
  }
}

TEST_CASE("a model in bf16 sees what was assigned to its variables") {
  for (const ModelCase& of : models()) {
    INFO(of.name);
    Program program{of, Model::Precision::bf16, automatic()}, other{of, Model::Precision::bf16, automatic()};
    const SampleBatch::Group group = batch_of(*program.model, {4}, 4);
    const double before = program.model->evaluate_shard(group.batches[0]).loss_sum;
    for (std::size_t i = 0; i < program.model->variables().size(); ++i) {
      const Variable &to = program.model->variables()[i], &from = other.model->variables()[i];
      fill_noise(from.local(), i);
      to.assign(Tensor::on_host(from.local()));
    }
    const double after = program.model->evaluate_shard(group.batches[0]).loss_sum;
    CHECK(after != before);
    CHECK(after == other.model->evaluate_shard(group.batches[0]).loss_sum);
  }
}

TEST_CASE("batch norm in bf16 over the whole batch is that of its only shard") {
  const auto train = [](ConvnetOptions::BatchNorm kind) {
    Program program{{"convnet", convnet(kind, 0)}, Model::Precision::bf16, automatic()};
    const SampleBatch::Group group = batch_of(*program.model, {6}, 8);
    const GradientBuffer buffer = program.buffer();
    const double loss = program.model->train_shard(group.batches[0], {}, buffer).loss_sum;
    return std::pair{loss, Tensor::on_host(buffer.flat())};
  };
  const auto [loss, gradient] = train(ConvnetOptions::BatchNorm::whole_batch);
  const auto [expected_loss, expected] = train(ConvnetOptions::BatchNorm::per_shard);
  CHECK(loss == expected_loss);
  CHECK(same_bits(gradient.view(), expected.view()));
  CHECK(norm(gradient.view().elements<float>()) > 0);
}

TEST_CASE("a model in bf16 with variables of f64 is refused before anything is created") {
  const std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  CHECK_THROWS_WITH((Mlp{strategy, {.dtype = DType::f64, .precision = Model::Precision::bf16}, reference()}),
                    "an mlp of f64 with activations of bf16 is not supported; expected f32");
  CHECK_THROWS_WITH((Convnet{strategy, {.dtype = DType::f64, .precision = Model::Precision::bf16}, reference()}),
                    "a convnet of f64 with activations of bf16 is not supported; expected f32");
  CHECK_THROWS_WITH((Gpt{strategy, {.dtype = DType::f64, .precision = Model::Precision::bf16}, reference()}),
                    "a gpt of f64 with activations of bf16 is not supported; expected f32");
  CHECK(inside(strategy.store()).variables().empty());
}

}  // namespace lockstep::test::nn_bf16_cases
