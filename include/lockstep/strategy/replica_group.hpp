// What the strategies of a process stand on: the ranks they span, how those meet, and how their tensors are reduced.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/control/meeting_point.hpp>
#include <lockstep/reduce/cross_device_ops.hpp>

namespace lockstep {

/// One a process (one a simulated rank). Owns both planes; outlives every strategy made on it.
class ReplicaGroup {
 public:
  /// Called when a data collective failed on this rank: the others are inside it and cannot be told, so the job ends.
  /// Must not return.
  using EndJob = std::function<void(std::exception_ptr)>;

  /// `end_job` empty: std::terminate.
  ReplicaGroup(std::unique_ptr<Communicator> data, std::unique_ptr<ControlChannel> control,
               std::vector<std::string> replica_names, EndJob end_job = {});
  ~ReplicaGroup();

  int rank() const { return data_->rank(); }
  int size() const { return data_->size(); }

  /// Control plane: every agreement of the process.
  MeetingPoint& meeting() { return meeting_; }

  /// Data plane. Only for what an agreement covers. Never throws: a failure ends the job.
  CrossDeviceOps& reductions() { return *guarded_; }

  /// Numbers the strategies of the process in the order of their making, which is the same on every rank.
  int next_strategy() { return strategies_++; }

 private:
  std::unique_ptr<Communicator> data_;
  MeetingPoint meeting_;
  std::unique_ptr<CrossDeviceOps> guarded_;
  int strategies_ = 0;
};

/// A group of one: what a program has before, or without, a Runtime.
std::unique_ptr<ReplicaGroup> make_local_group();

}  // namespace lockstep
