// What Python gets for a call.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "python/call.hpp"
#include "python/turns.hpp"

namespace lockstep::python {

/// Python's view of a call.
class CallWork : public c10d::Work {
 public:
  /// `turns` are those of the group.
  CallWork(std::shared_ptr<Call> call, int rank, c10d::OpType type, std::shared_ptr<Turns> turns);

  /// Never blocks. Completions finishes the call: `finish` may run callbacks, which may wait.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  const std::shared_ptr<Call>& call() const { return call_; }
  const std::shared_ptr<Turns>& turns() const { return turns_; }

 private:
  std::shared_ptr<Call> call_;
  std::shared_ptr<Turns> turns_;
};

}  // namespace lockstep::python
