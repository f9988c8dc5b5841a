// Gradients that are computed after the agreement on their step: sent as soon as they are ready, with what the ranks
// add up on the way, and a rank that fails there. Inputs differ on every rank; sums are exact.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models.hpp>

#include "core/control/meeting_point.hpp"
#include "models/input/samples.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/joint_model.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// One variable, sealed: w = (0, 0).
struct JointProgram {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {2}); });
  Sgd optimizer{{.learning_rate = 1}};

  JointProgram() { strategy.seal(); }

  Stream& stream() { return strategy.stream(); }
  std::vector<float> weight() const { return Tensor::on_host(w.local()).to_vector<float>(); }

  /// Writes the gradient where it belongs.
  void write(std::vector<float> gradient) {
    copy(Tensor::from(gradient, {2}).view(), strategy.store().gradient(w), stream());
  }

  Optimizer::StepSums step(const Optimizer::Computation& computation) {
    Optimizer::StepSums sums{.samples = -1};
    strategy.run([&](ReplicaContext& context) {
      sums = optimizer.apply_gradients(
          context, {.gradients = Optimizer::gradients_in_store(strategy.store(), {w}), .computation = computation});
    });
    return sums;
  }
};

/// The sum over the ranks of this rank's `values`.
template <class Sums>
std::vector<float> sum(Sums& ranks, Stream& stream, std::vector<float> values) {
  const Tensor tensor =
      Tensor::copy_of(Tensor::from(values, {static_cast<std::int64_t>(values.size())}).view(), stream);
  ranks.all_reduce(tensor.view());
  return Tensor::on_host(tensor.view()).to_vector<float>();
}

const Optimizer::Computation::Sums two_sums{.dtype = DType::f32, .counts = {1, 2}};

/// What a rank has after each of the two sums is in its gradient. Throws before sum number `fails_before`, if that is
/// one of them, or behind the second.
Optimizer::Computation two_sums_of(JointProgram& program, int fails_before = 3) {
  return {[&program, fails_before](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
            const auto mine = static_cast<float>(rank() + 1);
            const auto fail_before = [&](int number) {
              if (number == fails_before) throw std::out_of_range{"no sum " + std::to_string(number)};
            };
            fail_before(0);
            const float first = sum(step, program.stream(), {mine}).at(0);
            fail_before(1);
            const float second = sum(step, program.stream(), {0, first * mine}).at(1);
            fail_before(2);
            program.write({second, mine});
            step.ready(program.w);
            return {.samples = rank() + 1, .loss = 0.5 * (rank() + 1), .correct = rank()};
          },
          two_sums};
}

/// Its images are numbered by their labels, and each weighs 2. What it trains is the number of samples that the ranks
/// count together, which it compares with the number that it is told.
class CountingModel final : public nn::Model, private nn::JointModel {
 public:
  explicit CountingModel(Strategy& strategy)
      : stream_{strategy.stream()},
        variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {1}); })} {}

  std::string_view name() const override { return "counting"; }
  std::span<const Variable> variables() const override { return variables_; }
  nn::JointModel* joint() override { return this; }
  BatchLoss train_shard(const SampleBatch&, const nn::Model::ShardPlace&, const nn::GradientBuffer&) override {
    throw std::logic_error{"a joint model is not trained shard by shard"};
  }
  BatchLoss evaluate_shard(const SampleBatch&) override { return {}; }

  std::vector<std::int64_t> counted;

 private:
  std::vector<std::int64_t> joint_sums() const override { return {1}; }
  Losses train_jointly(const nn::JointBatch& batch, std::span<const nn::GradientBuffer> gradients,
                       DeclaredSums& ranks) override {
    std::int64_t here = 0;
    Losses results;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::int64_t samples = batch.shards.batches[i].samples;
      copy(Tensor::from({static_cast<float>(samples)}, {1}).view(), gradients[i].of(variables_[0]), stream_);
      const auto count = static_cast<double>(samples);
      results.push_back(BatchLoss{.loss_sum = count, .correct = samples, .weight = 2 * count});
      here += samples;
    }
    CHECK(sum(ranks, stream_, {static_cast<float>(here)}).at(0) == static_cast<float>(batch.samples));
    counted.push_back(batch.samples);
    return results;
  }

  Stream& stream_;
  std::vector<Variable> variables_;
};

class Losses final : public Observer {
 public:
  void on_step(const Step& report) override { losses.push_back(report.loss); }
  std::vector<double> losses;
};

ImageData::Set grey_images(std::int64_t count, std::int64_t size) {
  ImageData::Set images{.rows = size, .columns = size, .pixels = {}, .labels = {}};
  for (std::int64_t i = 0; i < count * size * size; ++i)
    images.pixels.push_back(static_cast<std::uint8_t>(i * i % 251));
  for (std::int64_t i = 0; i < count; ++i) images.labels.push_back(static_cast<std::uint8_t>(i % 3));
  return images;
}

}  // namespace

TEST_CASE("what ranks compute together, with sums on the way, is applied as one step in two agreements") {
  JointProgram program;
  const auto meetings = [&] { return inside(program.strategy).group().meeting().meetings(); };
  const auto before = meetings();
  const Optimizer::StepSums sums = program.step(two_sums_of(program));
  CHECK(meetings() - before == 2);
  const auto all = static_cast<float>(triangle());
  CHECK(sums.samples == triangle());
  CHECK(sums.loss == 0.5 * triangle());
  CHECK(sums.correct == triangle() - ranks());
  // Each rank's gradient begins with the square of the sum of all ranks' numbers.
  CHECK(program.weight() == std::vector<float>{-all * static_cast<float>(ranks()), -1});
  CHECK(program.optimizer.steps(program.strategy) == 1);
}

TEST_CASE("a rank that fails before, between or behind the sums is named on every rank, and nothing is applied") {
  JointProgram program;
  for (int culprit = 0; culprit < ranks(); ++culprit)
    for (int fails_before = 0; fails_before < 3; ++fails_before) {
      CAPTURE(culprit, fails_before);
      Optimizer::StepSums sums{.samples = -1};
      const auto step = [&] {
        program.strategy.run([&](ReplicaContext& context) {
          sums = program.optimizer.apply_gradients(
              context, {.gradients = Optimizer::gradients_in_store(program.strategy.store(), {program.w}),
                        .computation = two_sums_of(program, rank() == culprit ? fails_before : 3)});
        });
      };
      if (rank() == culprit) {
        CHECK_THROWS_WITH(step(), "no sum " + std::to_string(fails_before));
      } else {
        CHECK_THAT(message_of<PeerError>(step), Catch::StartsWith("replica " + std::to_string(culprit) + " (") &&
                                                    Catch::EndsWith("failed: no sum " + std::to_string(fails_before)));
        CHECK(sums.samples == 0);
      }
      CHECK(program.weight() == std::vector<float>{0, 0});
      CHECK(program.optimizer.steps(program.strategy) == 0);
      expect_in_step();
    }
  program.step(two_sums_of(program));
  CHECK(program.weight()[1] == -1);
}

TEST_CASE("a rank that makes fewer sums than declared, or other ones, fails alone") {
  JointProgram program;
  const auto step = [&](int made, std::int64_t size) {
    program.step({[&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
                    const std::vector<std::int64_t> counts{1, odd_one() ? size : 2};
                    for (int i = 0; i < (odd_one() ? made : 2); ++i)
                      sum(step, program.stream(), std::vector<float>(static_cast<std::size_t>(counts[i])));
                    program.write({1, 1});
                    step.ready(program.w);
                    return {.samples = 1};
                  },
                  two_sums});
  };
  const auto fails = [&](int made, std::int64_t size, const std::string& message) {
    if (odd_one()) {
      CHECK_THAT(message_of<InvalidArgument>([&] { step(made, size); }), Catch::Equals(message));
    } else {
      CHECK_THAT(message_of<PeerError>([&] { step(made, size); }), Catch::EndsWith(message));
    }
    expect_in_step();
  };
  fails(1, 2, "1 of 2 declared sums were made");
  fails(2, 5, "sum 2 of 2: f32[5]; declared were 2 elements of f32");
  CHECK(program.weight() == std::vector<float>{0, 0});
}

TEST_CASE("ranks that declare other sums, or none, disagree before the first one") {
  if (ranks() == 1) return;
  JointProgram program;
  const auto step = [&](const Optimizer::Computation::Sums& odd) {
    return mismatch_of([&] {
      program.step({[](Optimizer::AgreedStep&) -> Optimizer::StepSums { throw std::logic_error{"computed"}; },
                    odd_one() ? odd : two_sums});
    });
  };
  CHECK_THAT(step({.dtype = DType::f32, .counts = {2, 1}}),
             Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("with 2 sums of 3 f32"));
  CHECK_THAT(step({.dtype = DType::f64, .counts = {1, 2}}),
             Catch::Contains("with 2 sums of 3 f64") && Catch::Contains("with 2 sums of 3 f32"));
  const auto way = mismatch_of([&] {
    program.strategy.run([&](ReplicaContext& context) {
      const Here here = Here::current();
      const std::vector<Optimizer::Gradient> gradients =
          Optimizer::gradients_in_store(program.strategy.store(), {program.w});
      if (odd_one()) {
        program.optimizer.apply_gradients(context, gradients, Optimizer::StepSums{.samples = 1}, here);
      } else {
        program.optimizer.apply_gradients(context, {.gradients = gradients, .computation = two_sums_of(program)}, here);
      }
    });
  });
  CHECK_THAT(way, Catch::Contains("apply_gradients by samples: 'w'") && Catch::Contains("with 2 sums of 3 f32"));
  expect_in_step();
}

TEST_CASE("gradients are sent from where they lie once they are ready, in one step whatever their order and packing") {
  for (const Packing& packing : {Packing{}, ReductionOptions::into_packs(5), ReductionOptions::unpacked(),
                                 ReductionOptions::group_small(8, 2)}) {
    Strategy strategy = runtime().make_strategy({.packing = packing});
    std::vector<MirroredVariable> w;
    for (const std::int64_t size : {2, 70, 0, 1})
      w.push_back(strategy.create_variable({.name = "w"}, [&] { return Tensor::zeros(DType::f32, {size}); }));
    strategy.seal();
    // Two in the store, and two elsewhere.
    std::vector<Optimizer::Gradient> gradients = Optimizer::gradients_in_store(strategy.store(), {w[0], w[2]});
    for (const std::size_t i : {3, 1})
      gradients.push_back({Tensor::copy_of(Tensor::zeros(DType::f32, w[i].shape()).view(), strategy.stream()), w[i]});
    const auto write = [&](const Optimizer::Gradient& gradient, float value) {
      const auto count = static_cast<std::size_t>(gradient.value.count());
      copy(Tensor::from(std::vector<float>(count, value), gradient.value.shape()).view(), gradient.value.view(),
           strategy.stream());
    };
    Sgd optimizer{{.learning_rate = 1}};
    for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
      strategy.run([&](ReplicaContext& context) {
        const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
          CHECK(context.replica_id_in_sync_group() == rank());  // still in replica context
          for (const std::size_t i : order) {
            write(gradients[i], static_cast<float>(rank() + 1) * static_cast<float>(i + 1));
            step.ready(gradients[i].variable);
          }
          return {.samples = 1};
        };
        optimizer.apply_gradients(context, {.gradients = gradients, .computation = {compute}});
      });
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const float expected =
          -2 * static_cast<float>(i + 1) * static_cast<float>(triangle()) / static_cast<float>(ranks());
      const auto values = Tensor::on_host(gradients[i].variable.local()).to_vector<float>();
      CHECK(values == std::vector<float>(values.size(), expected));
    }
  }
}

TEST_CASE("what a program puts around collectives holds the whole sum of each bucket, and the last sum") {
  std::vector<float> after;  // the gradient behind each collective
  std::function<std::vector<float>()> gradient;
  Strategy strategy =
      runtime().make_strategy({.packing = ReductionOptions::into_packs(2), .around = [&](const auto& collective) {
                                 collective();
                                 after.push_back(gradient().back());
                               }});
  const auto w = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {2}); });
  gradient = [&] { return Tensor::on_host(strategy.store().gradient(w)).to_vector<float>(); };
  Sgd optimizer{{.learning_rate = 1}};
  strategy.seal();
  after.clear();
  strategy.run([&](ReplicaContext& context) {
    const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
      const auto mine = static_cast<float>(rank() + 1);
      copy(Tensor::from({mine, mine}, {2}).view(), strategy.store().gradient(w), strategy.stream());
      step.ready(w);
      return {.samples = 1};
    };
    optimizer.apply_gradients(
        context, {.gradients = Optimizer::gradients_in_store(strategy.store(), {w}), .computation = {compute}});
  });
  // The two buckets, and the numbers of the step.
  CHECK(after.size() == 3);
  CHECK(after.back() == static_cast<float>(triangle()));
}

TEST_CASE("a rank that never says that a gradient is ready, or says it twice, fails alone") {
  JointProgram program;
  const auto fails = [&](int times, const std::string& message) {
    const auto step = [&] {
      program.step({[&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
        program.write({1, 1});
        for (int i = 0; i < (odd_one() ? times : 1); ++i) step.ready(program.w);
        return {.samples = 1};
      }});
    };
    if (odd_one()) {
      CHECK_THAT(message_of<InvalidArgument>(step), Catch::Equals(message));
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::EndsWith(message));
    }
    CHECK(program.weight() == std::vector<float>{0, 0});
    expect_in_step();
  };
  fails(0, "the gradient of variable 'w' was never ready in this step");
  fails(2, "the gradient of variable 'w' was ready before");
}

TEST_CASE(
    "another agreement in the middle of a step is refused before any communication, and fails it even if caught") {
  JointProgram program;
  const auto step = [&](const std::function<void(ReplicaContext&)>& disturb) {
    return [&program, disturb] {
      program.strategy.run([&](ReplicaContext& context) {
        const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
          program.write({1, 1});
          step.ready(program.w);
          if (odd_one()) {
            try {
              disturb(context);
            } catch (const ContextError&) {
            }
          }
          return {.samples = 1};
        };
        program.optimizer.apply_gradients(
            context, {.gradients = Optimizer::gradients_in_store(program.strategy.store(), {program.w}),
                      .computation = {compute}});
      });
    };
  };
  const auto fails = [&](const std::function<void(ReplicaContext&)>& disturb, const std::string& call) {
    const std::string message = " in the middle of a computation that the ranks have agreed on (joint_gradients.cpp:";
    if (odd_one()) {
      CHECK_THAT(message_of<ContextError>(step(disturb)), Catch::StartsWith(call) && Catch::Contains(message));
    } else {
      CHECK_THAT(message_of<PeerError>(step(disturb)), Catch::Contains(call) && Catch::Contains(message));
    }
    CHECK(program.weight() == std::vector<float>{0, 0});
    CHECK(program.optimizer.steps(program.strategy) == 0);
    expect_in_step();
  };
  fails([](ReplicaContext& context) { (void)context.all_reduce(ReduceOp::sum, 1.0); }, "merge_call #2 (");
  fails([](ReplicaContext& context) { (void)context.strategy().same_on_all(1); }, "same_on_all #1 (");
}

TEST_CASE("a joint model is told the samples of each micro-batch on all ranks, and the last step's few") {
  const ImageData::Set train = grey_images(29, 1), test = grey_images(2, 1);
  const ImageSamples train_samples{train, DType::f32}, test_samples{test, DType::f32};
  for (const int accumulate : {1, 2, 3}) {
    Strategy strategy = runtime().make_strategy();
    CountingModel model{strategy};
    Sgd sgd{{.learning_rate = 1}};
    Losses observer;
    // 26 samples, and then 3: shards of many sizes, of which most are empty in the second step.
    fit(strategy, model, sgd, {train_samples, test_samples},
        {.global_batch = 26, .steps = 2, .shards = 2 * ranks(), .accumulate = accumulate}, observer);
    REQUIRE(model.counted.size() == static_cast<std::size_t>(2 * accumulate));
    std::int64_t first = 0, second = 0;
    for (int i = 0; i < accumulate; ++i) {
      first += model.counted[static_cast<std::size_t>(i)];
      second += model.counted[static_cast<std::size_t>(accumulate + i)];
    }
    CHECK(first == 26);
    CHECK(second == 3);
    CHECK(observer.losses == std::vector<double>{0.5, 0.5});  // one for each sample, which weighs 2
    CHECK(Tensor::on_host(model.variables()[0].local()).to_vector<float>() == std::vector<float>{-1});
  }
}

TEST_CASE("a convnet that fails on one rank between two sums over the batch is named on the others") {
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) return;  // a GPU has no kernels for images
  // The label of one sample is none of the model's classes, which shows when the forward sums have been made.
  ImageData::Set train = grey_images(2 * ranks(), 6);
  const ImageData::Set test = grey_images(1, 6);
  train.labels[3 % train.labels.size()] = 9;
  const ImageSamples train_samples{train, DType::f32}, test_samples{test, DType::f32};
  Strategy strategy = runtime().make_strategy();
  nn::Convnet model{strategy,
                    {.height = 6,
                     .width = 6,
                     .filters = {2, 3},
                     .hidden = 4,
                     .classes = 3,
                     .batch_norm = nn::ConvnetOptions::BatchNorm::whole_batch},
                    ops::make_kernels(ops::Kernels::Choice::automatic)};
  Sgd sgd{{.learning_rate = 1}};
  Losses observer;
  const auto step = [&] {
    fit(strategy, model, sgd, {train_samples, test_samples},
        {.global_batch = 2 * ranks(), .steps = 1, .shards = ranks()}, observer);
  };
  int failed = 0, told = 0;
  try {
    step();
  } catch (const InvalidArgument& error) {
    failed = 1;
    CHECK_THAT(error.what(), Catch::Contains("label 9"));
  } catch (const PeerError& error) {
    told = 1;
    CHECK_THAT(error.what(), Catch::Contains("label 9"));
  }
  const auto sums = strategy.reduce(ReduceOp::sum, PerReplica<std::vector<int>>{{failed, told}});
  CHECK(sums == std::vector<int>{1, ranks() - 1});
  CHECK(observer.losses.empty());
  CHECK(sgd.steps(strategy) == 0);
  expect_in_step();
}
