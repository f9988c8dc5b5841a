// When the gradient of a variable is ready, to be sent while the backward pass continues.
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "gpt_support.hpp"
#include "models/input/batches.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/mlp.hpp"
#include "models/nn/shard_sums.hpp"
#include "nn_support.hpp"
#include "odd_kernels.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

/// Keeps each gradient as it was when it was ready.
class Kept final : public ReadyListener {
 public:
  explicit Kept(const GradientBuffer& buffer) : buffer_{buffer}, gradients_(buffer.variables().size()) {}

  void on_ready(std::size_t variable) override {
    CHECK(gradients_[variable].count() == 0);
    gradients_[variable] = Tensor::copy_of(buffer_.of(buffer_.variables()[variable]));
    order.push_back(variable);
  }

  /// That all are ready, each with the bits that it has now.
  void require_final() const {
    REQUIRE(order.size() == gradients_.size());
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      CHECK(same_bits(gradients_[i].view(), buffer_.of(buffer_.variables()[i])));
  }

  std::vector<std::size_t> order;

 private:
  GradientBuffer buffer_;
  std::vector<Tensor> gradients_;
};

/// Trains shards of two samples and an empty one after them.
template <class Run, class ShardOf>
std::vector<std::size_t> order_of(Run& program, std::int64_t shards, ShardOf&& shard_of) {
  SampleBatch::Group group;
  for (std::int64_t i = 0; i < shards; ++i) group.batches.push_back(shard_of(2 * i, i + 1 < shards || i == 0 ? 2 : 0));
  const std::vector<Model::ShardPlace> places(group.batches.size());
  const GradientBuffer buffer = program.buffer();
  Kept kept{buffer};
  program.model.Model::train_shards(group, places, inside(buffer).reporting_to(kept));
  kept.require_final();
  return kept.order;
}

template <class M>
struct ReadyRun {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  M model;
  Tensor statistics;

  template <class Options>
  explicit ReadyRun(const Options& options, SharedKernels kernels = reference())
      : model{strategy, options, std::move(kernels)}, statistics{Tensor::zeros(DType::f32, {model.statistics()})} {
    strategy.seal();
  }
  GradientBuffer buffer() {
    return GradientBuffer{strategy.store(), model.variables()}.with_statistics(statistics.view());
  }
};

/// A model of two variables, in memory the second first, that says what it is told to.
class Saying final : public Model {
 public:
  explicit Saying(Strategy& strategy) {
    for (const char* const name : {"a", "b"})
      variables_.push_back(strategy.create_variable({.name = name}, [] { return Tensor::zeros(DType::f32, {1}); }));
    strategy.seal();
  }
  std::string_view name() const override { return "saying"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch&, const Model::ShardPlace&, const GradientBuffer& gradients) override {
    for (const Variable& variable : variables_) fill(gradients.of(variable), 1);
    for (const std::size_t each : says) gradients.ready(variables_[each]);
    return {};
  }
  BatchLoss evaluate_shard(const SampleBatch&) override { return {}; }

  std::vector<std::size_t> says;

 private:
  std::vector<Variable> variables_;
};

}  // namespace

TEST_CASE("each gradient is ready once, when it is the sum of all shards, and the last layer's first") {
  for (const std::int64_t shards : {1, 2, 3, 4, 5, 7}) {
    CAPTURE(shards);
    for (const SharedKernels& kernels : {reference(), SharedKernels{std::make_shared<ops::TermwiseKernels>()}}) {
      ReadyRun<Mlp> program{MlpOptions{.inputs = 5, .hidden = {4, 3}, .classes = 3, .seed = 3}, kernels};
      const SampleBatch::Group group =
          make_batch_group(samples_from(0, 2 * shards, 2 * shards, DType::f32, {5, 3}), shards);
      const std::vector<Model::ShardPlace> places(group.batches.size());
      const GradientBuffer buffer = program.buffer();
      Kept kept{buffer};
      program.model.train_shards(group, places, inside(buffer).reporting_to(kept));
      kept.require_final();
      CHECK(kept.order.front() < 2);
      CHECK(kept.order.back() >= 4);
    }
    ReadyRun<Convnet> convnet{ConvnetOptions{.height = 6,
                                             .width = 6,
                                             .filters = {2, 3},
                                             .hidden = 4,
                                             .classes = 3,
                                             .batch_norm = ConvnetOptions::BatchNorm::per_shard}};
    order_of(convnet, shards, [](std::int64_t first, std::int64_t samples) {
      return samples_from(first, samples, 2, DType::f32, {.features = 36, .classes = 3});
    });
    // The tokens' vectors are used by the first layer and the last, and so ready last.
    GptProgram gpt{DType::f32};
    const auto tokens =
        order_of(gpt, shards, [](std::int64_t first, std::int64_t samples) { return text_from(first, samples, 2); });
    // An empty shard is ready in the order of memory.
    if (shards == 1) CHECK(gpt.buffer().variables()[tokens[tokens.size() - 2]].name() == "token_embedding");
  }
}

TEST_CASE("a pass may leave unsaid what is ready, and may not say it twice") {
  const std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Saying model{strategy};
  const GradientBuffer buffer{strategy.store(), model.variables()};
  SampleBatch::Group shards;
  shards.batches.resize(2, samples_from(0, 1, 1, DType::f32, {5, 3}));
  const std::vector<Model::ShardPlace> places(2);
  for (const auto& [says, order] : std::vector<std::pair<std::vector<std::size_t>, std::vector<std::size_t>>>{
           {{}, {0, 1}}, {{0}, {1, 0}}, {{0, 1}, {1, 0}}, {{1, 0}, {0, 1}}}) {
    model.says = says;
    Kept kept{buffer};
    model.train_shards(shards, places, inside(buffer).reporting_to(kept));
    kept.require_final();
    CHECK(kept.order == order);
    CHECK(buffer.flat().to_vector<float>()[0] == 2);
  }
  model.says = {1, 1};
  CHECK_THROWS_WITH(model.train_shards(shards, places, buffer),
                    "the gradient of variable 'b' was ready twice in a backward pass");
}
