// What a fit refuses, and what is said of what goes wrong in it.
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "fit_models.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("what goes wrong in a fit is told with its step or its evaluation, and what goes wrong after it is not") {
  struct Evaluations final : Observer {
    bool fail = false;
    void on_evaluating(const Evaluation::Progress&) override {
      if (fail) throw std::runtime_error{"in an evaluation"};
    }
  };
  /// The line about a failure in the fit, if there is one, and that about a run after it.
  const auto lines_of = [](std::optional<std::size_t> bad_call, bool evaluations_fail) {
    const auto group = make_local_group();
    Strategy strategy = strategy_on(*group);
    ScriptedModel model{strategy, 1, [&](std::size_t call, const SampleBatch&) {
                          if (call == bad_call) throw std::runtime_error{"in a step"};
                          return std::vector{0.0};
                        }};
    Sgd sgd{{.learning_rate = 1}};
    Evaluations evaluations;
    evaluations.fail = evaluations_fail;
    const TextSet set = text(8, 5);
    const TextSamples samples{set};
    const FitOptions options{.global_batch = 2, .steps = 3, .shards = 1, .evaluate_every = 2};
    const auto line_of = [&](const auto& program) -> std::string {
      try {
        program();
        return "none";
      } catch (const std::runtime_error&) {
        return group->meeting().failure()->line;
      }
    };
    const std::string in_fit = line_of([&] { fit(strategy, model, sgd, {samples, samples}, options, evaluations); });
    const auto fail = [](ReplicaContext&) { throw std::runtime_error{"in another run"}; };
    return std::pair{in_fit, line_of([&] { strategy.run(fail); })};
  };
  const auto told = [](const std::string& where) { return Catch::Contains(where + ", computing (fit_failures.cpp:"); };
  const auto [in_step, after_step] = lines_of(1, false);
  CHECK_THAT(in_step, told("in a step; this was in step 2"));
  CHECK_THAT(after_step, told("in another run; this was in step 3"));
  const auto [in_evaluation, after_evaluation] = lines_of({}, true);
  CHECK_THAT(in_evaluation, told("in an evaluation; this was in the evaluation after step 2"));
  CHECK_THAT(after_evaluation, told("in another run; this was in step 4"));
  const auto [nowhere, after] = lines_of({}, false);
  CHECK(nowhere == "none");
  CHECK_THAT(after, told("in another run; this was in step 6"));  // three steps and two evaluations were runs before
}

TEST_CASE("no micro-batches at all are refused") {
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 1, .accumulate = 0};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums), "micro-batches of a shard: 0, expected at least 1");
}

TEST_CASE("a frozen variable that the model does not have is refused, and freezing all of them") {
  FitOptions options{.global_batch = 4};
  options.frozen = {"v"};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums), "frozen variable 'v': the model has none of this name");
  options.frozen = {"w"};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums),
                    Catch::Contains("every variable of the model is frozen"));
}
