// What follows the end of a job: the decisions of lockstep-run, without processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/job_report.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep::run {

struct SupervisionOptions {
  int ranks = 1;      ///< of the first start, and the most of any
  int min_ranks = 1;  ///< of any start
  /// Whether the first start may leave out hosts that cannot be reached. Otherwise their names may be wrong.
  bool may_start_without = true;
  int max_restarts = 100;  ///< in all
  /// Whether a job in which an audit found a wrong host is started again.
  bool skips_wrong_hosts = false;
  std::vector<Host> hosts;  ///< empty: mpirun chooses
  std::string this_host;    ///< what this machine calls itself
  /// How long so many ranks take for a step of what `ranks` began, but for a factor. Nothing if they cannot go on.
  std::function<std::optional<double>(int ranks)> relative_time = [](int count) { return 1. / count; };
};

/// What a restart can do about the end of a job.
enum class Remedy : std::uint8_t {
  none,     ///< nothing: the job is done, or would end like this again
  stop,     ///< nothing is wrong: the job was asked to end early
  restart,  ///< it may go better
};

struct Judgement {
  Remedy remedy;
  std::string reason;  ///< "a rank stalled"
};

/// By the exit code of mpirun and what the job said. The table in docs/reference.md says the same.
Judgement judge(int exit_code, const JobReport& report, bool skips_wrong_hosts = false);

/// How a job ended.
struct JobEnd {
  int exit_code = 0;  ///< of mpirun; 128 + the signal if one ended it
  JobReport report = {};
  bool has_begun = true;       ///< its ranks have met, as far as can be seen from here
  bool made_progress = false;  ///< it wrote a checkpoint, or worked for a while
  bool was_told_to_stop = false;
  bool mpirun_was_killed = false;  ///< rather than a rank: the code is that of a signal
  /// If not 0, it had not begun after this time, and was ended for that.
  std::chrono::seconds waited_for_start{0};
  std::vector<std::string> silent = {};  ///< those of the hosts in the report that do not answer
  std::string memory = {};               ///< "the kernel killed it for memory (…)", if this host's says so
};

struct Start {
  int ranks;
  std::vector<Host> hosts;
  std::chrono::seconds delay{0};
};

struct Decision {
  std::vector<std::string> lines;  ///< for the user, one for each decision
  std::optional<Start> start;      ///< the next one; if empty, it is over
  int exit_code = 0;               ///< when it is over
};

class Supervision {
 public:
  /// ConfigError if the hosts have fewer slots than there are ranks.
  explicit Supervision(SupervisionOptions options);

  Start first() const { return {options_.ranks, hosts_}; }

  /// The hosts that are to be asked whether they can be reached, before it is decided what follows: an end may have
  /// many causes. Those that cannot are to be added to the report.
  std::vector<std::string> in_doubt(const JobEnd& end) const;

  Decision after(const JobEnd& end);

 private:
  std::optional<Decision> over_without_restart(const JobEnd& end, const Judgement& judgement);
  void leave_out_hosts(const JobEnd& end, std::vector<std::string>& lines);
  void leave_out(const std::string& name, const std::string& why, std::vector<std::string>& lines);
  int best_ranks_on(const std::vector<Host>& hosts) const;

  SupervisionOptions options_;
  std::vector<Host> hosts_;  ///< those that are left
  int restarts_ = 0;
  int in_a_row_ = 0;             ///< without progress
  std::set<std::string> wrong_;  ///< the hosts that an audit has named
  std::string suspect_;          ///< the host where a process ended last, without progress since
  std::string failure_;          ///< how the last job failed, if its program did
};

/// What a job that failed says of that, up to the step: "failed: no such sample; it was in step 5". Empty if it was not
/// its program that failed, such as after a kill, or in no step.
std::string failure_of(int exit_code, const JobReport& report);

/// The exit code of a job as mpirun of Open MPI 4 has it, from that of this MPI's. MPICH's ends with the number of the
/// signal that ended a rank, which may be a code of lockstep's as well: then its ranks have said why. Open MPI 5's ends
/// with 0 when it has lost a host, and has ended the ranks of the others. They may have said it, or mpirun, or both.
int code_of_job(MpiKind mpi, int exit_code, const JobReport& report);

/// Codes of mpirun itself from here on: its errors are negative numbers.
inline constexpr int first_of_mpirun = 190;

/// How often in a row a job is started that makes no progress.
inline constexpr int most_in_a_row = 10;

}  // namespace lockstep::run
