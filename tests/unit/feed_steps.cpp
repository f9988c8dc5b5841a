// What a loop of steps is made of: named values, which inputs and outputs compile, and when input is refused.
#include <cfenv>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/multi_step.hpp>

#include "core/base/floating_point_modes.hpp"
#include "core/comm/backends.hpp"
#include "core/control/meeting_point.hpp"
#include "support/captured_stream.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/feed/distributed_input.hpp"

using namespace lockstep;

namespace {

/// Three inputs, 0 to 2, on one replica; drawn in a scope only.
struct ThreeInputs {
  int drawn = 0;
  std::optional<PerReplica<int>> next(Here) {
    CHECK(Strategy::in_cross_replica_context());
    if (drawn == 3) return std::nullopt;
    return PerReplica<int>{drawn++};
  }
};
struct NoPerReplica {
  std::optional<int> next(Here);
};

template <class T>
concept AnOutputWithoutOperation =
    requires(MultiStepContext& context, T value) { context.set_last_step_output("x", value); };
template <class T>
concept AnOutputWithOperation =
    requires(MultiStepContext& context, T value) { context.set_last_step_output("x", value, ReduceOp::sum); };

}  // namespace

TEST_CASE("a named value is what was set last, as the type that it was set as") {
  MultiStepContext::Outputs values;
  CHECK(values.empty());
  values.set("loss", PerReplica<double>{1});
  values.set("loss", PerReplica<double>{2});
  values.set("words", std::vector<std::string>{"a", "b"});
  CHECK(values.get<PerReplica<double>>("loss").local() == 2);
  CHECK(values.get<std::vector<std::string>>("words").size() == 2);
  values.set("loss", 3);
  CHECK(values.get<int>("loss") == 3);
  CHECK(values.contains("words"));
  CHECK_FALSE(values.contains("word"));
  const MultiStepContext::Outputs copy = values;
  values.set("loss", 4);
  CHECK(copy.get<int>("loss") == 3);
}

TEST_CASE("a named value that is not there, or is of another type, is refused with what there is") {
  MultiStepContext::Outputs values;
  CHECK_THROWS_AS(values.get<int>("loss"), InvalidArgument);
  CHECK_THROWS_WITH(values.get<int>("loss"), "there is no 'loss' (int); there is nothing");
  values.set("loss", PerReplica<double>{1});
  values.set("hits", 5L);
  CHECK_THROWS_WITH(values.get<Mirrored<double>>("loss"),
                    "there is no 'loss' (lockstep::Mirrored<double>); there is 'hits' (long), 'loss' "
                    "(lockstep::PerReplica<double>)");
}

TEST_CASE("a loop takes any input that gives each rank its own, and outputs say their locality", "[G-7][G-12]") {
  static_assert(detail::DistributedInput<ThreeInputs>);
  static_assert(!detail::DistributedInput<NoPerReplica>);
  static_assert(!detail::DistributedInput<int>);
  static_assert(std::is_same_v<detail::next_input_t<ThreeInputs>, PerReplica<int>>);
  static_assert(AnOutputWithoutOperation<PerReplica<double>>);
  static_assert(AnOutputWithoutOperation<Mirrored<double>>);
  static_assert(AnOutputWithoutOperation<double>);
  static_assert(AnOutputWithoutOperation<std::vector<Tensor>>);
  static_assert(!AnOutputWithoutOperation<std::string>);  // no tensor: set_non_tensor_output
  static_assert(AnOutputWithOperation<double>);
  static_assert(AnOutputWithOperation<PerReplica<Tensor>>);
  static_assert(!AnOutputWithOperation<std::string>);
  static_assert(AnOutputWithOperation<Mirrored<double>>);

  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  ThreeInputs input;
  std::vector<int> seen;
  const auto loop = [&](std::int64_t steps) {
    return run_steps_on_iterator(
        strategy,
        [&](MultiStepContext& context, const PerReplica<int>& next) {
          seen.push_back(next.local());
          context.set_last_step_output("own", next);
          context.set_non_tensor_output("pointer", std::make_shared<int>(next.local()));
        },
        input, steps);
  };
  CHECK(loop(0).steps_run == 0);
  const MultiStepContext::Result two = loop(2);
  CHECK(two.steps_run == 2);
  CHECK(two.last_step_outputs.get<PerReplica<int>>("own").local() == 1);
  CHECK(*two.non_tensor_outputs.get<std::shared_ptr<int>>("pointer") == 1);
  CHECK(loop(2).steps_run == 1);
  CHECK(seen == std::vector<int>{0, 1, 2});
}

TEST_CASE("a run has the floating-point modes with which a process starts, and the program gets its own back") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  std::fesetround(FE_DOWNWARD);
  std::string in_run = "none";
  strategy.run([&](ReplicaContext&) { in_run = changed_floating_point_modes(); });
  CHECK_THROWS(strategy.run([&](ReplicaContext&) { throw std::runtime_error{"on purpose"}; }));
  CHECK(std::fegetround() == FE_DOWNWARD);
  std::fesetround(FE_TONEAREST);
  CHECK(in_run.empty());
}

TEST_CASE("a step that there never is cannot be set") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  for (const auto& [kind, first] :
       {std::pair{Strategy::RunKind::step, 1}, {Strategy::RunKind::evaluation, 1}, {Strategy::RunKind::setup, 0}}) {
    CHECK_NOTHROW(strategy.set_step(first, kind));
    CHECK_THROWS_AS(strategy.set_step(first - 1, kind), InvalidArgument);
    CHECK_THROWS_WITH(strategy.set_step(first - 1, kind), "set_step: step " + std::to_string(first - 1) +
                                                              "; expected " + std::to_string(first) + " or more");
  }
}

TEST_CASE("one step on the next input draws it in the scope, and gives nothing at the end", "[A-34]") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  ThreeInputs input;
  for (int i = 0; i < 3; ++i) {
    const std::optional<PerReplica<int>> doubled =
        strategy.run_on_next([](ReplicaContext&, int value) { return 2 * value; }, input);
    REQUIRE(doubled);
    CHECK(doubled->local() == 2 * i);
  }
  CHECK_FALSE(strategy.run_on_next([](ReplicaContext&, int) { FAIL("called at the end"); }, input));
}

TEST_CASE("input is refused while the stream is captured, before any agreement") {
  bool capturing = true;
  const auto group = make_local_group();
  group->add_device_plane(std::make_unique<test::CapturedStream>(capturing), make_local_communicator());
  Strategy strategy = strategy_on(*group);
  const auto before = group->meeting().meetings();
  const auto agree = [&] {
    return detail::agree_on_input(
        strategy, [] { return detail::InputOffer{}; }, Here::current());
  };
  CHECK_THROWS_AS(agree(), ContextError);
  CHECK_THROWS_WITH(agree(), Catch::StartsWith("merge_call, or another collective (feed_steps.cpp:") &&
                                 Catch::Contains("): this rank's stream is being captured into a CUDA graph"));
  CHECK(group->meeting().meetings() == before);
  capturing = false;
  CHECK_NOTHROW(agree());
}
