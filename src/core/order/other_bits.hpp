// Numbers of shards that give other bits on other numbers of ranks.
#pragma once

#include <bit>
#include <string>

#include <fmt/format.h>

namespace lockstep {

/// What to warn of if a rank's shards are not a whole subtree of the sum over all shards; empty if they are.
inline std::string warning_of_other_bits(int shards, int ranks) {
  const int mine = shards / ranks;
  if (ranks == 1 || std::has_single_bit(static_cast<unsigned>(mine))) return {};
  return fmt::format(
      "{} shards on {} ranks give each rank {}, which is not a power of two: low-order bits of the weights differ from "
      "those on other numbers of ranks",
      shards, ranks, mine);
}

}  // namespace lockstep
