// Iterators whose ranks have input of their own: where each gets it from, and how they come to the end together.
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Numbers = std::vector<int>;

/// Counts how often its function and its sources are called on this rank.
struct Calls {
  int functions = 0;
  int draws = 0;
};

/// `count` batches: {10 * rank}, {10 * rank + 1}, …
detail::InputFn<Numbers> batches(int count, Calls& calls) {
  return [count, &calls](const InputContext&) {
    ++calls.functions;
    return [count, &calls, next = 0]() mutable -> std::optional<Numbers> {
      ++calls.draws;
      if (next == count) return std::nullopt;
      return Numbers{10 * rank() + next++};
    };
  };
}

/// Every kind of leaf that a batch may have.
struct Samples {
  Tensor images;
  std::pair<Tensor, int> labels;
  std::vector<Tensor> views;
  std::map<std::string, Tensor> named;
  IndexedSlices rows;
  Numbers ids;
  std::string origin;  ///< of which the nest knows nothing
};

/// Two samples of replica `of` in step `step`, with extents of their own. The images are in memory of the device.
Samples samples_of(int of, int step, Stream& stream) {
  const std::int64_t r = of, s = step;
  return {.images = Tensor::zeros(DType::f64, {2, 3 + r, 5 + s}, stream),
          .labels = {Tensor::zeros(DType::u8, {2}), 7},
          .views = {Tensor::zeros(DType::f32, {2, 1 + r}), Tensor::scalar(1.5f)},
          .named = {{"mask", Tensor::zeros(DType::i32, {2, 4})}, {"of " + std::to_string(of), Tensor::scalar(2.5)}},
          .rows = {Tensor::zeros(DType::f32, {2, 4}), Tensor::from<std::int64_t>({0, r}, {2}), {9, 4}},
          .ids = {1, 2},
          .origin = "a file"};
}

/// Types, shapes and devices of all that a batch holds.
std::string text_of(const Samples& samples) {
  std::string text;
  const auto add = [&](const Tensor& tensor) {
    text.append(describe(tensor.view())).append(" ").append(name_of(tensor.device())).append(", ");
  };
  add(samples.images);
  add(samples.labels.first);
  text += std::to_string(samples.labels.second) + "; ";
  for (const Tensor& view : samples.views) add(view);
  for (const auto& [name, tensor] : samples.named) {
    text += "'" + name + "' ";
    add(tensor);
  }
  add(samples.rows.values);
  add(samples.rows.indices);
  return text + describe(samples.rows.dense_shape) + ", " + std::to_string(samples.ids.size()) + " ids, '" +
         samples.origin + "'";
}

/// What `next` gives until the end.
std::vector<Numbers> steps_of(DistributedIterator<Numbers>& iterator) {
  std::vector<Numbers> all;
  while (const auto next = iterator.next()) all.push_back(next->local());
  return all;
}

/// `body` throws `Own` on the last rank, and a PeerError that names it on the others.
template <class Own, class Body>
void expect_failure_of_last(Body&& body, const std::string& text) {
  if (odd_one()) {
    CHECK_THROWS_AS(body(), Own);
  } else {
    CHECK_THAT(message_of<PeerError>(body),
               Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::EndsWith("failed: " + text));
  }
}

}  // namespace

template <>
struct lockstep::Nest<Samples> {
  static constexpr auto members =
      std::tuple{&Samples::images, &Samples::labels, &Samples::views, &Samples::named, &Samples::rows, &Samples::ids};
};

TEST_CASE("an input function is called once on each rank, in the scope, with the place of its pipeline",
          "[A-29][A-30][F-11][F-14][F-19]") {
  Strategy strategy = runtime().make_strategy();
  int calls = 0, draws = 0;
  const auto in_scope = [&] { return Strategy::in_cross_replica_context() && &Strategy::current() == &strategy; };
  const detail::InputFn<Numbers> input_fn = [&](const InputContext& context) {
    ++calls;
    CHECK(in_scope());
    CHECK(context.num_input_pipelines() == ranks());
    CHECK(context.input_pipeline_id() == rank());
    CHECK(context.num_replicas_in_sync() == ranks());
    return [&]() -> std::optional<Numbers> {
      CHECK(in_scope());
      return Numbers{++draws};
    };
  };
  auto iterator = make_input_fn_iterator(strategy, input_fn);
  CHECK(calls == 1);
  CHECK(draws == 0);
  CHECK_FALSE(Strategy::has_current());
  CHECK(iterator.next()->local() == Numbers{1});
  CHECK(iterator.next()->local() == Numbers{2});
  CHECK(calls == 1);
  CHECK_FALSE(Strategy::has_current());
}

TEST_CASE("a step runs while any rank has data, and ranks without get empty batches", "[F-13][F-21][F-22]") {
  Calls calls;
  auto iterator = make_input_fn_iterator(runtime().strategy(), batches(rank(), calls));  // none on replica 0
  std::vector<Numbers> expected;
  for (int step = 0; step < last(); ++step) expected.push_back(step < rank() ? Numbers{10 * rank() + step} : Numbers{});
  CHECK(steps_of(iterator) == expected);
  CHECK_FALSE(iterator.next());
  CHECK(calls.functions == 1);
  CHECK(calls.draws == rank() + 1);  // one a step, and not after the end
}

TEST_CASE("a rank without data gets the types and shapes of the lowest rank that has some, and no samples", "[F-24]") {
  Strategy& strategy = runtime().strategy();
  const auto own = [&](int step) { return samples_of(rank(), step, strategy.stream()); };
  auto iterator = make_input_fn_iterator<Samples>(strategy, [&](const InputContext&) {
    return [&, step = 0]() mutable { return step < rank() ? std::optional{own(step++)} : std::nullopt; };
  });
  const std::string device{name_of(strategy.stream().kind())};
  const auto meetings = [&] { return inside(strategy).group().meeting().meetings(); };
  for (int step = 0; step < last(); ++step) {
    CAPTURE(step);
    const auto before = meetings();
    const auto next = iterator.next();
    CHECK(meetings() == before + 2);  // one more: replica 0 lacks a batch in every step
    REQUIRE(next);
    const Samples& batch = next->local();
    if (step < rank()) {
      CHECK(text_of(batch) == text_of(own(step)));
    } else {
      // Replica `rank()` has had batches of its own until now. Their shapes count no longer.
      const std::string r = std::to_string(step + 1);
      CHECK(text_of(batch) == "f64[0, " + std::to_string(4 + step) + ", " + std::to_string(5 + step) + "] " + device +
                                  ", u8[0] cpu, 0; f32[0, " + std::to_string(2 + step) +
                                  "] cpu, f32[] cpu, 'mask' i32[0, 4] cpu, 'of " + r +
                                  "' f64[] cpu, f32[0, 4] cpu, i64[0] cpu, [9, 4], 0 ids, ''");
      CHECK(batch.views.at(1).to_vector<float>() == std::vector<float>{0});
    }
    // So that it takes part in reductions like the others.
    CHECK(strategy.reduce(ReduceOp::sum, PerReplica{batch.rows}).indices.count() == 2 * (last() - step));
    CHECK(strategy.reduce(ReduceOp::sum, PerReplica{batch.labels.second}) == 7 * (last() - step));
  }
  const auto before = meetings();
  CHECK_FALSE(iterator.next());
  CHECK(meetings() == before + 1);
}

TEST_CASE("a batch that looks the same without samples everywhere costs no message to know", "[F-24]") {
  Calls calls;
  auto iterator = make_input_fn_iterator(runtime().strategy(), batches(odd_one() ? 2 : 1, calls));
  const auto before = inside(runtime().strategy()).group().meeting().meetings();
  CHECK(iterator.next());
  CHECK(iterator.next());
  CHECK(inside(runtime().strategy()).group().meeting().meetings() == before + 2);
}

TEST_CASE("where the first end ends the input, no rank gets a step that one has no batch for", "[F-23]") {
  Strategy& strategy = runtime().strategy();
  Calls calls;
  // Replica 0 has the fewest: as many as there are ranks.
  auto iterator = make_input_fn_iterator(strategy, batches(ranks() + rank(), calls),
                                         InputOptions{.end = InputOptions::EndOfInput::when_first_ends});
  for (int time = 0; time < 2; ++time) {
    std::vector<Numbers> expected;
    for (int step = 0; step < ranks(); ++step) expected.push_back({10 * rank() + step});
    CHECK(steps_of(iterator) == expected);
    CHECK_FALSE(iterator.next());
    CHECK(calls.draws == (time + 1) * (ranks() + 1));  // the batch of the step that was none is lost
    iterator.initialize();
  }

  // One rank that starts over has batches again, and still there is no step.
  while (iterator.next()) continue;
  if (odd_one()) iterator.initialize();
  CHECK(iterator.next().has_value() == (ranks() == 1));
  expect_in_step();
}

TEST_CASE("an end with the first rank's costs no message, and no batch without samples", "[F-23]") {
  Strategy& strategy = runtime().strategy();
  auto iterator = make_input_fn_iterator<Samples>(
      strategy,
      [&](const InputContext&) {
        return [&, step = 0]() mutable {
          return step < 1 + rank() ? std::optional{samples_of(rank(), step++, strategy.stream())} : std::nullopt;
        };
      },
      InputOptions{.end = InputOptions::EndOfInput::when_first_ends});
  const auto before = inside(strategy).group().meeting().meetings();
  CHECK(iterator.next());
  CHECK_FALSE(iterator.next());
  CHECK_FALSE(iterator.next());
  CHECK(inside(strategy).group().meeting().meetings() == before + 3);
}

TEST_CASE("ranks whose input ends otherwise are told so", "[F-23]") {
  if (ranks() == 1) return;
  Calls calls;
  const auto end = odd_one() ? InputOptions::EndOfInput::when_first_ends : InputOptions::EndOfInput::when_all_end;
  const std::string told = mismatch_of(
      [&] { (void)make_input_fn_iterator(runtime().strategy(), batches(1, calls), InputOptions{.end = end}); });
  CHECK_THAT(told, Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                       Catch::Contains("an iterator over an input function, until the first rank has none"));
  expect_in_step();
}

TEST_CASE("a pipeline that starts over on one rank leaves those of the others where they are", "[F-20]") {
  Calls calls;
  auto iterator = make_input_fn_iterator(runtime().strategy(), batches(4, calls));
  CHECK(iterator.next()->local() == Numbers{10 * rank()});
  CHECK(iterator.next()->local() == Numbers{10 * rank() + 1});
  if (odd_one()) iterator.initialize();
  CHECK(iterator.next()->local() == Numbers{10 * rank() + (odd_one() ? 0 : 2)});
  CHECK(calls.functions == (odd_one() ? 2 : 1));
  CHECK(calls.draws == 3);
  // The one that began again has two more batches than the others.
  CHECK(steps_of(iterator).size() == 3);
  CHECK(calls.draws == (odd_one() ? 7 : 5));
}

TEST_CASE("the next batch costs one agreement, and so do the end and the making of an iterator") {
  Strategy& strategy = runtime().strategy();
  Calls calls;
  const auto before = inside(strategy).group().meeting().meetings();
  auto iterator = make_input_fn_iterator(strategy, batches(1, calls));
  CHECK(inside(strategy).group().meeting().meetings() == before + 1);
  CHECK(iterator.next());
  CHECK(inside(strategy).group().meeting().meetings() == before + 2);
  CHECK_FALSE(iterator.next());
  CHECK(inside(strategy).group().meeting().meetings() == before + 3);
}

TEST_CASE("initialize starts over, from the middle and from the end", "[F-21]") {
  Strategy strategy = runtime().make_strategy();
  Calls calls;
  auto iterator = make_input_fn_iterator(strategy, batches(2, calls));
  Strategy moved = std::move(strategy);
  const auto all = std::vector<Numbers>{{10 * rank()}, {10 * rank() + 1}};
  CHECK(iterator.next()->local() == all[0]);
  iterator.initialize();
  CHECK(calls.functions == 2);
  CHECK(steps_of(iterator) == all);
  iterator.initialize();
  CHECK(calls.functions == 3);
  CHECK(steps_of(iterator) == all);
}

TEST_CASE("a source that throws on one rank fails the step on all, and the iterator goes on") {
  Strategy& strategy = runtime().strategy();
  auto iterator = make_input_fn_iterator<Numbers>(strategy, [](const InputContext&) {
    return [next = 0]() mutable -> std::optional<Numbers> {
      if (++next == 2 && odd_one()) throw std::out_of_range{"no such file"};
      return Numbers{next};
    };
  });
  CHECK(iterator.next()->local() == Numbers{1});
  expect_failure_of_last<std::out_of_range>([&] { (void)iterator.next(); }, "no such file");
  CHECK(iterator.next()->local() == Numbers{3});
  expect_in_step();
}

TEST_CASE("an input function that throws on one rank fails the making on all, or the next batch after initialize") {
  Strategy& strategy = runtime().strategy();
  bool throws = true;
  const detail::InputFn<Numbers> input_fn = [&](const InputContext&) -> detail::Source<Numbers> {
    if (throws && odd_one()) throw std::out_of_range{"no such folder"};
    return [] { return Numbers{1}; };
  };
  const auto make = [&] { return make_input_fn_iterator(strategy, input_fn); };
  expect_failure_of_last<std::out_of_range>([&] { (void)make(); }, "no such folder");
  throws = false;
  auto iterator = make();
  throws = true;
  iterator.initialize();
  for (int i = 0; i < 2; ++i)
    expect_failure_of_last<std::out_of_range>([&] { (void)iterator.next(); }, "no such folder");
  throws = false;
  iterator.initialize();
  CHECK(iterator.next()->local() == Numbers{1});
  expect_in_step();
}

TEST_CASE("an input function must return a source of batches", "[F-1][F-12]") {
  static_assert(!std::is_convertible_v<int (*)(const InputContext&), detail::InputFn<Numbers>>);
  static_assert(!std::is_convertible_v<Numbers (*)(const InputContext&), detail::InputFn<Numbers>>);
  static_assert(std::is_convertible_v<detail::Source<Numbers> (*)(const InputContext&), detail::InputFn<Numbers>>);
  const auto make = [] {
    return make_input_fn_iterator<Numbers>(runtime().strategy(), [](const InputContext&) -> detail::Source<Numbers> {
      if (odd_one()) return {};
      return [] { return Numbers{1}; };
    });
  };
  expect_failure_of_last<InvalidArgument>([&] { (void)make(); }, "input_fn must return a source of batches");
  expect_in_step();
}

TEST_CASE("iterators are made, asked and started in cross-replica context only", "[A-55]") {
  Strategy& strategy = runtime().strategy();
  Calls calls;
  auto iterator = make_input_fn_iterator(strategy, batches(1, calls));
  const Tensor array = Tensor::zeros(DType::f32, {4});
  const auto told = "Method requires being in cross-replica context, use ReplicaContext::current()->merge_call()";
  strategy.run([&](ReplicaContext& context) {
    CHECK_THROWS_WITH(iterator.next(), Catch::EndsWith(told));
    CHECK_THROWS_WITH(iterator.initialize(), Catch::StartsWith("scope (iterators.cpp:") && Catch::EndsWith(told));
    CHECK_THROWS_WITH(make_input_fn_iterator(strategy, batches(1, calls)), Catch::EndsWith(told));
    CHECK_THROWS_WITH(make_dataset_iterator(strategy, array, {.global_batch_size = ranks()}), Catch::EndsWith(told));
    CHECK(calls.functions == 1);
    CHECK(calls.draws == 0);
    context.merge_call([&](Strategy&) { CHECK(iterator.next()->local() == Numbers{10 * rank()}); });
  });
}

TEST_CASE("ranks that make other iterators, or ask another one, are told so", "[F-5]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const bool odd = odd_one();
  Calls calls;
  const Here here = Here::current();
  const std::string making = mismatch_of([&] {
    if (odd) {
      (void)make_dataset_iterator<Tensor>(
          strategy, [] { return [] { return std::optional<Tensor>{}; }; }, {.global_batch_size = ranks()}, here);
    } else {
      (void)make_input_fn_iterator(strategy, batches(1, calls), here);
    }
  });
  CHECK_THAT(making, Catch::StartsWith("replica " + std::to_string(last()) + " ("));
  CHECK_THAT(making, Catch::Contains("with an iterator over an input function"));
  CHECK_THAT(making,
             Catch::Contains("with an iterator over a dataset in global batches of " + std::to_string(ranks())));

  auto iterator = make_input_fn_iterator(strategy, batches(3, calls));
  const std::string stepping = mismatch_of([&] {
    if (odd) {
      strategy.run([](ReplicaContext&) {});
    } else {
      (void)iterator.next();
    }
  });
  CHECK_THAT(stepping, Catch::Contains("has finished ") && Catch::Contains("at input #"));
  expect_in_step();
}
