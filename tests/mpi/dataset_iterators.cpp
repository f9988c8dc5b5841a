// Iterators over data that every rank has: which rows of which batch each rank gets.
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>

#include "core/order/sample_order.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Pair = std::pair<Tensor, Tensor>;
using Rows = std::vector<std::int64_t>;

/// first, first + 1, … last - 1.
Rows count_up(std::int64_t first, std::int64_t last) {
  Rows rows;
  for (; first < last; ++first) rows.push_back(first);
  return rows;
}

/// Row i is {i, i + 0.5}, and beside it i.
Pair rows(std::int64_t first, std::int64_t last) {
  std::vector<float> values;
  for (std::int64_t i = first; i < last; ++i)
    for (const float part : {0.f, 0.5f}) values.push_back(static_cast<float>(i) + part);
  return {Tensor::from(values, {last - first, 2}), Tensor::from(count_up(first, last), {last - first})};
}

/// The rows of a batch; its two tensors must have the same.
Rows rows_of(const Pair& batch) {
  const Rows rows = batch.second.to_vector<std::int64_t>();
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<float> values;
  for (const std::int64_t row : rows)
    for (const float part : {0.f, 0.5f}) values.push_back(static_cast<float>(row) + part);
  CHECK(batch.first.shape() == Shape{count, 2});
  CHECK(batch.second.shape() == Shape{count});
  CHECK(batch.first.to_vector<float>() == values);
  return rows;
}

/// Two whole batches of two rows a replica, and one that is smaller.
detail::Dataset<Pair> dataset(std::int64_t rows_in_last) {
  const std::int64_t whole = 2 * ranks();
  return [=] {
    return [=, batch = 0]() mutable -> std::optional<Pair> {
      if (batch == 3) return std::nullopt;
      const std::int64_t first = batch++ * whole;
      return rows(first, first + (batch == 3 ? rows_in_last : whole));
    };
  };
}

}  // namespace

TEST_CASE("each replica takes its piece of every global batch, and of the last, smaller one what is left",
          "[A-28][F-7][F-10][F-15]") {
  const std::int64_t in_last = ranks() == 1 ? 1 : 3;  // more than one piece, less than two
  auto iterator = make_dataset_iterator(runtime().strategy(), dataset(in_last), {.global_batch_size = 2 * ranks()});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int batch = 0; batch < 2; ++batch) {
      const std::int64_t first = 2 * (batch * ranks() + rank());
      CHECK(rows_of(iterator.next()->local()) == count_up(first, first + 2));
    }
    const std::int64_t first = 4 * ranks();
    const Rows left = ranks() == 1  ? Rows{first}
                      : rank() == 0 ? Rows{first, first + 1}
                      : rank() == 1 ? Rows{first + 2}
                                    : Rows{};
    CHECK(rows_of(iterator.next()->local()) == left);
    CHECK_FALSE(iterator.next());
    iterator.initialize();
  }
}

TEST_CASE("a smaller batch can be dropped, so that all have the same shape", "[A-49][A-64]") {
  Strategy& strategy = runtime().strategy();
  CHECK_FALSE(InputOptions::GlobalBatches{}.drop_remainder);
  CHECK_FALSE(InputOptions::Arrays{}.drop_remainder);
  auto batches = make_dataset_iterator(strategy, dataset(2 * ranks() - 1),
                                       {.global_batch_size = 2 * ranks(), .drop_remainder = true});
  auto arrays = make_dataset_iterator(strategy, rows(0, 6 * ranks() - 1),
                                      {.global_batch_size = 2 * ranks(), .shuffle_seed = {}, .drop_remainder = true});
  for (auto* const iterator : {&batches, &arrays}) {
    for (int time = 0; time < 2; ++time) {
      for (int batch = 0; batch < 2; ++batch) {
        const std::int64_t first = 2 * (batch * ranks() + rank());
        CHECK(rows_of(iterator->next()->local()) == count_up(first, first + 2));
      }
      CHECK_FALSE(iterator->next());
      CHECK_FALSE(iterator->next());
      iterator->initialize();
    }
  }

  // One in the middle is passed over, and the next is not.
  auto middle = make_dataset_iterator<Pair>(strategy,
                                            [] {
                                              return [batch = 0]() mutable -> std::optional<Pair> {
                                                if (batch == 3) return std::nullopt;
                                                return rows(0, batch++ == 1 ? ranks() - 1 : ranks());
                                              };
                                            },
                                            {.global_batch_size = ranks(), .drop_remainder = true});
  CHECK(middle.next());
  CHECK(middle.next());
  CHECK_FALSE(middle.next());

  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([&] {
               (void)make_dataset_iterator(strategy, rows(0, 9),
                                           {.global_batch_size = ranks(), .drop_remainder = odd_one()});
             }),
             Catch::StartsWith("replica " + std::to_string(last()) + " ("));
  CHECK_THAT(mismatch_of([&] {
               (void)make_dataset_iterator(strategy, dataset(1),
                                           {.global_batch_size = ranks(), .drop_remainder = odd_one()});
             }),
             Catch::Contains(", without a smaller one"));
  expect_in_step();
}

TEST_CASE("where the first end ends the input, there is no step for a batch that leaves a replica without rows",
          "[F-23]") {
  Strategy& strategy = runtime().strategy();
  // The last batch has two rows a replica, but for the last replica: one, which is enough, or none.
  for (const std::int64_t of_last : {1, 0}) {
    const std::int64_t in_last = 2 * last() + of_last;
    CAPTURE(in_last);
    auto batches =
        make_dataset_iterator(strategy, dataset(in_last),
                              {.global_batch_size = 2 * ranks(), .end = InputOptions::EndOfInput::when_first_ends});
    auto arrays = make_dataset_iterator(
        strategy, rows(0, 4 * ranks() + in_last),
        {.global_batch_size = 2 * ranks(), .shuffle_seed = {}, .end = InputOptions::EndOfInput::when_first_ends});
    for (auto* const iterator : {&batches, &arrays}) {
      for (int batch = 0; batch < 2; ++batch) CHECK(iterator->next());
      CHECK(iterator->next().has_value() == (of_last == 1));
      CHECK_FALSE(iterator->next());
    }
  }
  expect_in_step();
}

TEST_CASE("a global batch that the replicas do not divide is refused on every rank", "[A-33][F-8]") {
  Strategy& strategy = runtime().strategy();
  const std::int64_t odd = ranks() + 1;
  if (ranks() > 1) {
    const std::string told = "The `global_batch_size` " + std::to_string(odd) +
                             " is not divisible by `num_replicas_in_sync` " + std::to_string(ranks());
    CHECK_THROWS_WITH(make_dataset_iterator(strategy, dataset(1), {.global_batch_size = odd}), told);
    CHECK_THROWS_WITH(make_dataset_iterator(strategy, rows(0, 9), {.global_batch_size = odd}), told);
  }
  CHECK_THROWS_AS(make_dataset_iterator(strategy, dataset(1), InputOptions::GlobalBatches{}), InvalidArgument);
  CHECK_THROWS_AS(make_dataset_iterator(strategy, rows(0, 9), {}), InvalidArgument);

  auto iterator = make_dataset_iterator(strategy, dataset(1), {.global_batch_size = ranks()});  // it has twice as many
  CHECK_THROWS_WITH(iterator.next(), "a batch of " + std::to_string(2 * ranks()) + " rows; expected 0 to " +
                                         std::to_string(ranks()) + " (`global_batch_size`)");
  expect_in_step();
}

TEST_CASE("datasets whose batches or whose ends differ are found at the first that does") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const bool odd = odd_one();
  auto shapes = make_dataset_iterator(strategy, dataset(odd ? 2 : 1), {.global_batch_size = 2 * ranks()});
  for (int batch = 0; batch < 2; ++batch) CHECK(shapes.next());
  CHECK_THAT(mismatch_of([&] { (void)shapes.next(); }), Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                                                            Catch::Contains("with f32[2, 2], i64[2]") &&
                                                            Catch::Contains("with f32[1, 2], i64[1]"));

  auto ends = make_dataset_iterator<Pair>(strategy,
                                          [=] {
                                            return [left = odd ? 0 : 1]() mutable -> std::optional<Pair> {
                                              if (left-- == 0) return std::nullopt;
                                              return rows(0, ranks());
                                            };
                                          },
                                          {.global_batch_size = ranks()});
  CHECK_THAT(mismatch_of([&] { (void)ends.next(); }), Catch::Contains("with the end of the dataset"));
  expect_in_step();
}

TEST_CASE("arrays in their order, for ever: batches go on over the ends of epochs", "[A-32][F-25]") {
  auto iterator = make_dataset_iterator(
      runtime().strategy(), rows(0, 5),
      {.global_batch_size = 2 * ranks(), .num_epochs = std::nullopt, .shuffle_seed = std::nullopt});
  for (std::int64_t batch = 0; batch < 7; ++batch) {
    const std::int64_t first = 2 * (batch * ranks() + rank());
    CHECK(rows_of(iterator.next()->local()) == Rows{first % 5, (first + 1) % 5});
  }
}

TEST_CASE("shuffled arrays give all ranks together each row once an epoch, the same order again after initialize",
          "[A-31][A-55]") {
  const std::int64_t count = 7, epochs = 3, piece = 2;
  const std::uint64_t seed = 4;
  auto iterator =
      make_dataset_iterator(runtime().strategy(), rows(0, count),
                            {.global_batch_size = piece * ranks(), .num_epochs = epochs, .shuffle_seed = seed});
  Rows sequence;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    for (const std::int64_t row : sample_order(count, seed, epoch)) sequence.push_back(row);
  for (int time = 0; time < 2; ++time) {
    std::vector<std::int64_t> seen(count, 0);
    for (std::int64_t first = 0; first < epochs * count; first += piece * ranks()) {
      Rows expected;
      for (std::int64_t at = first + rank() * piece; at < first + (rank() + 1) * piece && at < epochs * count; ++at)
        expected.push_back(sequence[static_cast<std::size_t>(at)]);
      const Rows mine = rows_of(iterator.next()->local());
      CHECK(mine == expected);
      for (const std::int64_t row : mine) ++seen[static_cast<std::size_t>(row)];
    }
    CHECK_FALSE(iterator.next());
    CHECK(runtime().strategy().reduce(ReduceOp::sum, PerReplica{seen}) == std::vector<std::int64_t>(count, epochs));
    iterator.initialize();
  }
}

TEST_CASE("arrays, seeds and epochs that differ between ranks are refused, and so are ranks at different rows",
          "[A-31]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const bool odd = odd_one();
  const std::string culprit = "replica " + std::to_string(last()) + " (";
  const std::string values = mismatch_of(
      [&] { (void)make_dataset_iterator(strategy, rows(odd ? 1 : 0, odd ? 5 : 4), {.global_batch_size = ranks()}); });
  CHECK_THAT(values, Catch::StartsWith(culprit) && Catch::Contains("f32[4, 2] of digest"));
  const std::string seeds = mismatch_of([&] {
    (void)make_dataset_iterator(strategy, rows(0, 4), {.global_batch_size = ranks(), .shuffle_seed = odd ? 2u : 1u});
  });
  CHECK_THAT(seeds, Catch::StartsWith(culprit));
  const std::string epochs = mismatch_of([&] {
    (void)make_dataset_iterator(strategy, Tensor::zeros(DType::u8, {4}),
                                {.global_batch_size = ranks(), .num_epochs = odd ? 2 : 1});
  });
  CHECK_THAT(epochs, Catch::Contains("num_epochs 2") && Catch::Contains("num_epochs 1"));

  auto iterator =
      make_dataset_iterator(strategy, rows(0, 8), {.global_batch_size = ranks(), .num_epochs = std::nullopt});
  CHECK(iterator.next());
  if (odd) iterator.initialize();
  CHECK_THAT(mismatch_of([&] { (void)iterator.next(); }), Catch::Contains("with rows at 0 to"));
  expect_in_step();
}
