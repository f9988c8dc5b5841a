// Several hosts on one machine: network namespaces with host names of their own, on one network. Needs root.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/job.hpp"

namespace lockstep::test {

/// Hosts that are there while this object is.
class Hosts {
 public:
  /// Why there can be none here; nothing where there can.
  static std::optional<std::string> why_not();

  /// std::runtime_error with what the system said, where there can be none.
  explicit Hosts(int count);
  Hosts(const Hosts&) = delete;
  ~Hosts();

  const std::vector<std::string>& names() const { return names_; }

  /// Takes a host's cable out, and puts it back.
  void cut(int host) const;
  void mend(int host) const;

  /// From here on a host sends nothing by UDP.
  void silence_datagrams(int host) const;

  /// What mpirun's sessions on these hosts left in the folder for temporary files.
  std::vector<std::string> sessions_left() const;

 private:
  void remove() const;

  std::string network_;  ///< a namespace too: what the cables lead to
  std::vector<std::string> names_;
};

/// What makes mpirun look after its connections, as docs/reference.md tells users of several hosts to do.
std::vector<std::string> keepalive();

/// Runs a program and its arguments with mpirun on the first host, `ranks_each` of them on each. Everything between the
/// hosts goes over TCP. `mpirun_arguments` come before the program.
Outcome run_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& program,
               const CommandOptions& options = {}, const std::vector<std::string>& mpirun_arguments = {});

/// The same with lockstep-train under lockstep-run, on the first host. `supervision` are options of lockstep-run. No
/// host answers that LOCKSTEP_TEST_MUTE_HOST or LOCKSTEP_TEST_MISSING_HOST names.
Outcome supervise_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& arguments,
                     const CommandOptions& options = {}, const std::vector<std::string>& supervision = {});

/// The same, where a cluster spec says which ranks run on which host.
Outcome supervise_by_spec(const Hosts& hosts, const std::filesystem::path& spec,
                          const std::vector<std::string>& arguments, const CommandOptions& options = {},
                          const std::vector<std::string>& supervision = {});

/// The same with lockstep-train, as run_job() does.
Outcome run_job_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& arguments,
                   const CommandOptions& options = {}, const std::vector<std::string>& mpirun_arguments = {});

}  // namespace lockstep::test
