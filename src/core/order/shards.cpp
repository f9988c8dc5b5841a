// Shards: how many a job has, which of them are a rank's, and which samples each has.
#include <bit>
#include <charconv>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>

#include "core/base/excerpt.hpp"
#include "core/order/shard_request.hpp"
#include "core/order/shard_sizes.hpp"
#include "core/order/shares.hpp"

namespace lockstep {
namespace {

bool fits(int shards, int ranks) {
  // With one shard for each rank, there may be as many as there are ranks.
  return shards == ranks || (ranks < shards && shards <= max_shards);
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
        fmt::format("--shards is '{}'; expected a number up to {}, or 'ranks'", excerpt(text), max_shards)};
  return {ShardRequest::Kind::count, count};
}

ShardRequest::Choice ShardRequest::resolve(int ranks) const {
  require_ranks(ranks);
  switch (kind) {
    case Kind::automatic: {
      if (ranks <= default_shards) return {.shards = default_shards};
      if (ranks > max_shards) return {.shards = ranks, .one_per_rank = true};
      const auto least = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
      return {.shards = least,
              .note = fmt::format("{} shards for {} ranks: up to {}, there are {}, and low-order bits of the result "
                                  "depend on the number of shards (--shards)",
                                  least, ranks, default_shards, default_shards)};
    }
    case Kind::per_rank: return {.shards = ranks, .one_per_rank = true};
    case Kind::count: break;
  }
  if (!fits(count, ranks))
    throw ConfigError{count < ranks
                          ? fmt::format("--shards is {0}, and the job has {1} ranks; expected {1} or more, or 'ranks', "
                                        "or a job of up to {0} (mpirun -n)",
                                        count, ranks)
                          : fmt::format("--shards is {}; expected {} or fewer", count, max_shards)};
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
  return Shares{shards, ranks}.of(rank);
}

}  // namespace lockstep
