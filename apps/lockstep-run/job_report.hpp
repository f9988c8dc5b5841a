// What a job says on stderr of its own end, as lockstep and mpirun word it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/lockstep-run/rank_label.hpp"

namespace lockstep::run {

struct JobReport {
  enum class Cause : std::uint8_t {
    unknown,
    gone,          ///< a rank's process ended
    stopped,       ///< a rank, or its whole host, shows no sign of life
    late,          ///< a rank did not come, or the ranks could not reach each other
    failed,        ///< a rank's program failed, or called exit
    miscomputed,   ///< a rank computed or read something else than others would
    interrupted,   ///< somebody else told mpirun to end the job
    asked,         ///< the job ended early, as it was asked
    not_launched,  ///< mpirun could not run the program
  };
  Cause cause = Cause::unknown;
  std::string host = {};                      ///< of the rank to blame; empty if none was named
  std::vector<std::string> unreachable = {};  ///< hosts that mpirun or lockstep cannot reach
  std::vector<std::string> lost = {};         ///< hosts whose daemon mpirun had, and has no more
  std::string failure = {};                   ///< what the line says of the rank to blame, "failed: …"
  std::string line = {};                      ///< the first that lockstep said of the end
  bool has_begun = false;                     ///< the chief said so
  bool has_spoken = false;                    ///< lockstep said how the job ended
};

/// Picks out what is known from all that a job writes. The line that the job has begun shows how the launcher labels
/// the lines of ranks, whoever told it to.
class JobReader {
 public:
  explicit JobReader(RankLabels labels = {}) : labels_{std::move(labels)} {}

  /// The next bytes, however cut.
  void take(std::string_view bytes);

  const JobReport& report() const { return report_; }

 private:
  void read_line(std::string_view line);

  RankLabels labels_;
  std::string line_;  ///< the beginning of one
  JobReport report_;
};

}  // namespace lockstep::run
