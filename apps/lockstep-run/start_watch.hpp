// Waits for a job to begin, and finds out why it does not.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep-run/host_inquiry.hpp"
#include "core/base/awake_clock.hpp"

namespace lockstep::run {

/// How far the start of a job is, as it can be seen from one host.
enum class Begun {
  nowhere,
  here,  ///< ranks of this host run; those of others may not
  everywhere,
};

class StartWatch {
 public:
  using Clock = AwakeClock;

  struct Options {
    std::chrono::milliseconds timeout{0};  ///< 0: waits for ever, and asks nobody
    std::vector<std::string> mpirun;
    std::vector<std::string> hosts;  ///< other than this one
    /// Whether a job is ended that has begun nowhere in twice the time, though all hosts answer. Otherwise they are
    /// asked once: what gets through is lost for a job that says nothing of its start.
    bool ends_for_no_host = false;
  };

  enum class Finding {
    nothing,
    all_answer,  ///< told once: the time is over, and the hosts do not show why
    not_begun,   ///< the job is to be ended
  };

  explicit StartWatch(Options options) : options_{std::move(options)} {}

  /// To be called again and again, with how far the job is by now.
  Finding look(Begun begun);

  bool is_asking() const { return inquiry_.has_value(); }
  /// No longer waits.
  void stop();

  std::chrono::seconds waited() const {
    return std::chrono::duration_cast<std::chrono::seconds>(options_.timeout * periods_);
  }
  const std::vector<std::string>& silent() const { return silent_; }
  const std::vector<std::string>& unreachable() const { return unreachable_; }

 private:
  Options options_;
  Clock::time_point since_ = Clock::now();
  bool is_over_ = false;
  int periods_ = 0;  ///< that are over
  std::optional<HostInquiry> inquiry_;
  std::vector<std::string> silent_;
  std::vector<std::string> unreachable_;
};

}  // namespace lockstep::run
