// What follows the end of a job: the decisions of lockstep-run, without processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/job_report.hpp"

namespace lockstep::run {

struct SupervisionOptions {
  int ranks = 1;            ///< of the first start, and the most of any
  int min_ranks = 1;        ///< of any start
  int max_restarts = 100;   ///< in all
  std::vector<Host> hosts;  ///< empty: mpirun chooses
  std::string this_host;    ///< what this machine calls itself
  /// Whether so many ranks can go on with what `ranks` began.
  std::function<bool(int ranks)> fits = [](int) { return true; };
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

/// By the exit code of mpirun and what the job said. The table in apps/README.md says the same.
Judgement judge(int exit_code, const JobReport& report);

/// How a job ended.
struct JobEnd {
  int exit_code = 0;  ///< of mpirun; 128 + the signal if one ended it
  JobReport report = {};
  bool made_progress = false;  ///< it wrote a checkpoint, or worked for a minute
  bool was_told_to_stop = false;
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

  Decision after(const JobEnd& end);

 private:
  void leave_out_hosts(const JobEnd& end, std::vector<std::string>& lines);
  void leave_out(const std::string& name, const std::string& why, std::vector<std::string>& lines);
  int most_ranks_on(const std::vector<Host>& hosts) const;

  SupervisionOptions options_;
  std::vector<Host> hosts_;  ///< those that are left
  int restarts_ = 0;
  int in_a_row_ = 0;     ///< without progress
  std::string suspect_;  ///< the host where a process ended last, without progress since
};

/// How often in a row a job is started that makes no progress.
inline constexpr int most_in_a_row = 10;

}  // namespace lockstep::run
