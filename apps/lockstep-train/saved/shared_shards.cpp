#include "apps/lockstep-train/saved/shared_shards.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/order/shard_request.hpp"
#include "core/order/shard_sizes.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

std::optional<int> shards_in(const TrainingFacts& training) {
  const auto fact = std::ranges::find(training, "shards", &TrainingFacts::value_type::first);
  if (fact == training.end()) return std::nullopt;
  const std::string_view text = fact->second;
  int shards = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), shards);
  return error == std::errc{} && end == text.data() + text.size() && shards > 0 ? std::optional{shards} : std::nullopt;
}

bool can_share(int shards, int ranks) {
  try {
    return ShardRequest{ShardRequest::Kind::count, shards}.resolve(ranks).shards == shards;
  } catch (const ConfigError&) {
    return false;
  }
}

std::string ranks_that_can_share(int shards) {
  if (shards > max_shards) return fmt::format("{} ranks", shards);  // one for each
  return shards == 1 ? "1 rank" : fmt::format("1 {} {} ranks", shards == 2 ? "or" : "to", shards);
}

}  // namespace lockstep
