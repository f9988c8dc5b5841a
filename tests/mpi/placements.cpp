// Variables that one rank alone updates: the same bytes as on every rank, also through a checkpoint.
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "core/base/element_count.hpp"
#include "mpi/shared_folder.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/variable_state.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr int variables = 5;

/// A training of five variables, of which two have as many rows as columns, whose gradients are not exact.
struct Training {
  explicit Training(ReplicateOptions::Placement placement) : placement{placement} {}

  EstimatorSpec call(int step, EstimatorSpec::Mode mode = EstimatorSpec::Mode::train) {
    std::vector<float> rows(static_cast<std::size_t>(ranks()));
    for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = 0.1F * static_cast<float>(row + 1 + step);
    return model(Tensor::from(rows, {ranks()}), std::nullopt, mode);
  }
  void train(int first, int last) {
    for (int step = first; step < last; ++step) call(step);
  }

  EstimatorSpec tower(Tower& tower, const Tensor& features) {
    std::vector<Tower::Gradient> gradients;
    const float x = features.to_vector<float>().at(0);
    for (int k = 0; k < variables; ++k) {
      const Shape shape = k % 2 ? Shape{k, k} : Shape{k + 3};
      std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = x / static_cast<float>(i + 3);
      gradients.push_back({Tensor::from(values, shape), tower.variable({.name = "v" + std::to_string(k)},
                                                                       [&] { return Tensor::from(values, shape); })});
    }
    gradients[2].value = IndexedSlices{Tensor::from({x, x}, {2}), Tensor::from({INT64_C(4), INT64_C(1)}, {2}), {5}};
    TowerOptimizer optimizer{adam};
    if (tower.mode() == EstimatorSpec::Mode::train) optimizer.apply_gradients(tower, gradients);
    return {};
  }
  std::uint64_t digest() const { return weights_digest(model.variables()); }

  ReplicateOptions::Placement placement;
  std::shared_ptr<AdamW> adam = std::make_shared<AdamW>(AdamW::Options{.learning_rate = 0.1, .clip_norm = 0.05});
  Strategy strategy = runtime().make_strategy();
  ReplicatedModel<Tensor, Tensor> model = [this] {
    const QuietLog quiet;
    const auto fn = [this](Tower& each, const Tensor& features, const auto&) { return tower(each, features); };
    return replicate_model_fn<Tensor, Tensor>(strategy, fn, {.placement = placement});
  }();
};

/// A step outside of model functions, whose gradients are dense, and differ by rank.
void step_by(Training& training, Optimizer& optimizer, bool agreed_first) {
  std::vector<Optimizer::Gradient> gradients;
  for (const Variable& each : training.model.variables()) {
    std::vector<float> values(static_cast<std::size_t>(element_count(each.shape())));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(rank() + 1) / static_cast<float>(i + 3);
    gradients.push_back({Tensor::from(values, each.shape()), each});
  }
  const auto compute = [&](Optimizer::AgreedStep& step) {
    for (const Optimizer::Gradient& each : gradients) step.ready(each.variable);
    return Optimizer::StepSums{.samples = 1};
  };
  training.strategy.run([&](ReplicaContext& context) {
    agreed_first ? optimizer.apply_gradients(context, {.gradients = gradients, .computation = {compute}})
                 : optimizer.apply_gradients(context, gradients);
  });
}

/// Cannot update on one rank.
class Failing final : public Optimizer {
 public:
  explicit Failing(int on) : Optimizer{{.learning_rate = 1, .name = "failing"}, nullptr}, on_{on} {}

 protected:
  std::vector<std::string_view> slots() const override { return {}; }
  void update(const Kernels&, const VariableStore::FlatRange&, const UpdateStep&) override {
    if (rank() == on_) throw std::runtime_error{"on purpose"};
  }

 private:
  int on_;
};

constexpr auto all_placements = {ReplicateOptions::Placement::mirrored, ReplicateOptions::Placement::chief,
                                 ReplicateOptions::Placement::round_robin};

/// The rank that alone holds the k-th variable's state; `everyone` if there is none.
constexpr int everyone = -1;
int holder_of(ReplicateOptions::Placement placement, int k) {
  if (ranks() == 1 || placement == ReplicateOptions::Placement::mirrored) return everyone;
  return placement == ReplicateOptions::Placement::chief ? 0 : k % ranks();
}

}  // namespace

TEST_CASE("every placement of variables ends in the same bytes, with the optimizer's state on the owner alone",
          "[J-5][J-32][J-40][J-41]") {
  Training mirrored{ReplicateOptions::Placement::mirrored};
  mirrored.train(0, 3);
  for (const ReplicateOptions::Placement placement : all_placements) {
    Training training{placement};
    training.train(0, 3);
    CHECK(training.digest() == mirrored.digest());
    CHECK(training.adam->gradient_norm() == mirrored.adam->gradient_norm());
    training.strategy.attest();
    const auto state = inside(training.strategy.store()).optimizer_state();
    REQUIRE(state.size() == 2 * variables + 1);
    for (int k = 0; k < variables; ++k) {
      const int holder = holder_of(placement, k);
      const std::optional<int> told = training.model.variables()[static_cast<std::size_t>(k)].holder();
      CHECK(told.value_or(everyone) == holder);
      const detail::OptimizerState& first_moment = state[2 * static_cast<std::size_t>(k)];
      CHECK(first_moment.name == "v" + std::to_string(k) + "@first_moment");
      CHECK((first_moment.value.data() != nullptr) == (holder == everyone || holder == rank()));
    }
  }
}

TEST_CASE("every placement ends in the same bytes also where gradients are computed after the agreement", "[J-5]") {
  Training mirrored{ReplicateOptions::Placement::mirrored};
  mirrored.train(0, 1);
  step_by(mirrored, *mirrored.adam, true);
  for (const ReplicateOptions::Placement placement : all_placements) {
    Training training{placement};
    training.train(0, 1);
    step_by(training, *training.adam, true);
    CHECK(training.digest() == mirrored.digest());
    training.strategy.attest();
  }
}

TEST_CASE("a rank that cannot update what it alone holds keeps nobody waiting") {
  if (ranks() == 1) return;
  for (const bool agreed_first : {false, true}) {
    Training training{ReplicateOptions::Placement::chief};
    training.train(0, 1);
    Failing failing{0};
    const auto step = [&] { step_by(training, failing, agreed_first); };
    if (rank() == 0) {
      CHECK(message_of<std::runtime_error>(step) == "on purpose");
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::EndsWith("on purpose"));
    }
    expect_in_step();
  }
}

TEST_CASE("the owner's value is the one that rebroadcast gives to all, and its state is not compared", "[J-40]") {
  if (ranks() == 1) return;
  for (const ReplicateOptions::Placement placement :
       {ReplicateOptions::Placement::chief, ReplicateOptions::Placement::round_robin}) {
    Training training{placement};
    training.train(0, 2);
    const auto before = training.digest();
    const auto made = training.model.variables();
    for (int k = 0; k < variables; ++k)
      if (holder_of(placement, k) != rank())
        made[static_cast<std::size_t>(k)].assign(Tensor::zeros(DType::f32, made[static_cast<std::size_t>(k)].shape()));
    CHECK_THROWS_AS(training.strategy.attest(), DriftError);
    training.strategy.rebroadcast();
    training.strategy.attest();
    CHECK(training.digest() == before);
  }
}

TEST_CASE("every placement writes the same checkpoint, and goes on from it with the same bytes", "[J-5]") {
  const SharedFolder folder;
  Training mirrored{ReplicateOptions::Placement::mirrored};
  mirrored.train(0, 2);
  save_checkpoint(mirrored.strategy, folder / "mirrored");
  mirrored.train(2, 4);
  for (const ReplicateOptions::Placement placement : all_placements) {
    Training saved{placement};
    saved.train(0, 2);
    save_checkpoint(saved.strategy, folder / "own");
    if (runtime().is_chief()) CHECK(read_file(folder / "own") == read_file(folder / "mirrored"));

    // Made in another state, which the checkpoint replaces on every rank.
    Training restored{placement};
    restored.train(7, 8);
    restore_checkpoint(restored.strategy, folder / "mirrored");
    restored.train(2, 4);
    CHECK(restored.digest() == mirrored.digest());

    Training prepared{placement};
    prepared.call(0, EstimatorSpec::Mode::predict);
    prepared.adam->prepare(prepared.strategy, prepared.model.variables());
    restore_checkpoint(prepared.strategy, folder / "own");
    prepared.train(2, 4);
    CHECK(prepared.digest() == mirrored.digest());
  }
}

TEST_CASE("a checkpoint of weights alone leaves the owner's state as it is") {
  const SharedFolder folder;
  const auto continued = [&](ReplicateOptions::Placement placement) {
    Training training{placement};
    training.train(0, 2);
    CheckpointManager checkpoints{training.strategy, {.folder = folder / "all", .weights_only = true}};
    checkpoints.save(2);
    checkpoints.finish();
    training.train(2, 3);
    CHECK(checkpoints.resume_latest()->step == 2);
    training.train(2, 3);
    return training.digest();
  };
  const auto mirrored = continued(ReplicateOptions::Placement::mirrored);
  CHECK(continued(ReplicateOptions::Placement::chief) == mirrored);
  CHECK(continued(ReplicateOptions::Placement::round_robin) == mirrored);
}
