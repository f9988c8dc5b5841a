// Shards: how many a job has, which of them are a rank's, and which samples each has.
#include <bit>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>

#include "core/base/excerpt.hpp"
#include "core/order/shard_request.hpp"
#include "core/order/shard_sizes.hpp"

namespace lockstep {
namespace {

constexpr bool is_power_of_two(int number) {
  return number > 0 && std::has_single_bit(unsigned(number));
}

bool fits(int shards, int ranks) {
  // With one shard per rank, the tree need not be the same at every world size, so any number will do.
  if (shards == ranks) return true;
  return is_power_of_two(shards) && shards <= max_shards && shards % ranks == 0;
}

std::string numbers_that_fit(int ranks) {
  std::vector<int> numbers;
  if (!fits(ranks, 1)) numbers.push_back(ranks);
  for (int shards = 1; shards <= max_shards; shards *= 2)
    if (fits(shards, ranks)) numbers.push_back(shards);
  return fmt::format("{}", fmt::join(numbers, ", "));
}

/// The numbers of ranks that a number of shards fits: "1, 2, 4, 8 ranks".
std::string ranks_that_fit(int shards) {
  std::vector<int> numbers;
  for (int ranks = 1; ranks < shards && is_power_of_two(shards); ranks *= 2)
    if (fits(shards, ranks)) numbers.push_back(ranks);
  numbers.push_back(shards);
  return fmt::format("{} rank{}", fmt::join(numbers, ", "), shards == 1 ? "" : "s");
}

void require_ranks(int ranks) {
  if (ranks < 1) throw InvalidArgument{fmt::format("the number of ranks is {}; expected 1 or more", ranks)};
}

void require_shards(int shards) {
  if (shards < 1) throw InvalidArgument{fmt::format("the number of shards is {}; expected 1 or more", shards)};
}

}  // namespace

ShardRequest ShardRequest::parse(std::string_view text) {
  if (text == "ranks") return {ShardRequest::Kind::per_rank};
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc{} || parsed != end || count < 1)
    throw ConfigError{
        fmt::format("--shards is '{}'; expected a power of two up to {}, or 'ranks'", excerpt(text), max_shards)};
  return {ShardRequest::Kind::count, count};
}

ShardRequest::Choice ShardRequest::resolve(int ranks) const {
  require_ranks(ranks);
  switch (kind) {
    case Kind::automatic:
      if (fits(default_shards, ranks)) return {.shards = default_shards};
      return {.shards = ranks,
              .note = fmt::format("{0} shards do not divide among {1} ranks, so each rank has one shard, and low-order "
                                  "bits of the result depend on the number of ranks",
                                  default_shards, ranks),
              .one_per_rank = true};
    case Kind::per_rank: return {.shards = ranks, .one_per_rank = true};
    case Kind::count: break;
  }
  if (!fits(count, ranks))
    throw ConfigError{
        fmt::format("--shards is {}, which does not fit a job of {} rank{}; expected {}, or 'ranks', or a "
                    "job of {} (mpirun -n)",
                    count, ranks, ranks == 1 ? "" : "s", numbers_that_fit(ranks), ranks_that_fit(count))};
  return {.shards = count};
}

Range Range::of_shard(std::int64_t batch_size, int shards, std::int64_t shard) {
  require_shards(shards);
  if (batch_size < 0) throw InvalidArgument{fmt::format("the batch size is {}; expected 0 or more", batch_size)};
  if (shard < 0 || shard >= shards) throw InvalidArgument{fmt::format("shard {} is outside of [0, {})", shard, shards)};
  // floor(i * batch_size / shards), without the product that could overflow.
  const std::int64_t whole = batch_size / shards, rest = batch_size % shards;
  const auto boundary = [&](std::int64_t i) { return i * whole + i * rest / shards; };
  return {boundary(shard), boundary(std::int64_t{shard} + 1)};
}

std::int64_t shard_capacity(std::int64_t global_batch, int shards) {
  require_shards(shards);
  if (global_batch < 0) throw InvalidArgument{fmt::format("the global batch is {}; expected 0 or more", global_batch)};
  return global_batch / shards + (global_batch % shards != 0);
}

Range Range::of_rank(int shards, int ranks, int rank) {
  require_shards(shards);
  require_ranks(ranks);
  if (rank < 0 || rank >= ranks) throw InvalidArgument{fmt::format("rank {} is outside of [0, {})", rank, ranks)};
  if (shards % ranks != 0) throw InvalidArgument{fmt::format("{} shards do not divide among {} ranks", shards, ranks)};
  const std::int64_t each = shards / ranks;
  return {rank * each, (rank + 1) * each};
}

}  // namespace lockstep
