// A reduction between its agreement and its wait.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/strategy/replica_context.hpp>

#include "comm/communicator.hpp"
#include "reduce/reductions.hpp"
#include "strategy/reduced_leaves.hpp"

namespace lockstep::detail {

class StartedReduction {
 public:
  /// LOCAL. Copies the leaves. InvalidArgument, which begins with `call`, if `op` is not defined for one of them.
  StartedReduction(ReplicaContext& context, const Call& call, ReduceOp op, std::vector<Leaf> leaves);
  StartedReduction(const StartedReduction&) = delete;

  /// What the ranks must agree on before `start`.
  std::string text(std::string_view structure) const { return reduced_.text(name_, structure); }

  /// COLL, directly after that agreement; returns at once. `reductions` must outlive the next agreement.
  void start(Reductions& reductions);

  /// COLL, blocking. Once, by the meeting point.
  void finish();
  bool is_finished() const { return finished_; }

  /// LOCAL. Rethrows what `finish` threw, also where that was swallowed: there is no result then.
  void require_result() const;

  /// LOCAL. The context's run is over.
  void leave_run() { context_ = nullptr; }

  /// Null once its run is over.
  ReplicaContext* context() const { return context_; }

  /// "all_reduce_async (trainer.cpp:40): ".
  std::string call_text() const { return Call{name_, here_}.text(); }

  std::vector<Leaf> take_leaves() { return std::move(leaves_); }

 private:
  ReplicaContext* context_;
  std::string_view name_;
  std::optional<Here> here_;
  std::vector<Leaf> leaves_;
  ReducedLeaves reduced_;
  Reductions* reductions_ = nullptr;
  std::optional<Work> dense_;
  bool finished_ = false;
  std::exception_ptr failure_;
};

}  // namespace lockstep::detail
