// What can be seen of the other ranks while there is no phase table: before MPI has started, and while it ends.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <unistd.h>

#include "control/descriptor.hpp"

namespace lockstep {

/// Ends this process, and with it the job, unless it is gone before: MPI waits for a rank that does not come. After
/// `patience` the system's list of processes says which of those that mpirun started on this node has stopped, or is
/// not there. Where it says nothing, a rank of another node is waited for much longer. Without mpirun there is nothing
/// to watch.
class SiblingWatch {
 public:
  /// `doing` as in "while the job was starting".
  SiblingWatch(std::string doing, std::chrono::duration<double> patience);
  SiblingWatch(const SiblingWatch&) = delete;
  ~SiblingWatch();

 private:
  struct Trouble {
    int rank;
    bool stopped;  ///< else it is not there
    bool operator==(const Trouble&) const = default;
  };

  void watch();
  /// False where this object is to end.
  bool wait(std::chrono::duration<double> time) const;
  static std::optional<Trouble> look();
  [[noreturn]] void end_for(const Trouble& trouble) const;
  [[noreturn]] void end_without_evidence() const;

  std::string doing_;
  std::chrono::duration<double> patience_;
  pid_t launcher_ = ::getppid();
  Descriptor stop_;
  std::thread thread_;
};

}  // namespace lockstep
