// Which shards are audited, and by whom.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/core/base/philox.hpp>

namespace lockstep {

/// In an audited step, each rank computes one shard of another rank as well, and each has one of its own computed by
/// another. Whose it is, and which one, is a function of the seed and the step, so every rank knows it. Every shard has
/// its turn once in as many audits as the rank that has most has shards, and then with another rank, until all have
/// been its auditor. A shard of a rank that has fewer has it more often.
class AuditSchedule {
 public:
  /// An audit at the end of every `every` steps: 1 or more. `shards` are those of the rank that has most.
  AuditSchedule(std::int64_t every, std::uint64_t seed, int ranks, std::int64_t shards)
      : every_{every}, seed_{seed}, ranks_{ranks}, shards_{shards} {}

  struct Turn {
    int ahead;           ///< rank r audits rank r + ahead, modulo the number of ranks; 0 if there is only one
    std::int64_t shard;  ///< of the audited rank's shards, from 0, modulo their number
  };

  /// Empty if `step`, counted from 0, is not audited.
  std::optional<Turn> in(std::int64_t step) const {
    if ((step + 1) % every_ != 0) return std::nullopt;
    const RandomStream draw{seed_, RandomStream::Purpose::audit, 0};
    const std::int64_t others = ranks_ - 1, audit = step / every_;
    const auto first = [&](std::int64_t count, std::uint64_t index) {
      return static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(count), index));
    };
    Turn turn{0, (first(shards_, 0) + audit) % shards_};
    if (others > 0) turn.ahead = static_cast<int>(1 + (first(others, 1) + audit / shards_) % others);
    return turn;
  }

 private:
  std::int64_t every_;
  std::uint64_t seed_;
  int ranks_;
  std::int64_t shards_;
};

}  // namespace lockstep
