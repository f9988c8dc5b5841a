// Steps on the inputs of an iterator, one by one and in loops, and the outputs that they leave.
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A program's own, which must not be mistaken for one of the library's.
struct Batch {
  int number = 0;
};

/// 1, 2, … count, times one more than the rank. What a rank without data gets is 0.
DistributedIterator<double> numbers(int count, Strategy& strategy = runtime().strategy()) {
  return make_input_fn_iterator<double>(strategy, [count](const InputContext&) {
    return [count, next = 0]() mutable -> std::optional<double> {
      if (next == count) return std::nullopt;
      return (rank() + 1) * ++next;
    };
  });
}

}  // namespace

TEST_CASE("one step on the next input calls run with each rank's own, and nothing at the end", "[A-34]") {
  Strategy& strategy = runtime().strategy();
  auto input = numbers(rank() == 0 ? 2 : 1);
  int calls = 0;
  const auto step = [&](ReplicaContext& context, double mine) {
    ++calls;
    return std::pair{mine, context.all_reduce(ReduceOp::sum, mine)};
  };
  const auto first = strategy.run_on_next(step, input);
  REQUIRE(first);
  CHECK(first->local() == std::pair{1.0 + rank(), 1.0 * triangle()});
  const auto second = strategy.run_on_next(step, input);
  REQUIRE(second);
  CHECK(second->local() == std::pair{rank() == 0 ? 2.0 : 0.0, 2.0});
  CHECK_FALSE(strategy.run_on_next(step, input));
  CHECK(calls == 2);

  input.initialize();
  const std::optional<PerReplica<void>> nothing = strategy.run_on_next([](ReplicaContext&, double) {}, input);
  CHECK(nothing);
}

TEST_CASE("a loop calls its function so many times, in order, in the scope, each time with the next input",
          "[A-57][G-1][G-2]") {
  Strategy& strategy = runtime().strategy();
  auto input = numbers(5);
  std::vector<double> inputs;
  const auto before = inside(strategy).group().meeting().meetings();
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext&, const PerReplica<double>& next) {
        CHECK(Strategy::in_cross_replica_context());
        CHECK(&Strategy::current() == &strategy);
        inputs.push_back(next.local());
      },
      input, 3);
  CHECK(result.steps_run == 3);
  CHECK(inputs == std::vector<double>{1.0 + rank(), 2.0 + 2 * rank(), 3.0 + 3 * rank()});
  CHECK(inside(strategy).group().meeting().meetings() == before + 4);  // how many steps, and three inputs
  CHECK_FALSE(Strategy::has_current());
  CHECK(input.next()->local() == 4 * (rank() + 1));  // the loop took no more than it needed

  strategy.run([&](ReplicaContext&) {
    CHECK_THROWS_AS(run_steps_on_iterator(
                        strategy, [](MultiStepContext&, const auto&) {}, input, 1),
                    ContextError);
  });
  CHECK_THROWS_WITH(run_steps_on_iterator(
                        strategy, [](MultiStepContext&, const auto&) {}, input, -1),
                    "a loop of -1 steps; expected 0 or more");
}

TEST_CASE("another number of steps on one rank is a mismatch before the first", "[G-1]") {
  if (ranks() == 1) return;
  auto input = numbers(5);
  bool called = false;
  const std::string message = mismatch_of([&] {
    (void)run_steps_on_iterator(
        runtime().strategy(), [&](MultiStepContext&, const PerReplica<double>&) { called = true; }, input,
        odd_one() ? 4 : 5);
  });
  CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                          Catch::Contains("run_steps_on_iterator #") && Catch::Contains("with 4 steps") &&
                          Catch::Contains("with 5 steps"));
  CHECK_FALSE(called);
  expect_in_step();
}

TEST_CASE("where the input ends in the middle, all ranks leave the loop at the same step", "[F-29][G-10]") {
  auto input = numbers(rank());  // none on replica 0
  int sums = 0;
  const auto loop = [&] {
    return run_steps_on_iterator(
        runtime().strategy(),
        [&](MultiStepContext& context, const PerReplica<double>& next) {
          context.set_last_step_output("sum", next, ReduceOp::sum);
          ++sums;
        },
        input, 100);
  };
  const MultiStepContext::Result result = loop();
  CHECK(result.steps_run == last());
  CHECK(sums == last());
  CHECK(result.last_step_outputs.contains("sum") == (ranks() > 1));
  if (ranks() > 1) CHECK(result.last_step_outputs.get<Mirrored<double>>("sum").value() == last() * ranks());
  CHECK(loop().steps_run == 0);
}

TEST_CASE("the last step's outputs are the loop's: one value where they were reduced, each replica's where not",
          "[G-4][G-6][G-7][G-11][G-13]") {
  auto input = numbers(3);
  std::vector<double> seen;
  const MultiStepContext::Result result = run_steps_on_iterator(
      runtime().strategy(),
      [&](MultiStepContext& context, const PerReplica<double>& next) {
        context.set_last_step_output("own", next);
        context.set_last_step_output("sum", next, ReduceOp::sum);
        context.set_last_step_output("means", PerReplica{std::vector{next.local(), 4.0}}, ReduceOp::mean);
        context.set_last_step_output("mirrored", context.last_step_outputs().get<Mirrored<double>>("sum"));
        if (next.local() < 2 * (rank() + 1)) context.set_last_step_output("first", next);
        seen.push_back(context.last_step_outputs().get<Mirrored<double>>("sum").value());
      },
      input, 3);
  const MultiStepContext::Outputs& outputs = result.last_step_outputs;
  CHECK(seen == std::vector<double>{1.0 * triangle(), 2.0 * triangle(), 3.0 * triangle()});
  CHECK(outputs.get<PerReplica<double>>("own").local() == 3 * (rank() + 1));
  CHECK(outputs.get<Mirrored<double>>("sum").value() == 3 * triangle());
  CHECK(outputs.get<Mirrored<double>>("mirrored").value() == 3 * triangle());
  CHECK(outputs.get<Mirrored<std::vector<double>>>("means").value() ==
        std::vector<double>{3.0 * triangle() / ranks(), 4});
  CHECK(outputs.get<PerReplica<double>>("first").local() == 1.0 + rank());  // as the step before left it
  CHECK(result.non_tensor_outputs.empty());
}

TEST_CASE("in cross-replica context an output may be a plain value, and is then kept as one", "[G-11]") {
  Strategy& strategy = runtime().strategy();
  const Mirrored<double> four = strategy.same_on_all(4.0);
  auto input = numbers(2);
  const auto before = inside(strategy).group().meeting().meetings();
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& context, const PerReplica<double>& next) {
        const double sum = strategy.reduce(ReduceOp::sum, next);
        context.set_last_step_output("sum", sum);
        context.set_last_step_output("nest", std::vector{sum, next.local()});
        context.set_last_step_output("own", next.local(), ReduceOp::mean);
        context.set_last_step_output("mirrored", four, ReduceOp::mean);
        CHECK_THROWS_AS(context.set_last_step_output("mirrored", four, ReduceOp::sum), InvalidArgument);
        if (ranks() == 1) {
          context.set_last_step_output("one adds", 5, ReduceOp::sum);
        } else {
          CHECK_THROWS_AS(context.set_last_step_output("one adds", 5, ReduceOp::sum), InvalidArgument);
        }
      },
      input, 2);
  CHECK(inside(strategy).group().meeting().meetings() == before + 5);  // how many steps, two inputs, and two sums
  const MultiStepContext::Outputs& outputs = result.last_step_outputs;
  CHECK(outputs.get<double>("sum") == 2 * triangle());
  CHECK(outputs.get<std::vector<double>>("nest") == std::vector{2.0 * triangle(), 2.0 * (rank() + 1)});
  CHECK(outputs.get<double>("own") == 2 * (rank() + 1));
  CHECK(outputs.get<Mirrored<double>>("mirrored").value() == 4);
  CHECK(outputs.contains("one adds") == (ranks() == 1));
}

TEST_CASE("a loop that does not say how often is one step, on a batch of the program's own type", "[A-57]") {
  Strategy& strategy = runtime().strategy();
  int drawn = 0;
  auto input = make_input_fn_iterator<Batch>(
      strategy, [&](const InputContext&) { return [&] { return std::optional<Batch>{{.number = 10 * ++drawn}}; }; });
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& context, const PerReplica<Batch>& batch) {
        const auto step = [](ReplicaContext&, const Batch& mine) { return mine.number + rank(); };
        context.set_last_step_output("number", strategy.run(step, args(batch)));
      },
      input);
  CHECK(result.steps_run == 1);
  CHECK(drawn == 1);
  CHECK(result.last_step_outputs.get<PerReplica<int>>("number").local() == 10 + rank());
}

TEST_CASE("in replica context an output needs an operation, and is one merge_call", "[G-12]") {
  Strategy& strategy = runtime().strategy();
  auto input = numbers(2);
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& context, const PerReplica<double>& next) {
        strategy.run(
            [&](ReplicaContext&, double mine) {
              const auto refused = Catch::StartsWith("output 'sum' is set in replica context");
              CHECK_THROWS_WITH(context.set_last_step_output("sum", PerReplica{mine}), refused);
              CHECK_THROWS_WITH(context.set_last_step_output("sum", mine), refused);
              const auto before = inside(strategy).group().meeting().meetings();
              context.set_last_step_output("sum", mine, ReduceOp::sum);
              CHECK(inside(strategy).group().meeting().meetings() == before + 1);
            },
            args(next));
      },
      input, 2);
  CHECK(result.last_step_outputs.get<Mirrored<double>>("sum").value() == 2 * triangle());
}

TEST_CASE("ranks that set other outputs at the same place are told so", "[G-11][G-12]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  auto input = numbers(2);
  const std::string name = odd_one() ? "accuracy" : "loss";
  const auto loop = [&](auto&& step) {
    return mismatch_of([&] { (void)run_steps_on_iterator(strategy, step, input, 1); });
  };
  const auto in_cross_replica = loop([&](MultiStepContext& context, const PerReplica<double>& next) {
    context.set_last_step_output(name, next, ReduceOp::sum);
  });
  CHECK_THAT(in_cross_replica, Catch::Contains("{accuracy: f64 }") && Catch::Contains("{loss: f64 }"));
  const auto in_replica = loop([&](MultiStepContext& context, const PerReplica<double>& next) {
    strategy.run([&](ReplicaContext&, double mine) { context.set_last_step_output(name, mine, ReduceOp::sum); },
                 args(next));
  });
  CHECK_THAT(in_replica, Catch::Contains("{accuracy: f64 }") && Catch::Contains("{loss: f64 }"));
  expect_in_step();
}

TEST_CASE("initial outputs hold until a step sets them", "[G-5]") {
  Strategy& strategy = runtime().strategy();
  auto input = numbers(1);
  MultiStepContext::Outputs initial;
  initial.set("loss", strategy.same_on_all(7.5));
  initial.set("steps", PerReplica<int>{rank()});
  const auto loop = [&] {
    return run_steps_on_iterator(
        strategy,
        [](MultiStepContext& context, const PerReplica<double>& next) {
          CHECK(context.last_step_outputs().get<Mirrored<double>>("loss").value() == 7.5);
          context.set_last_step_output("loss", next, ReduceOp::sum);
        },
        input, 1, initial);
  };
  const MultiStepContext::Result set = loop();
  CHECK(set.last_step_outputs.get<Mirrored<double>>("loss").value() == triangle());
  CHECK(set.last_step_outputs.get<PerReplica<int>>("steps").local() == rank());
  const MultiStepContext::Result ended = loop();
  CHECK(ended.steps_run == 0);
  CHECK(ended.last_step_outputs.get<Mirrored<double>>("loss").value() == 7.5);
}

TEST_CASE("outputs that are no tensors are this rank's own, in both contexts, and cost nothing", "[G-14]") {
  Strategy& strategy = runtime().strategy();
  auto input = numbers(2);
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& context, const PerReplica<double>& next) {
        strategy.run([&](ReplicaContext&) {
          const auto before = inside(strategy).group().meeting().meetings();
          context.set_non_tensor_output("words", std::string(static_cast<std::size_t>(rank()), 'x'));
          if (odd_one()) context.set_non_tensor_output("only here", 1);
          CHECK(inside(strategy).group().meeting().meetings() == before);
        });
        context.set_non_tensor_output("number", next.local());
      },
      input, 2);
  CHECK(result.non_tensor_outputs.get<std::string>("words") == std::string(static_cast<std::size_t>(rank()), 'x'));
  CHECK(result.non_tensor_outputs.get<double>("number") == 2 * (rank() + 1));
  CHECK(result.non_tensor_outputs.contains("only here") == (odd_one()));
  CHECK(result.last_step_outputs.empty());
}

TEST_CASE("outputs are those of the work that the steps enqueued", "[G-3]") {
  Strategy strategy = runtime().make_strategy();
  const auto total = strategy.create_sync_on_read({.name = "total", .aggregation = Variable::Aggregation::sum},
                                                  [] { return Tensor::scalar(0.0); });
  strategy.seal();
  auto input = numbers(4, strategy);
  const MultiStepContext::Result result = run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& context, const PerReplica<double>& next) {
        strategy.run([&](ReplicaContext&, double mine) { total.assign_add(Tensor::scalar(mine)); }, args(next));
        const PerReplica component{Tensor::copy_of(total.local(), strategy.stream())};
        context.set_last_step_output("own", component);
        context.set_last_step_output("all", component, ReduceOp::sum);
      },
      input, 4);
  const MultiStepContext::Outputs& outputs = result.last_step_outputs;
  CHECK(outputs.get<PerReplica<Tensor>>("own").local().to_vector<double>() == std::vector{10.0 * (rank() + 1)});
  CHECK(outputs.get<Mirrored<Tensor>>("all").value().to_vector<double>() == std::vector{10.0 * triangle()});
}

TEST_CASE("a loop takes no input of another strategy") {
  Strategy other = runtime().make_strategy();
  auto input = numbers(1);
  CHECK_THROWS_WITH(run_steps_on_iterator(
                        other, [](MultiStepContext&, const auto&) {}, input, 1),
                    Catch::Contains("Mixing different Strategy objects"));
  CHECK(input.next());
}

TEST_CASE("an exception in a loop, inside or outside of run, is a PeerError on the other ranks") {
  Strategy& strategy = runtime().strategy();
  for (const bool in_run : {false, true}) {
    auto input = numbers(3);
    int calls = 0;
    const auto fail = [&] {
      if (odd_one() && calls == 2) throw std::out_of_range{"the cat ate sample 7"};
    };
    const auto loop = [&] {
      (void)run_steps_on_iterator(
          strategy,
          [&](MultiStepContext& context, const PerReplica<double>& next) {
            ++calls;
            if (!in_run) fail();
            strategy.run([&](ReplicaContext&) {
              if (in_run) fail();
            });
            context.set_last_step_output("sum", next, ReduceOp::sum);
          },
          input, 3);
    };
    if (odd_one()) {
      CHECK_THROWS_AS(loop(), std::out_of_range);
    } else {
      CHECK_THAT(message_of<PeerError>(loop), Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                                                  Catch::EndsWith("failed: the cat ate sample 7"));
    }
    CHECK(calls == 2);
    CHECK(inside(strategy).group().meeting().failure()->rank == last());
    CHECK_FALSE(Strategy::has_current());
    expect_in_step();
  }
}
