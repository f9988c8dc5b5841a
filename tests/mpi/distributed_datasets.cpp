// Datasets that ranks share out: element by element, file by file, or as a range of global batches.
#include <filesystem>
#include <ranges>
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

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Numbers = std::vector<int>;

/// 0, 1, … count - 1.
detail::Dataset<int> count_to(int count) {
  return [=] { return [=, next = 0]() mutable { return next < count ? std::optional{next++} : std::nullopt; }; };
}

detail::InputFn<Numbers> numbers_to(int count) {
  return [=](const InputContext&) {
    return [=, next = 0]() mutable { return next < count ? std::optional{Numbers{next++}} : std::nullopt; };
  };
}

struct Files {
  std::vector<std::filesystem::path> files;
  std::function<detail::Source<Numbers>(const std::filesystem::path&)> open;
};

DistributedIterator<Numbers> distribute_files(Strategy& strategy, const Files& files, InputOptions options = {}) {
  return distribute_dataset<Numbers>(strategy, files.files, files.open, options);
}

/// File i holds i + 1 batches: {10 * i}, {10 * i + 1}, … The names of those that were opened go to `opened`.
Files files_to(int count, std::vector<std::string>& opened) {
  Files dataset;
  for (int file = 0; file < count; ++file) dataset.files.emplace_back(std::to_string(file));
  dataset.open = [&opened](const std::filesystem::path& file) {
    opened.push_back(file.string());
    return [number = std::stoi(file.string()), next = 0]() mutable -> std::optional<Numbers> {
      if (next > number) return std::nullopt;
      return Numbers{10 * number + next++};
    };
  };
  return dataset;
}

/// What this rank gets until the end; a batch without samples is nothing.
Numbers all_of(DistributedIterator<Numbers>& iterator) {
  Numbers all;
  while (const auto next = iterator.next()) all.insert(all.end(), next->local().begin(), next->local().end());
  return all;
}

std::string culprit() {
  return "replica " + std::to_string(last()) + " (";
}

/// Two whole batches of one row a replica: row i is i.
detail::Dataset<Tensor> two_batches() {
  return [] {
    return [batch = 0]() mutable -> std::optional<Tensor> {
      if (batch == 2) return std::nullopt;
      std::vector<std::int64_t> rows;
      for (int i = 0; i < ranks(); ++i) rows.push_back(batch * ranks() + i);
      ++batch;
      return Tensor::from(rows, {ranks()});
    };
  };
}

constexpr InputOptions::Elements elements{};

}  // namespace

TEST_CASE("elements are dealt to the replicas in turn, and all end together where too few are left", "[F-2]") {
  Strategy& strategy = runtime().strategy();
  for (const int left : {0, last()}) {
    CAPTURE(left);
    auto iterator = make_dataset_iterator(strategy, count_to(3 * ranks() + left), elements);
    for (int time = 0; time < 2; ++time) {
      for (int step = 0; step < 3; ++step) CHECK(iterator.next()->local() == step * ranks() + rank());
      CHECK_FALSE(iterator.next());
      CHECK_FALSE(iterator.next());
      iterator.initialize();
    }
  }
  const auto before = inside(strategy).group().meeting().meetings();
  auto none = make_dataset_iterator<Tensor>(
      strategy, [] { return [] { return std::optional<Tensor>{}; }; }, elements);
  CHECK_FALSE(none.next());
  CHECK(inside(strategy).group().meeting().meetings() == before + 2);
}

TEST_CASE("elements that differ between ranks in number, shape or type are found", "[F-2]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const auto n = std::to_string(ranks());
  auto numbers = make_dataset_iterator(strategy, count_to(ranks() + (odd_one() ? 1 : 0)), elements);
  CHECK(numbers.next());
  CHECK_THAT(mismatch_of([&] { (void)numbers.next(); }),
             Catch::StartsWith(culprit()) &&
                 Catch::Contains("with the end of the dataset after " + std::to_string(ranks() + 1) + " elements"));

  // The elements of a round may differ in shape, if they do so alike on all ranks.
  const auto shapes = [&](std::int64_t of_first) -> detail::Dataset<std::pair<Tensor, std::string>> {
    return [=] {
      return [=, next = 0]() mutable -> std::optional<std::pair<Tensor, std::string>> {
        return std::pair{Tensor::zeros(DType::f32, {next++ == 0 ? of_first : 2}), "rank " + std::to_string(rank())};
      };
    };
  };
  auto alike = make_dataset_iterator(strategy, shapes(3), elements);
  CHECK(alike.next()->local().first.shape() == Shape{rank() == 0 ? 3 : 2});
  auto other = make_dataset_iterator(strategy, shapes(odd_one() ? 2 : 3), elements);
  CHECK_THAT(mismatch_of([&] { (void)other.next(); }),
             Catch::StartsWith(culprit()) &&
                 Catch::Contains("elements 0 to " + std::to_string(last()) + ", each f32[2]") &&
                 Catch::Contains("elements 0 to " + std::to_string(last()) + ": f32[3]; f32[2]"));
  expect_in_step();
}

TEST_CASE("a dataset of elements that throws or is no source fails on all ranks", "[F-2]") {
  Strategy& strategy = runtime().strategy();
  const auto expect_failure = [](const auto& body, const std::string& text) {
    const std::string told = message_of<std::exception>(body);
    CHECK_THAT(told, Catch::EndsWith(odd_one() ? text : "failed: " + text));
  };
  auto iterator = make_dataset_iterator<int>(
      strategy,
      [] {
        return [next = 0]() mutable -> std::optional<int> {
          if (next++ == ranks() && odd_one()) throw std::out_of_range{"no such element"};
          return next;
        };
      },
      elements);
  CHECK(iterator.next());
  expect_failure([&] { (void)iterator.next(); }, "no such element");
  expect_failure(
      [&] {
        (void)make_dataset_iterator<int>(
            strategy, [] { return odd_one() ? detail::Source<int>{} : [] { return std::optional{1}; }; }, elements);
      },
      "dataset must return a source of batches");
  expect_in_step();
}

TEST_CASE("an input function is called once on each rank, and its data are not sharded unasked", "[F-4][F-6]") {
  CHECK(InputOptions{}.auto_shard == InputOptions::AutoShard::off);
  int calls = 0;
  const detail::InputFn<Numbers> input_fn = [&](const InputContext& context) {
    ++calls;
    CHECK(context.num_input_pipelines() == ranks());
    CHECK(context.input_pipeline_id() == rank());
    return numbers_to(3)(context);
  };
  auto iterator = distribute_dataset(runtime().strategy(), input_fn);
  CHECK(all_of(iterator) == Numbers{0, 1, 2});
  CHECK(calls == 1);

  std::vector<std::string> opened;
  auto of_files = distribute_files(runtime().strategy(), files_to(2, opened));
  CHECK(opened.empty());
  CHECK(all_of(of_files) == Numbers{0, 10, 11});
  CHECK(opened == std::vector<std::string>{"0", "1"});
}

TEST_CASE("each rank gets its own elements of what all of them read", "[F-27]") {
  std::vector<std::string> opened;
  for (const InputOptions::AutoShard shard :
       {InputOptions::AutoShard::by_element, InputOptions::AutoShard::automatic}) {
    auto iterator = distribute_dataset(runtime().strategy(), numbers_to(2 * ranks() + 1), {.auto_shard = shard});
    for (int time = 0; time < 2; ++time) {
      Numbers expected{rank(), ranks() + rank()};
      if (rank() == 0) expected.push_back(2 * ranks());
      CHECK(all_of(iterator) == expected);
      iterator.initialize();
    }
  }
  // Elements are counted over all files: 0, 10, 11, 20, 21, 22.
  auto of_files =
      distribute_files(runtime().strategy(), files_to(3, opened), {.auto_shard = InputOptions::AutoShard::by_element});
  Numbers expected;
  const Numbers all{0, 10, 11, 20, 21, 22};
  for (std::size_t i = 0; i < all.size(); ++i)
    if (static_cast<int>(i) % ranks() == rank()) expected.push_back(all[i]);
  CHECK(all_of(of_files) == expected);
  CHECK(opened == std::vector<std::string>{"0", "1", "2"});

  // One more for replica 0 is no step, if the first end counts.
  auto first = distribute_dataset(
      runtime().strategy(), numbers_to(2 * ranks() + 1),
      {.auto_shard = InputOptions::AutoShard::by_element, .end = InputOptions::EndOfInput::when_first_ends});
  CHECK(std::ssize(all_of(first)) == (ranks() == 1 ? 3 : 2));
}

TEST_CASE("each rank opens its own files and no others", "[F-4][F-27]") {
  for (const InputOptions::AutoShard shard : {InputOptions::AutoShard::by_file, InputOptions::AutoShard::automatic}) {
    std::vector<std::string> opened, names;
    auto iterator = distribute_files(runtime().strategy(), files_to(ranks() + 1, opened), {.auto_shard = shard});
    Numbers expected;
    for (int file = rank(); file <= ranks(); file += ranks()) {
      names.push_back(std::to_string(file));
      for (int next = 0; next <= file; ++next) expected.push_back(10 * file + next);
    }
    CHECK(all_of(iterator) == expected);
    CHECK(opened == names);
    iterator.initialize();
    CHECK(all_of(iterator) == expected);
  }
}

TEST_CASE("ranks whose shards or numbers of files differ are told the numbers, and no files are refused", "[F-27]") {
  Strategy& strategy = runtime().strategy();
  std::vector<std::string> opened;
  CHECK_THROWS_WITH(distribute_files(strategy, files_to(0, opened)), "a dataset of 0 files; expected 1 or more");
  CHECK_THROWS_WITH(
      distribute_dataset(strategy, numbers_to(1), {.auto_shard = InputOptions::AutoShard::by_file}),
      "`auto_shard` is by_file, and an input function has no files; expected off, by_element or automatic");
  CHECK_THROWS_AS(distribute_files(strategy, files_to(1, opened), {.auto_shard = InputOptions::AutoShard{7}}),
                  InvalidArgument);
  expect_in_step();
  if (ranks() == 1) return;
  const std::string numbers =
      mismatch_of([&] { (void)distribute_files(strategy, files_to(odd_one() ? 8 : 9, opened)); });
  CHECK_THAT(numbers, Catch::StartsWith(culprit()) && Catch::Contains("a dataset of 8 files") &&
                          Catch::Contains("a dataset of 9 files"));
  const std::string shards = mismatch_of([&] {
    (void)distribute_files(
        strategy, files_to(9, opened),
        {.auto_shard = odd_one() ? InputOptions::AutoShard::by_element : InputOptions::AutoShard::by_file});
  });
  CHECK_THAT(shards, Catch::Contains("9 files, sharded by file") && Catch::Contains("9 files, sharded by element"));
  expect_in_step();
}

TEST_CASE("a file that cannot be opened fails its step on all ranks, and the next file follows", "[F-27]") {
  Strategy& strategy = runtime().strategy();
  std::vector<std::string> opened;
  Files dataset = files_to(3, opened);
  dataset.open = [open = dataset.open](const std::filesystem::path& file) -> detail::Source<Numbers> {
    if (file == "1" && odd_one()) throw std::runtime_error{"no such file"};
    return open(file);
  };
  auto iterator = distribute_files(strategy, dataset);
  CHECK(iterator.next());
  CHECK_THAT(message_of<std::exception>([&] { (void)iterator.next(); }), Catch::EndsWith("no such file"));
  CHECK(iterator.next()->local() == Numbers{odd_one() ? 20 : 11});

  dataset.open = [](const std::filesystem::path&) { return detail::Source<Numbers>{}; };
  auto empty = distribute_files(strategy, dataset);
  CHECK_THROWS_WITH(empty.next(), "open must return a source of batches");
  expect_in_step();
}

TEST_CASE("a distributed dataset is a range, and each loop over it starts over", "[F-28]") {
  static_assert(std::ranges::input_range<DistributedIterator<Tensor>>);
  Strategy& strategy = runtime().strategy();
  int sources = 0;
  auto dataset = distribute<Tensor>(strategy,
                                    [&] {
                                      ++sources;
                                      return two_batches()();
                                    },
                                    {.global_batch_size = ranks()});
  for (int time = 1; time <= 2; ++time) {
    std::vector<std::int64_t> rows;
    const auto before = inside(strategy).group().meeting().meetings();
    for (const PerReplica<Tensor>& batch : dataset) rows.push_back(batch.local().to_vector<std::int64_t>().at(0));
    CHECK(rows == std::vector<std::int64_t>{rank(), ranks() + rank()});
    CHECK(inside(strategy).group().meeting().meetings() == before + 3);
    CHECK(sources == time);
  }
  for (const auto& batch : dataset) {  // all ranks may leave early, together
    CHECK(batch.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{rank()});
    break;
  }
  int batches = 0;
  for (const auto& batch : distribute(strategy, two_batches(), {.global_batch_size = ranks()}))
    batches += static_cast<int>(batch.local().count());
  CHECK(batches == 2);
}

TEST_CASE("a rank that leaves a loop over a distributed dataset early is told so, and so are the others", "[F-28]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  auto dataset = distribute(strategy, two_batches(), {.global_batch_size = ranks()});
  const std::string told = mismatch_of([&] {
    for (const auto& batch : dataset) {
      CHECK(batch.local().count() == 1);
      if (odd_one()) break;
    }
    (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
  });
  CHECK_THAT(told,
             Catch::StartsWith(culprit()) && Catch::Contains("input #") && Catch::Contains("distributed_datasets.cpp"));
  expect_in_step();

  // In the default context of a replica's run, no batch is drawn.
  strategy.run([&](ReplicaContext&) { CHECK_THROWS_AS(dataset.begin(), ContextError); });
}
