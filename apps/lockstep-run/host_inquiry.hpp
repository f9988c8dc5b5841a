// Which hosts answer: mpirun itself waits for ever for one that does not.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "core/base/awake_clock.hpp"
#include "core/base/descriptor.hpp"

namespace lockstep::run {

/// Asks hosts by starting a program there as mpirun starts ranks, so a host answers only if a job can begin on it. At
/// most 32 hosts are asked at the same time, each for as long as `patience`, and once more if mpirun fails. If that may
/// be due to its options, and no host answers, this host is asked too: if it answers, the options are right.
class HostInquiry {
 public:
  /// What is run on a host: a program and its arguments.
  using Program = std::function<std::vector<std::string>(const std::string& host)>;

  /// `mpirun` is a command with its options.
  HostInquiry(
      std::vector<std::string> mpirun, std::vector<std::string> hosts,
      std::chrono::milliseconds patience = std::chrono::seconds{10},
      Program program = [](const std::string&) { return std::vector<std::string>{"true"}; });
  HostInquiry(const HostInquiry&) = delete;
  /// Ends what is under way.
  ~HostInquiry();

  /// Whether all hosts have answered or run out of time. Call it until true: SIGCHLD announces an answer, but nothing
  /// announces a timeout. Blocks for some seconds, and not much longer than `patience`, while an mpirun whose time is
  /// over ends; one that does not is left alone.
  bool poll();

  /// Those that said nothing.
  const std::vector<std::string>& silent() const { return silent_; }
  /// Those where no program could be started.
  const std::vector<std::string>& unreachable() const { return unreachable_; }
  /// What the program on this host wrote to stdout; empty for one that gave no answer.
  const std::string& answer(const std::string& host) { return answers_[host]; }

 private:
  using Clock = AwakeClock;
  struct Question {
    std::string host;
    pid_t process;
    Clock::time_point until;
    Descriptor stdout_;
  };

  void ask(const std::string& host);
  bool take_answer(const Question& question);
  /// Whether there is no more to ask.
  bool settle_doubts();
  /// Together, as each may take a while.
  void end(std::span<const Question> questions);

  std::vector<std::string> mpirun_;
  std::vector<std::string> hosts_;  ///< a host that is asked again is listed again
  std::chrono::milliseconds patience_;
  Program program_;
  std::size_t asked_ = 0;
  std::vector<Question> questions_;  ///< without an answer yet
  std::vector<std::string> silent_;
  std::vector<std::string> unreachable_;
  std::set<std::string> refused_;      ///< by mpirun, at least once
  std::vector<std::string> doubtful_;  ///< it may be the options
  bool is_control_asked_ = false;
  std::map<std::string, std::string> answers_;
};

}  // namespace lockstep::run
