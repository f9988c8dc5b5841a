// One step of every rank: gradients, sample counts and sums from all of them. Inputs differ on every rank;
// sums are exact.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Tensor floats(std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count});
}

/// Two variables, sealed: w = (0, 0, 0) and b = (0).
struct Program {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return floats({0, 0, 0}); });
  MirroredVariable b = strategy.create_variable({.name = "b"}, [] { return floats({0}); });

  Program() { strategy.seal(); }

  template <class... Sums>
  void step(Optimizer& optimizer, const std::vector<Optimizer::Gradient>& gradients, Sums... sums) {
    strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients, sums...); });
  }
  std::vector<float> weight() const { return w.local().to_vector<float>(); }
};

}  // namespace

TEST_CASE("a step applies the sum of all ranks' gradients, on every rank", "[A-46][K-16]") {
  Program program;
  Sgd optimizer{{.learning_rate = 0.5}};
  const auto mine = static_cast<float>(rank() + 1);
  program.step(optimizer, {{floats({mine, -mine, 2 * mine}), program.w}, {floats({4}), program.b}});
  const auto sum = static_cast<float>(triangle());
  CHECK(program.weight() == std::vector<float>{-0.5f * sum, 0.5f * sum, -sum});
  CHECK(program.b.local().to_vector<float>() == std::vector<float>{-2.f * static_cast<float>(ranks())});
}

TEST_CASE("samples are summed over the ranks before the gradient is divided by them") {
  Program program;
  Sgd optimizer{{.learning_rate = 1, .momentum = 0.5}};
  // Each rank's gradient is a sum over as many samples as its number; 3, 6 and 12 each on average.
  const std::int64_t samples = rank() + 1;
  const auto count = static_cast<float>(samples);
  const std::vector<Optimizer::Gradient> gradients{{floats({3 * count, 6 * count, 12 * count}), program.w}};
  program.step(optimizer, gradients, samples);
  CHECK(program.weight() == std::vector<float>{-3, -6, -12});
  program.step(optimizer, gradients, samples);  // velocities 1.5 times as large
  CHECK(program.weight() == std::vector<float>{-7.5, -15, -30});
}

TEST_CASE("gradients that are reduced already are applied as they are, by one agreement") {
  Program program;
  Sgd optimizer{{.learning_rate = 0.5, .momentum = 0.5}};
  MeetingPoint& meeting = inside(program.strategy).group().meeting();
  for (int step = 0; step < 2; ++step) {
    const auto before = meeting.meetings();
    program.strategy.run([&](ReplicaContext& context) {
      optimizer.apply_reduced_gradients(context, {{floats({2, -4, 8}), program.w}});
    });
    CHECK(meeting.meetings() - before == 2);  // with the end of the run
  }
  CHECK(program.weight() == std::vector<float>{-2.5, 5, -10});
  CHECK(optimizer.steps(program.strategy) == 2);
  // A row that nobody names moves on by the momentum.
  const IndexedSlices slices{floats({1}), Tensor::from({std::int64_t{1}}, {1}), {3}};
  program.strategy.run([&](ReplicaContext& context) {
    optimizer.apply_reduced_gradients(context, {{slices, program.w}});
  });
  CHECK(program.weight() == std::vector<float>{-3.25, 6, -13});
}

TEST_CASE("a rank without samples changes nothing about the others' step") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  const bool empty = ranks() > 1 && odd_one();
  program.step(optimizer, {{floats(empty ? std::vector<float>{0, 0, 0} : std::vector<float>{4, 8, 2}), program.w}},
               std::int64_t{empty ? 0 : 2});
  CHECK(program.weight() == std::vector<float>{-2, -4, -1});
  program.step(optimizer, {{floats({1, 1, 1}), program.w}}, std::int64_t{0});
  CHECK(program.weight() == std::vector<float>{-2, -4, -1});
}

TEST_CASE("loss, samples and correct answers ride along with the gradients") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  program.strategy.run([&](ReplicaContext& context) {
    const std::int64_t number = rank() + 1;
    const std::int64_t large = std::int64_t{1} << 60;  // no double holds 2^60 + 1
    const Optimizer::StepSums sums =
        optimizer.apply_gradients(context, {},
                                  Optimizer::StepSums{.samples = number,
                                                      .loss = 0.25 * static_cast<double>(number),
                                                      .correct = rank() == 0 ? large + 1 : number - 1});
    CHECK(sums.samples == triangle());
    CHECK(sums.loss == 0.25 * triangle());
    CHECK(sums.correct == large + 1 + triangle() - ranks());
  });
}

TEST_CASE("what the ranks' samples weigh is added up, and a rank that does not say it brings their number") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  std::vector<Optimizer::Gradient> gradients{{floats({1, 2, 3}), program.w}};
  program.strategy.run([&](ReplicaContext& context) {
    Optimizer::StepSums own{.samples = rank() + 1};
    if (!odd_one()) own.weight = 0.25 * own.samples;
    const double weight = 0.25 * (triangle() - ranks()) + ranks();
    CHECK(optimizer.apply_gradients(context, gradients, own).weight == weight);
    const auto scale = static_cast<float>(ranks() / weight);
    for (std::size_t i = 0; i < 3; ++i) CHECK(program.weight()[i] == Approx(-scale * static_cast<float>(i + 1)));
  });
}

TEST_CASE("a step is applied only if what all ranks bring allows it") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  std::vector<Optimizer::Gradient> gradients{{floats({1, 2, 3}), program.w}};
  const auto compute = [&](Optimizer::AgreedStep& step) {
    step.ready(program.w);
    return Optimizer::StepSums{.samples = 1};
  };
  for (const bool is_computed : {false, true})
    for (const bool allows : {false, true}) {
      CAPTURE(is_computed, allows);
      const std::vector<float> before = program.weight();
      std::vector<std::int64_t> counts{rank() + 1, odd_one() ? 1 : 0};
      Optimizer::Request request{.gradients = gradients, .integers = counts};
      if (is_computed) request.computation = {compute};
      if (!is_computed) request.own = 1;
      request.apply_only_if = [&] { return counts[0] == triangle() && counts[1] == 1 && allows; };
      program.strategy.run([&](ReplicaContext& context) {
        CHECK(optimizer.apply_gradients(context, request).samples == (allows ? ranks() : 0));
      });
      CHECK((program.weight() == before) == !allows);
    }
  CHECK(optimizer.steps(program.strategy) == 2);
}

TEST_CASE("a run with one apply_gradients costs two agreements") {
  Program program;
  Sgd optimizer{{.learning_rate = 1, .momentum = 0.9}};
  const auto meetings = [&] { return inside(program.strategy).group().meeting().meetings(); };
  const auto before = meetings();
  program.step(optimizer, {{floats({1, 2, 3}), program.w}, {floats({1}), program.b}},
               Optimizer::StepSums{.samples = rank(), .loss = 1, .correct = 0});
  CHECK(meetings() - before == 2);
  program.step(optimizer, {}, std::int64_t{1});
  CHECK(meetings() - before == 4);
}

TEST_CASE("what a rank finds wrong by itself costs no agreement, and the step can go on") {
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  program.strategy.run([&](ReplicaContext& context) {
    if (odd_one())
      CHECK_THROWS_AS(optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{floats({1}), program.w}}),
                      InvalidArgument);
    optimizer.apply_gradients(context, std::vector<Optimizer::Gradient>{{floats({1, 1, 1}), program.w}});
  });
  CHECK(program.weight()[0] == static_cast<float>(-ranks()));
}

TEST_CASE("an optimizer with other options on one rank is a mismatch that shows both") {
  if (ranks() == 1) return;
  Program program;
  const std::vector<Optimizer::Gradient> gradients{{floats({1, 1, 1}), program.w}};
  const auto mismatch = [&](auto usual, auto odd) {
    return mismatch_of([&] {
      if (odd_one())
        program.step(odd, gradients);
      else
        program.step(usual, gradients);
    });
  };
  using Catch::Contains;
  CHECK_THAT(mismatch(Sgd{{.learning_rate = 0.1}}, Sgd{{.learning_rate = 0.2}}),
             Contains("step 1 of 'optimizer' at rate 0.1: ") && Contains("step 1 of 'optimizer' at rate 0.2: "));
  CHECK_THAT(mismatch(Sgd{{.learning_rate = 0.1}}, Sgd{{.learning_rate = 0.1, .momentum = 0.5, .weight_decay = 0.01}}),
             Contains("at rate 0.1: ") && Contains("at rate 0.1, momentum 0.5, weight decay 0.01: "));
  CHECK_THAT(mismatch(AdamW{{.learning_rate = 0.1}}, AdamW{{.learning_rate = 0.1, .clip_norm = 2}}),
             Contains(", epsilon 1e-08: ") && Contains(", epsilon 1e-08, norm up to 2: "));
  CHECK_THAT(mismatch(AdamW{{.learning_rate = 0.1}}, AdamW{{.learning_rate = 0.1, .moments = {.beta2 = 0.99}}}),
             Contains("betas 0.9 and 0.999") && Contains("betas 0.9 and 0.99,"));
  CHECK(program.weight() == std::vector<float>{0, 0, 0});
}

TEST_CASE("an optimizer of another name on one rank is a mismatch that shows both names") {
  if (ranks() == 1) return;
  Program program;
  Sgd first{{.learning_rate = 0.1}}, second{{.learning_rate = 0.1}};
  const std::vector<Optimizer::Gradient> gradients{{floats({1, 1, 1}), program.w}};
  if (odd_one()) first.prepare(program.strategy, {program.w});  // takes the name that the others give to `second`
  CHECK_THAT(mismatch_of([&] { program.step(second, gradients); }),
             Catch::Contains("step 1 of 'optimizer_1' at ") && Catch::Contains("step 1 of 'optimizer' at "));
}

TEST_CASE("gradients of other variables on one rank are a mismatch that shows both lists") {
  if (ranks() == 1) return;
  Program program;
  Sgd optimizer{{.learning_rate = 1}};
  const Optimizer::Gradient w{floats({1, 1, 1}), program.w};
  const Optimizer::Gradient b{floats({1}), program.b};
  const bool odd = odd_one();
  using Catch::Contains;

  const auto fewer = mismatch_of([&] {
    program.step(optimizer, odd ? std::vector<Optimizer::Gradient>{w} : std::vector<Optimizer::Gradient>{w, b});
  });
  CHECK_THAT(fewer,
             Catch::StartsWith("replica " + std::to_string(last()) + " (") && Contains("'w' f32[3], 'b' f32[1]"));
  const auto order = mismatch_of([&] {
    program.step(optimizer, odd ? std::vector<Optimizer::Gradient>{b, w} : std::vector<Optimizer::Gradient>{w, b});
  });
  CHECK_THAT(order, Contains("'b' f32[1], 'w' f32[3]"));
  const auto none = mismatch_of(
      [&] { program.step(optimizer, odd ? std::vector<Optimizer::Gradient>{} : std::vector<Optimizer::Gradient>{w}); });
  CHECK_THAT(none, Contains("no variables"));
  const auto way = mismatch_of([&] {
    program.strategy.run([&](ReplicaContext& context) {
      const Here here = Here::current();
      const std::vector<Optimizer::Gradient> gradients{w};
      optimizer.apply_gradients(context, gradients, odd ? Optimizer::Own{1} : Optimizer::Own{}, here);
    });
  });
  CHECK_THAT(way, Contains("apply_gradients by samples: 'w'") && Contains("apply_gradients: 'w'"));

  CHECK(program.weight() == std::vector<float>{0, 0, 0});
  program.step(optimizer, {w, b});
  CHECK(program.weight()[0] == static_cast<float>(-ranks()));
}

TEST_CASE("a long list of variables that differs at its end is a mismatch that still shows it") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  std::vector<Optimizer::Gradient> gradients;
  for (int i = 0; i < 40; ++i)
    gradients.push_back(
        {floats({1}), strategy.create_variable({.name = "variable " + std::to_string(i)}, [] { return floats({0}); })});
  strategy.seal();
  if (odd_one()) gradients.pop_back();
  Sgd optimizer{{.learning_rate = 1}};
  const auto message = mismatch_of(
      [&] { strategy.run([&](ReplicaContext& context) { optimizer.apply_gradients(context, gradients); }); });
  CHECK_THAT(message, Catch::Contains("39 variables (digest ") && Catch::Contains("40 variables (digest "));
}
