// What can be seen of the other ranks while there is no phase table: before MPI has started, and while it ends.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <unistd.h>

#include <lockstep/control/phase_table.hpp>

#include "control/descriptor.hpp"
#include "control/kept_sigterm.hpp"

namespace lockstep {

/// Ends this process, and with it the job, unless it is gone before: MPI waits for a rank that does not come. After
/// `patience` the system's list of processes says which of those that mpirun started on this node has stopped, or is
/// not there. Where it says nothing, a rank of another node is waited for much longer. Where mpirun tells this process
/// to end, the same list says whose end made it do so, if it was one rank's alone. Without mpirun there is nothing to
/// watch.
class SiblingWatch {
 public:
  struct Options {
    std::string doing;                       ///< as in "while the job was starting"
    std::chrono::duration<double> patience;  ///< none where it is not positive: that is still to be refused
    std::set<int> known;                     ///< ranks of this node that are known to have been there
    PhaseTable* table = nullptr;             ///< where the report is claimed too
    /// Whether the others may be gone by now.
    std::function<bool()> may_be_gone = [] { return false; };
  };

  explicit SiblingWatch(Options options);
  SiblingWatch(const SiblingWatch&) = delete;
  ~SiblingWatch();

 private:
  using Seconds = std::chrono::duration<double>;
  enum class Wake { tick, stop, sigterm };
  enum class How { gone, stopped };
  struct Trouble {
    int rank;
    How how;
    bool operator==(const Trouble&) const = default;
  };

  void watch();
  void count_tick();
  void remember_siblings();
  Wake wait();
  bool is_impatient_since(Seconds waited) const;
  std::optional<Trouble> look() const;
  std::optional<int> whose_end() const;
  bool report(const std::string& sentence) const;
  [[noreturn]] void end_for(const Trouble& trouble) const;
  [[noreturn]] void end_when_told() const;
  [[noreturn]] void end_without_evidence() const;

  Options options_;
  bool launched_;
  pid_t launcher_ = ::getppid();
  bool reported_ = false;  ///< by another rank
  Seconds waited_{0};
  std::set<int> seen_;  ///< ranks that were there, with no gap in this watch since
  KeptSigterm sigterm_;
  Descriptor stop_;
  std::thread thread_;
};

/// When MPI has ended on every rank of this node: the lowest of them waits for the others' processes to be gone, but
/// not for longer than `patience`. mpirun waits for one that stops on its last way for ever; it is named, and the job
/// ended.
void see_siblings_off(std::chrono::duration<double> patience, const KeptSigterm& sigterm);

}  // namespace lockstep
