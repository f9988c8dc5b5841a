// Batches, shards and the order of the samples.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/input_context.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/models/input/batch.hpp>

#include "core/order/sample_order.hpp"
#include "core/order/shard_request.hpp"
#include "core/order/shard_sizes.hpp"
#include "core/order/shares.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/input/batches.hpp"

using namespace lockstep;
using Catch::Contains;

namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

ShardRequest exactly(int count) {
  return {ShardRequest::Kind::count, count};
}
constexpr ShardRequest per_rank{ShardRequest::Kind::per_rank};

}  // namespace

TEST_CASE("the shards of a batch are a balanced partition of it, in order") {
  for (const std::int64_t batch : {0, 1, 2, 3, 7, 8, 9, 31, 250, 256, 1000, 6000})
    for (const int shards : {1, 2, 3, 4, 5, 8, 16, 64, 1024}) {
      std::int64_t next = 0;
      for (int shard = 0; shard < shards; ++shard) {
        const Range range = Range::of_shard(batch, shards, shard);
        REQUIRE(range.first == next);
        REQUIRE(range.size() >= batch / shards);
        REQUIRE(range.size() <= shard_capacity(batch, shards));
        next = range.last;
      }
      REQUIRE(next == batch);
    }
}

TEST_CASE("shards are cut at floor(i B / V), also where that product overflows") {
  CHECK(Range::of_shard(7, 8, 0) == Range{0, 0});  // empty
  CHECK(Range::of_shard(7, 8, 1) == Range{0, 1});
  CHECK(Range::of_shard(250, 8, 3) == Range{93, 125});
  CHECK(Range::of_shard(largest, 1024, 1023).last == largest);
  CHECK(Range::of_shard(largest, 2, 1) == Range{largest / 2, largest});
  CHECK_THROWS_AS(Range::of_shard(8, 8, 8), InvalidArgument);
  CHECK_THROWS_AS(Range::of_shard(8, 8, -1), InvalidArgument);
  CHECK_THROWS_AS(Range::of_shard(-1, 8, 0), InvalidArgument);
  CHECK_THROWS_AS(Range::of_shard(8, 0, 0), InvalidArgument);
}

TEST_CASE("the capacity of a shard is that of the largest one") {
  CHECK(shard_capacity(256, 8) == 32);
  CHECK(shard_capacity(250, 8) == 32);
  CHECK(shard_capacity(7, 8) == 1);
  CHECK(shard_capacity(largest, 2) == largest / 2 + 1);
  CHECK_THROWS_AS(shard_capacity(-1, 8), InvalidArgument);
}

TEST_CASE("the ranks share all shards in order, each those of a whole subtree") {
  const auto sizes = [](int shards, int ranks) {
    std::vector<std::int64_t> sizes;
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Range mine = Range::of_rank(shards, ranks, rank);
      REQUIRE(mine.first == next);
      next = mine.last;
      sizes.push_back(mine.size());
    }
    REQUIRE(next == shards);
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(sizes(8, 1) == Sizes{8});
  CHECK(sizes(8, 2) == Sizes{4, 4});
  CHECK(sizes(8, 3) == Sizes{2, 2, 4});
  CHECK(sizes(8, 4) == Sizes{2, 2, 2, 2});
  CHECK(sizes(8, 5) == Sizes{1, 1, 2, 2, 2});
  CHECK(sizes(8, 7) == Sizes{1, 1, 1, 1, 1, 1, 2});
  CHECK(sizes(1024, 8) == Sizes(8, 128));
  CHECK(sizes(3, 3) == Sizes{1, 1, 1});
  CHECK(sizes(6, 2) == Sizes{4, 2});  // as the tree over 6 is cut
  CHECK(sizes(6, 4) == Sizes{1, 1, 2, 2});
  CHECK(sizes(7, 2) == Sizes{4, 3});
  CHECK(sizes(11, 5) == Sizes{2, 2, 2, 2, 3});
  CHECK_THROWS_AS(Range::of_rank(8, 2, 2), InvalidArgument);
  CHECK_THROWS_AS(Range::of_rank(8, 0, 0), InvalidArgument);
  CHECK_THROWS_WITH(Range::of_rank(2, 3, 0), Contains("2 shards for 3 ranks; expected one for each or more"));
}

TEST_CASE("shares know who has a shard, and the additions that are left to the ranks") {
  for (const int shards : {1, 2, 6, 8, 11, 13, 32})
    for (int ranks = 1; ranks <= shards; ++ranks) {
      CAPTURE(shards, ranks);
      const Shares shares{shards, ranks};
      std::int64_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range own = shares.of(rank);
        largest = std::max(largest, own.size());
        for (std::int64_t shard = own.first; shard < own.last; ++shard) REQUIRE(shares.owner_of(shard) == rank);
      }
      CHECK(shares.largest() == largest);
    }
  using Additions = std::vector<std::uint8_t>;
  CHECK(Shares{8, 5}.additions() == Additions{0, 1, 1, 0, 2});  // ((0 + 1) + 2) + (3 + 4)
  CHECK(Shares{6, 4}.additions() == Additions{0, 1, 1, 1});     // ((0 + 1) + 2) + 3
  // The tree over the ranks themselves.
  for (const int ranks : {1, 2, 3, 4, 6, 7, 8}) CHECK(Shares{8, ranks}.additions().empty());
  CHECK(Shares{5, 5}.additions().empty());
}

/// The smallest largest share of ranks that have up to most_subtrees of `shards` shards each, from shard `first` on.
/// The slow way: all cuts, and subtrees by the definition of the tree.
std::int64_t smallest_largest(int shards, int ranks) {
  const std::function<int(Range, Range)> subtrees_in = [&](const Range& tree, const Range& part) {
    if (part.last <= tree.first || tree.last <= part.first) return 0;
    if (part.first <= tree.first && tree.last <= part.last) return 1;
    const auto rest = static_cast<std::uint64_t>(tree.size() - 1);
    const std::int64_t middle = tree.first + static_cast<std::int64_t>(std::bit_floor(rest));
    return subtrees_in({tree.first, middle}, part) + subtrees_in({middle, tree.last}, part);
  };
  std::vector<std::int64_t> best(static_cast<std::size_t>(shards) + 1, shards + 1);  // of the ranks so far, up to there
  best.front() = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::int64_t> with(best.size(), shards + 1);
    for (std::int64_t last = 1; last <= shards; ++last)
      for (std::int64_t first = 0; first < last; ++first)
        if (subtrees_in({0, shards}, {first, last}) <= Shares::most_subtrees) {
          auto& place = with[static_cast<std::size_t>(last)];
          place = std::min(place, std::max(best[static_cast<std::size_t>(first)], last - first));
        }
    best = std::move(with);
  }
  return best.back();
}

TEST_CASE("even shares have the smallest largest one that few subtrees allow") {
  for (int shards = 1; shards <= 64; ++shards)
    for (int ranks = 1; ranks <= shards; ++ranks) {
      CAPTURE(shards, ranks);
      const Shares shares = Shares::even(shards, ranks), whole{shards, ranks};
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        REQUIRE(shares.of(rank).first == next);
        REQUIRE(shares.of(rank).size() > 0);
        for (const Range& subtree : shares.subtrees_of(rank)) {
          REQUIRE(subtree.first == std::exchange(next, subtree.last));
          // As the tree is cut: a power of two of shards, from a multiple of it on, or the last of all.
          const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(subtree.size())));
          REQUIRE(subtree.first % size == 0);
          REQUIRE((subtree.size() == size || subtree.last == shards));
        }
        REQUIRE(shares.of(rank).last == next);
        REQUIRE(shares.subtrees_of(rank).size() <= Shares::most_subtrees);
      }
      REQUIRE(next == shards);
      CHECK(shares.largest() <= whole.largest());
      CHECK((shares.largest() == whole.largest()) == !shares.has_several());
      if (shards <= 16 || shards == 32) CHECK(shares.largest() == smallest_largest(shards, ranks));
      if (shards <= 16) CHECK(shares.largest() == (shards + ranks - 1) / ranks);
      if (shards == 8 || shards == 16) CHECK(shares.most_of_rank() <= 2);
    }
  CHECK(Shares::even(14, 3).most_of_rank() == 3);
  CHECK(Shares::even(15, 3).most_of_rank() == 3);
  CHECK(Shares::even(8, 3).largest() == 3);
  CHECK(Shares::even(32, 7).largest() == 5);
  CHECK(Shares::even(8, 3).additions() == std::vector<std::uint8_t>{0, 1, 0, 1, 2});  // (01 + 23) + ((4 + 5) + 67)
}

TEST_CASE("a job that asks for nothing has 8 shards, or the next power of two and a line that says so") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CHECK(ShardRequest{}.resolve(ranks).shards == 8);
    CHECK(ShardRequest{}.resolve(ranks).note.empty());
  }
  for (const auto& [ranks, shards] : {std::pair{9, 16}, {12, 16}, {16, 16}, {17, 32}, {1000, 1024}}) {
    CHECK(ShardRequest{}.resolve(ranks).shards == shards);
    CHECK_THAT(ShardRequest{}.resolve(ranks).note,
               Contains(std::to_string(shards) + " shards for " + std::to_string(ranks) + " ranks") && !Contains("\n"));
  }
  CHECK(ShardRequest{}.resolve(1500).shards == 1500);
  CHECK_THROWS_AS(ShardRequest{}.resolve(0), InvalidArgument);
}

TEST_CASE("an explicit number of shards is taken where it fits") {
  CHECK(exactly(16).resolve(4).shards == 16);
  CHECK(exactly(4).resolve(4).shards == 4);
  CHECK(exactly(1).resolve(1).shards == 1);
  CHECK(exactly(3).resolve(3).shards == 3);
  CHECK(exactly(8).resolve(3).shards == 8);
  CHECK(exactly(6).resolve(4).shards == 6);
  CHECK(exactly(1024).resolve(8).shards == 1024);
  CHECK(exactly(1500).resolve(1500).shards == 1500);
  CHECK(per_rank.resolve(3).shards == 3);
  CHECK(per_rank.resolve(4).shards == 4);
  CHECK(per_rank.resolve(3).note.empty());
}

TEST_CASE("an explicit number of shards that does not fit is refused with what does") {
  const auto refusal = [](int shards, int ranks) {
    try {
      exactly(shards).resolve(ranks);
      return std::string{};
    } catch (const ConfigError& error) {
      return std::string{error.what()};
    }
  };
  CHECK(refusal(2, 4) ==
        "--shards is 2, and the job has 4 ranks; expected 4 or more, or 'ranks', or a job of up to 2 (mpirun -n)");
  CHECK(refusal(2048, 4) == "--shards is 2048; expected 1024 or fewer");
  CHECK_THAT(refusal(0, 2), Contains("--shards is 0"));
  CHECK_THAT(refusal(-2, 2), Contains("--shards is -2"));
}

TEST_CASE("--shards is a positive number or the word ranks") {
  CHECK(ShardRequest::parse("ranks").kind == ShardRequest::Kind::per_rank);
  CHECK(ShardRequest::parse("16").kind == ShardRequest::Kind::count);
  CHECK(ShardRequest::parse("16").count == 16);
  for (const char* text : {"", "0", "-8", "8.0", "1e3", " 8", "8 ", "rank", "eight", "99999999999999999999"})
    CHECK_THROWS_WITH(ShardRequest::parse(text),
                      Contains("--shards is '" + std::string{text} + "'; expected a number up to 1024"));
  CHECK_THROWS_AS(ShardRequest::parse("0"), ConfigError);
}

TEST_CASE("a sample order visits every sample once, in another order every epoch and for every seed") {
  for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::int64_t> order = sample_order(count, 1, 0);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    CHECK(order == all);
  }
  const auto order = sample_order(1000, 1, 0);
  CHECK(sample_order(1000, 1, 0) == order);
  CHECK(sample_order(1000, 1, 1) != order);
  CHECK(sample_order(1000, 2, 0) != order);
  CHECK_THROWS_AS(sample_order(-1, 1, 0), InvalidArgument);
  CHECK_THROWS_AS(sample_order(1, 1, -1), InvalidArgument);
  CHECK_THROWS_AS(sample_order(1, 1, std::int64_t{1} << 56), InvalidArgument);
}

TEST_CASE("every order of three samples comes up about as often as the others") {
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) orders.push_back(sample_order(3, 1, epoch));
  std::vector<std::int64_t> order{0, 1, 2};
  do {
    const auto times = std::count(orders.begin(), orders.end(), order);
    CHECK(std::abs(times - 1000) < 4 * 29);  // four standard deviations
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the sample order is the one that earlier runs had") {
  // Computed by another program from the algorithm. Whoever has to change them makes every published digest
  // and every resumable run wrong.
  const auto first_of = [](const std::vector<std::int64_t>& order) {
    return std::vector<std::int64_t>(order.begin(), order.begin() + 6);
  };
  CHECK(first_of(sample_order(60'000, 1, 0)) == std::vector<std::int64_t>{26095, 19849, 46618, 34868, 4679, 10731});
  CHECK(first_of(sample_order(60'000, 1, 1)) == std::vector<std::int64_t>{10403, 15379, 35102, 11653, 36171, 43960});
  CHECK(first_of(sample_order(10, 0, 0)) == std::vector<std::int64_t>{8, 2, 0, 5, 3, 1});
}

TEST_CASE("a schedule covers each epoch exactly once, and its last batch is what is left") {
  for (const std::int64_t samples : {1, 6, 7, 250, 1000, 6000})
    for (const std::int64_t global_batch : {1, 6, 7, 250, 256, 7000}) {
      const BatchSchedule schedule{samples, global_batch};
      std::int64_t step = 0;
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        std::int64_t next = 0;
        while (next < samples) {
          const ScheduledBatch batch = schedule.batch(step++);
          REQUIRE(batch.epoch == epoch);
          REQUIRE(batch.positions.first == next);
          REQUIRE(batch.positions.size() == std::min(global_batch, samples - next));
          REQUIRE(batch.positions.size() <= schedule.largest_batch());
          next = batch.positions.last;
          REQUIRE(batch.ends_epoch == (next == samples));
        }
        REQUIRE(step == schedule.total_steps(epoch + 1));
      }
    }
}

TEST_CASE("a schedule counts without overflow and refuses what it cannot count") {
  const BatchSchedule all_at_once{10, largest};
  CHECK(all_at_once.steps_per_epoch() == 1);
  CHECK(all_at_once.largest_batch() == 10);
  CHECK(all_at_once.batch(largest).epoch == largest);
  const BatchSchedule huge{largest, largest - 1};
  CHECK(huge.steps_per_epoch() == 2);
  CHECK(huge.batch(1).positions == Range{largest - 1, largest});
  CHECK_THROWS_WITH(huge.total_steps(largest), Contains("--epochs") && Contains("at most"));
  CHECK_THROWS_AS(huge.total_steps(largest), ConfigError);
  CHECK(huge.total_steps(largest / 2) == largest - 1);
  CHECK(huge.total_steps(0) == 0);
  CHECK_THROWS_AS(huge.total_steps(-1), InvalidArgument);
  CHECK_THROWS_AS(huge.batch(-1), InvalidArgument);
  CHECK_THROWS_AS(BatchSchedule(0, 1), InvalidArgument);
  CHECK_THROWS_AS(BatchSchedule(1, 0), InvalidArgument);
}

TEST_CASE("a batch holds its samples scaled to [0, 1], and zeros behind them") {
  const ImageData::Set images{1, 2, {0, 255, 51, 102, 1, 254}, {7, 8, 9}};
  SampleBatch batch = make_batch(3, 2, DType::f64);
  CHECK(batch.samples == 0);
  fill_batch(images, std::vector<std::int64_t>{2, 0, 1}, batch);
  CHECK(batch.samples == 3);
  CHECK(batch.inputs.to_vector<double>() == std::vector<double>{1 / 255., 254 / 255., 0, 1, 51 / 255., 102 / 255.});
  CHECK(batch.labels.to_vector<std::int32_t>() == std::vector<std::int32_t>{9, 7, 8});

  const std::byte* const memory = batch.inputs.view().data();
  fill_batch(images, std::vector<std::int64_t>{1}, batch);
  CHECK(batch.inputs.view().data() == memory);
  CHECK(batch.samples == 1);
  CHECK(batch.inputs.to_vector<double>() == std::vector<double>{51 / 255., 102 / 255., 0, 0, 0, 0});
  CHECK(batch.labels.to_vector<std::int32_t>() == std::vector<std::int32_t>{8, 0, 0});

  fill_batch(images, {}, batch);  // an empty shard
  CHECK(batch.samples == 0);
  CHECK(batch.inputs.to_vector<double>() == std::vector<double>(6, 0.));
}

TEST_CASE("a batch of floats is the rounded quotient, for every value of a pixel") {
  ImageData::Set images{1, 256, {}, {0}};
  for (int pixel = 0; pixel < 256; ++pixel) images.pixels.push_back(static_cast<std::uint8_t>(pixel));
  SampleBatch batch = make_batch(1, 256, DType::f32);
  fill_batch(images, std::vector<std::int64_t>{0}, batch);
  const auto inputs = batch.inputs.to_vector<float>();
  for (int pixel = 0; pixel < 256; ++pixel) CHECK(inputs[static_cast<std::size_t>(pixel)] == float(pixel / 255.));
}

TEST_CASE("a batch that cannot be made or filled is refused, and left as it was") {
  CHECK_THROWS_WITH(make_batch(1, 1, DType::i32), Contains("i32") && Contains("expected f32 or f64"));
  CHECK_THROWS_AS(make_batch(0, 1, DType::f32), InvalidArgument);
  CHECK_THROWS_AS(make_batch(1, 0, DType::f32), InvalidArgument);

  const ImageData::Set images{1, 2, {10, 20, 30, 40}, {1, 2}};
  SampleBatch batch = make_batch(2, 2, DType::f32);
  fill_batch(images, std::vector<std::int64_t>{0}, batch);
  const auto before = batch.inputs.to_vector<float>();
  const auto refused = [&](const ImageData::Set& from, std::vector<std::int64_t> samples, const char* why) {
    CHECK_THROWS_WITH(fill_batch(from, samples, batch), Contains(why));
    CHECK_THROWS_AS(fill_batch(from, samples, batch), InvalidArgument);
    CHECK(batch.inputs.to_vector<float>() == before);
    CHECK(batch.samples == 1);
  };
  refused(images, {0, 1, 0}, "3 samples do not fit into a batch of 2 rows");
  refused(images, {1, 2}, "sample 2 is outside of [0, 2)");
  refused(images, {1, -1}, "sample -1 is outside");
  refused({1, 3, {1, 2, 3}, {0}}, {0}, "1 x 3 pixels");
  refused({1, 2, {1, 2, 3, 4}, {0}, 2}, {0}, "images of 1 x 2 x 2 pixels do not fit into rows of 2");
  refused({1, 2, {1, 2, 3}, {0, 0}}, {0}, "3 pixels are not 2 images");
}

TEST_CASE("an input context knows its pipeline", "[F-16]") {
  CHECK(InputContext{}.num_input_pipelines() == 1);
  CHECK(InputContext{}.input_pipeline_id() == 0);
  CHECK(InputContext{}.num_replicas_in_sync() == 1);
  const InputContext context{3, 2, 6};
  CHECK(context.num_input_pipelines() == 3);
  CHECK(context.input_pipeline_id() == 2);
  CHECK(context.num_replicas_in_sync() == 6);
}

TEST_CASE("an input pipeline outside of its range is refused", "[F-18]") {
  const auto make = [](int pipelines, int id, int replicas) { return InputContext{pipelines, id, replicas}; };
  CHECK_THROWS_AS(make(2, 2, 1), InvalidArgument);
  CHECK_THROWS_WITH(make(2, 2, 1), Contains("`input_pipeline_id` is 2; expected one in [0, 2)"));
  CHECK_THROWS_WITH(make(2, -1, 1), Contains("`input_pipeline_id` is -1"));
  CHECK_THROWS_WITH(make(0, 0, 1), Contains("`num_input_pipelines` is 0"));
  CHECK_THROWS_WITH(make(1, 0, 0), Contains("`num_replicas_in_sync` is 0"));
}

TEST_CASE("a global batch is divided among the replicas where that comes out even", "[F-17]") {
  const InputContext context{1, 0, 2};
  CHECK(context.per_replica_batch_size(8) == 4);
  CHECK_THROWS_AS(context.per_replica_batch_size(7), InvalidArgument);
  CHECK_THROWS_WITH(context.per_replica_batch_size(7),
                    "The `global_batch_size` 7 is not divisible by `num_replicas_in_sync` 2");
  CHECK_THROWS_WITH(context.per_replica_batch_size(0), Contains("`global_batch_size` is 0"));
}
