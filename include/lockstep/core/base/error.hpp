// The error taxonomy: one type per kind of failure, one exit code per type.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// Base class of every exception that the library throws on purpose.
class LOCKSTEP_API Error : public std::runtime_error {
 public:
  /// The exit code of a program that uses this library. Codes from 2 on tell who must act: the user, or the operator
  /// of the cluster.
  enum class ExitCode : int {
    done = 0,
    failure = 1,
    user_input = 2,
    mismatch = 3,
    peer_failed = 4,
    stall = 5,
    replicas_differ = 6,
    checkpoint = 7,
    diverged = 8,
    miscomputed = 9,
    stopped = 75,  ///< as schedulers know it (EX_TEMPFAIL): start the job again to continue
  };

  using std::runtime_error::runtime_error;
};

/// The user's files or flags are wrong. The message names the file or flag, the key, and what was expected.
class LOCKSTEP_API ConfigError : public Error {
 public:
  using Error::Error;
};

/// A method was called in the wrong context (replica, cross-replica, none, or another strategy's).
class LOCKSTEP_API ContextError : public Error {
 public:
  using Error::Error;
};

/// An argument violates a method's contract.
class LOCKSTEP_API InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The ranks disagree on what to do next. Thrown on every rank with the same message, which says where each rank is.
class LOCKSTEP_API MismatchError : public Error {
 public:
  using Error::Error;
};

/// A rank did not arrive within the stall timeout.
class LOCKSTEP_API StallError : public Error {
 public:
  using Error::Error;
};

/// An MPI or NCCL call failed. The message carries the library's own text.
class LOCKSTEP_API CommError : public Error {
 public:
  using Error::Error;
};

/// A device call failed, or the requested device is not there.
class LOCKSTEP_API DeviceError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint, or another file of a training, could not be written or read.
class LOCKSTEP_API CheckpointError : public Error {
 public:
  using Error::Error;
};

/// Replicas that should be equal are not. Thrown on every rank, the same on each, with all that the ranks know.
class LOCKSTEP_API DriftError : public Error {
 public:
  /// A value that every replica holds but that is not the same on all of them.
  struct Value {
    std::string name;                    ///< "variable 'w'", "optimizer state 'w@momentum'"
    std::vector<std::uint64_t> digests;  ///< of each replica's bytes, in replica order
  };

  /// All that the ranks know of the difference.
  struct Drift {
    std::vector<Value> values;  ///< in the order of comparison; at least one
    /// The replicas outside the majority on the first of `values`, ascending; empty if there is no majority.
    std::vector<int> blamed;
  };

  DriftError(const std::string& what, Drift drift)
      : Error{what}, drift_{std::make_shared<const Drift>(std::move(drift))} {}

  const Drift& drift() const { return *drift_; }

 private:
  std::shared_ptr<const Drift> drift_;  ///< shared: copying an exception must not throw
};

/// An audit found a result that another rank does not get. Thrown on every rank, the same on each.
class LOCKSTEP_API AuditError : public Error {
 public:
  struct Finding {
    std::int64_t step = 0;    ///< from 1
    std::int64_t shard = 0;   ///< of the step's batch, from 0
    std::string value;        ///< what differs: "samples", "gradient of 'dense/weight'"; or "sum of digests"
    std::vector<int> blamed;  ///< replicas, ascending; empty if it cannot be told whose result is wrong
  };

  AuditError(const std::string& what, Finding finding)
      : Error{what}, finding_{std::make_shared<const Finding>(std::move(finding))} {}

  const Finding& finding() const { return *finding_; }

 private:
  std::shared_ptr<const Finding> finding_;  ///< shared: copying an exception must not throw
};

/// The loss of a training is not finite. Thrown on every rank with the same message.
class LOCKSTEP_API DivergenceError : public Error {
 public:
  using Error::Error;
};

/// The job was asked to end early, and everything is in order. Thrown on every rank with the same message, which says
/// how to continue.
class LOCKSTEP_API StoppedError : public Error {
 public:
  using Error::Error;
};

/// Another rank, `rank()`, failed. `what()` carries that rank's own words.
class LOCKSTEP_API PeerError : public Error {
 public:
  /// `cause` is the exit code for the failing rank's own exception.
  PeerError(int rank, const std::string& what, ExitCode cause = ExitCode::peer_failed)
      : Error{what}, rank_{rank}, cause_{cause} {}

  int rank() const { return rank_; }
  ExitCode cause() const { return cause_; }

 private:
  int rank_;
  ExitCode cause_;
};

}  // namespace lockstep
