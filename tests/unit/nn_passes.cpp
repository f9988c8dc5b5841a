// What models say of the passes that they take.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/nn/models.hpp>

#include "gpt_support.hpp"
#include "models/ops/reference/reference.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::nn;

namespace {

using Events = std::vector<std::string>;

/// Says when a loss has been computed: what stands between the passes.
class LossKernels final : public ops::ReferenceKernels {
 public:
  explicit LossKernels(Events& events) : events_{events} {}

  using ReferenceKernels::start_softmax_cross_entropy;
  ops::Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                     std::int64_t samples, const Matrix& d_logits) const override {
    events_.emplace_back("loss");
    return ReferenceKernels::start_softmax_cross_entropy(logits, labels, samples, d_logits);
  }

 private:
  Events& events_;
};

/// A model that says what it does on a strategy of one replica, and a sample for it.
struct PassRun {
  Events events;
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  std::unique_ptr<Model> model;
  SampleBatch sample;

  explicit PassRun(const std::string& name) {
    const auto kernels = std::make_shared<LossKernels>(events);
    const DType dtype = DType::f64;
    const Sizes sizes{.features = 49, .classes = 3};
    sample = samples_from(0, 1, 2, dtype, sizes);
    if (name == "mlp") {
      model = make_mlp(strategy, {.inputs = 49, .hidden = {4}, .classes = 3, .dtype = dtype}, kernels);
    } else if (name == "convnet") {
      model = make_convnet(
          strategy, {.height = 7, .width = 7, .filters = {2, 2}, .hidden = 4, .classes = 3, .dtype = dtype}, kernels);
    } else {
      model = make_gpt(strategy, small_gpt(dtype), kernels);
      sample = text_from(0, 1, 2);
    }
    strategy.seal();
    model->observe_passes(
        [this](Model::Pass pass) { events.emplace_back(pass == Model::Pass::forward ? "forward" : "backward"); });
  }

  void train() { model->train_shard(sample, {}, GradientBuffer{strategy.store(), model->variables()}); }
};

}  // namespace

TEST_CASE("a model says when its passes begin: the forward one first of all, the backward one behind the loss") {
  const std::string name = GENERATE("mlp", "convnet", "gpt");
  CAPTURE(name);
  PassRun program{name};
  REQUIRE(program.model->name() == name);
  program.train();
  program.train();
  CHECK(program.events == Events{"forward", "loss", "backward", "forward", "loss", "backward"});
}

TEST_CASE("evaluation is no pass of training, and an observer can be taken away") {
  const std::string name = GENERATE("mlp", "convnet", "gpt");
  CAPTURE(name);
  PassRun program{name};
  program.model->evaluate_shard(program.sample);
  CHECK(program.events.empty());
  program.model->observe_passes({});
  program.train();
  CHECK(program.events == Events{"loss"});
}
