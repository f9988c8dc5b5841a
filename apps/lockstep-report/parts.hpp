// Where the time of the ranks went, summed over a run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/foreign_json.hpp"

namespace lockstep::report {

/// The sums of all lines of parts.
class PartSums {
 public:
  static constexpr std::array<std::string_view, 8> names = {"data",       "forward",    "backward", "optimizer",
                                                            "checkpoint", "evaluation", "other",    "waiting"};

  struct Rank {
    std::int64_t replica = 0;
    std::string name, host;
    double elapsed = 0;      ///< seconds that its lines cover
    std::int64_t steps = 0;  ///< steps that they cover
    std::array<double, names.size()> seconds{};
    double late_seconds = 0;    ///< that the others waited for it
    double queued_seconds = 0;  ///< in which it was ready to run and had no processor
    std::map<std::string, double> late_by_part;

    double late() const { return elapsed > 0 ? late_seconds / elapsed : 0; }
    double queued() const { return elapsed > 0 ? queued_seconds / elapsed : 0; }
    /// The part that most of the lateness is blamed on; empty if none is.
    std::string mostly() const;
  };

  /// A stretch of steps.
  struct Stretch {
    std::int64_t last_step = 0;
    double elapsed = 0;
    std::map<std::int64_t, double> late_seconds;  ///< by replica
  };

  /// What a line of parts says. Ignores what has no meaning to it.
  void add(const OrderedJson& line);

  bool empty() const { return ranks_.empty(); }
  const std::map<std::int64_t, Rank>& ranks() const { return ranks_; }
  /// In the order of their steps, at most 256: neighbours are merged.
  const std::vector<Stretch>& stretches() const { return stretches_; }
  /// The share of its time that a part took on the rank where that is least: so much every rank spent on it.
  double least_share_of(std::string_view part) const;

 private:
  std::map<std::int64_t, Rank> ranks_;
  std::vector<Stretch> stretches_;
};

}  // namespace lockstep::report
