// Batches that are drawn ahead of their steps: the same as without, and what is told of those that fail.
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/distribute.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/feed/batch_outline.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Values = std::vector<float>;

/// {rank, i, 0.5}, in a shape that changes from batch to batch.
Tensor batch_of(int i) {
  const float r = static_cast<float>(rank()), f = static_cast<float>(i);
  return i % 3 == 0 ? Tensor::from({r, f, .5f}, {3}) : Tensor::from({r, f, .5f, r, f, .5f}, {2, 3});
}

/// The batches that a source has drawn, and that its consumer has taken.
struct Progress {
  std::atomic<int> drawn = 0;
  std::atomic<int> taken = 0;
  std::atomic<int> furthest = 0;  ///< the most that were drawn and not yet taken
  void draw() {
    const int ahead = ++drawn - taken;
    int before = furthest;
    while (before < ahead && !furthest.compare_exchange_weak(before, ahead)) continue;
  }
};

/// `count` batches.
detail::InputFn<Tensor> batches(int count, Progress& progress) {
  return [count, &progress](const InputContext&) {
    return [count, &progress, i = 0]() mutable -> std::optional<Tensor> {
      progress.draw();
      return i < count ? std::optional{batch_of(i++)} : std::nullopt;
    };
  };
}

/// As the rank's device has it once the work before is done, and only that.
Values read(const Tensor& tensor) {
  Stream& stream = runtime().strategy().stream();
  const Tensor copy = Tensor::copy_of(tensor.view(), stream);
  stream.synchronize();
  return copy.to_vector<float>();
}

/// Shapes and values of everything.
using Seen = std::vector<std::pair<Shape, Values>>;
template <class Batch>
Seen all_of(DistributedIterator<Batch> iterator) {
  Seen seen;
  while (const auto next = iterator.next())
    detail::visit_tensors(detail::description_of<Batch>(), &next->local(),
                          [&](const Tensor& tensor) { seen.emplace_back(tensor.shape(), read(tensor)); });
  return seen;
}

void expect_failure_of_last(const std::function<void()>& body, const std::string& text) {
  CHECK_THAT(message_of<std::exception>(body), Catch::EndsWith(odd_one() ? text : "failed: " + text));
}

}  // namespace

TEST_CASE("batches drawn ahead are the same as without, on the rank's device", "[F-3]") {
  Strategy& strategy = runtime().strategy();
  Progress progress;
  std::vector<float> rows;
  for (int row = 0; row < 7 * ranks() + 1; ++row) rows.push_back(static_cast<float>(row));
  const Tensor array = Tensor::from(rows, {std::ssize(rows)});
  const detail::Dataset<Tensor> dataset = [&] {
    return [&, i = 0]() mutable {
      return i < 5 ? std::optional{Tensor::stack(std::vector(ranks(), Tensor::scalar(static_cast<float>(i++))))}
                   : std::nullopt;
    };
  };
  using Named = std::map<std::string, std::vector<Tensor>>;
  const auto open = [](const std::filesystem::path& file) {
    return [name = file.string(), i = 0]() mutable -> std::optional<Named> {
      if (i == 2) return std::nullopt;
      return Named{{name, {batch_of(i++), Tensor::scalar(1.f)}}};
    };
  };
  const auto seen = [&](int prefetch) {
    const std::int64_t n = ranks();
    Seen all;
    const auto add = [&](Seen more) { all.insert(all.end(), more.begin(), more.end()); };
    for (const InputOptions::EndOfInput end :
         {InputOptions::EndOfInput::when_all_end, InputOptions::EndOfInput::when_first_ends})
      add(all_of(make_input_fn_iterator(strategy, batches(5 + rank() % 2, progress),
                                        InputOptions{.end = end, .prefetch_batches = prefetch})));
    add(all_of(make_dataset_iterator(strategy, array,
                                     {.global_batch_size = n, .num_epochs = 2, .prefetch_batches = prefetch})));
    add(all_of(make_dataset_iterator(strategy, dataset, {.global_batch_size = n, .prefetch_batches = prefetch})));
    add(all_of(make_dataset_iterator(strategy, dataset, InputOptions::Elements{.prefetch_batches = prefetch})));
    add(all_of(
        distribute_dataset<Named>(strategy, {"a", "b", "c"}, open,
                                  {.auto_shard = InputOptions::AutoShard::by_element, .prefetch_batches = prefetch})));
    return all;
  };
  const Seen expected = seen(0);
  CHECK(expected.size() > 20);
  for (const int prefetch : {1, 2, 9}) {
    CAPTURE(prefetch);
    CHECK(seen(prefetch) == expected);
  }
  auto iterator = make_input_fn_iterator(strategy, batches(1, progress), InputOptions{.prefetch_batches = 1});
  CHECK(iterator.next()->local().device() == strategy.stream().kind());
  expect_in_step();
}

TEST_CASE("as many batches are drawn ahead as asked for, and nothing is sent for them", "[F-3]") {
  Strategy& strategy = runtime().strategy();
  Progress progress;
  {
    auto iterator = make_input_fn_iterator(strategy, batches(9, progress), InputOptions{.prefetch_batches = 3});
    CHECK(progress.drawn == 0);
    const auto before = inside(strategy).group().meeting().meetings();
    std::vector<Tensor> taken;  // nothing waits for their copies to the device before the last is there
    for (int i = 0; i < 6; ++i) {
      taken.push_back(iterator.next()->local());
      const int ahead = ++progress.taken + 3;
      while (progress.drawn < ahead) continue;  // while this rank does something else
    }
    CHECK(inside(strategy).group().meeting().meetings() == before + 6);
    for (int i = 0; i < 6; ++i) CHECK(read(taken[static_cast<std::size_t>(i)]).at(1) == static_cast<float>(i));
  }
  CHECK(progress.drawn == 9);
  CHECK(progress.furthest <= 4);
}

TEST_CASE("an exception of a source that is ahead comes at its own batch, and the source waits for it", "[F-3]") {
  Strategy& strategy = runtime().strategy();
  std::atomic<int> drawn = 0;
  const detail::InputFn<Tensor> input_fn = [&](const InputContext&) {
    return [&]() -> std::optional<Tensor> {
      const int i = drawn++;
      if (i == 2 && odd_one()) throw std::out_of_range{"no such file"};
      return Tensor::scalar(static_cast<float>(i));
    };
  };
  auto iterator = make_input_fn_iterator(strategy, input_fn, InputOptions{.prefetch_batches = 5});
  for (int i = 0; i < 2; ++i) CHECK(read(iterator.next()->local()) == Values{static_cast<float>(i)});
  expect_failure_of_last([&] { (void)iterator.next(); }, "no such file");
  if (odd_one()) CHECK(drawn == 3);
  CHECK(read(iterator.next()->local()) == Values{3});
  expect_in_step();
}

TEST_CASE("the number of batches to draw ahead is 0 or more, on all ranks", "[F-3]") {
  Strategy& strategy = runtime().strategy();
  Progress progress;
  const std::string told = "prefetch_batches is -1; expected 0 or more";
  const auto make = [&](int prefetch) {
    return [&, prefetch] {
      (void)make_input_fn_iterator(strategy, batches(1, progress), InputOptions{.prefetch_batches = prefetch});
    };
  };
  CHECK_THROWS_AS(make(-1)(), InvalidArgument);
  CHECK_THROWS_WITH(make(-1)(), told);
  expect_failure_of_last(make(odd_one() ? -1 : 1), told);
  CHECK_THROWS_WITH(
      make_dataset_iterator(strategy, batch_of(0), {.global_batch_size = ranks(), .prefetch_batches = -1}), told);
  // Each rank may have its own.
  auto iterator = make_input_fn_iterator(strategy, batches(3, progress), InputOptions{.prefetch_batches = rank()});
  for (int i = 0; i < 3; ++i) CHECK(read(iterator.next()->local()).at(1) == static_cast<float>(i));
  CHECK_FALSE(iterator.next());
  expect_in_step();
}

TEST_CASE("a source that is ahead has the strategy, and meets no other rank", "[F-3]") {
  Strategy strategy = runtime().make_strategy();
  std::atomic<bool> in_scope = true;
  int next = 0;
  const detail::InputFn<int> input_fn = [&](const InputContext&) -> detail::Source<int> {
    return [&]() -> std::optional<int> {
      in_scope = in_scope && Strategy::in_cross_replica_context() && &Strategy::current() == &strategy &&
                 !ReplicaContext::current() && inside(Strategy::current()).group().rank() == rank();
      ++next;
      if (next == 2) (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
      if (next == 3) strategy.run([](ReplicaContext&) {});
      if (next == 4) (void)runtime().make_strategy();
      return next;
    };
  };
  auto iterator = make_input_fn_iterator(strategy, input_fn, InputOptions{.prefetch_batches = 2});
  CHECK(iterator.next()->local() == 1);
  for (const std::string what : {"an agreement", "a run", "an agreement"}) {
    const std::string told = message_of<ContextError>([&] { (void)iterator.next(); });
    CHECK_THAT(told, Catch::StartsWith(what + " (") && Catch::Contains("prefetch.cpp") &&
                         Catch::EndsWith(
                             " in a source whose batches are prefetched: expected nothing that the ranks do together"));
  }
  CHECK(iterator.next()->local() == 5);
  CHECK(in_scope);
  expect_in_step();
}

TEST_CASE("a new beginning ends what was ahead, and so do a move and the end of an iterator", "[F-3]") {
  Strategy& strategy = runtime().strategy();
  Progress progress;
  std::atomic<int> alive = 0;
  const detail::InputFn<Tensor> input_fn = [&](const InputContext& context) -> detail::Source<Tensor> {
    CHECK(alive == 0);  // what was drawn ahead has ended
    const std::shared_ptr<void> count{nullptr, [&](void*) { --alive; }};
    ++alive;
    return [count, source = batches(4, progress)(context)] { return source(); };
  };
  {
    auto first = make_input_fn_iterator(strategy, input_fn, InputOptions{.prefetch_batches = 2});
    for (const int taken : {0, 1, 4, 5}) {
      for (int i = 0; i < taken; ++i) {
        const auto next = first.next();
        REQUIRE(next.has_value() == (i < 4));
        if (next) CHECK(read(next->local()).at(1) == static_cast<float>(i));
      }
      first.initialize();
    }
    auto moved = std::move(first);
    CHECK(read(moved.next()->local()).at(1) == 0);
  }
  CHECK(alive == 0);
  expect_in_step();
}
