#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/values/walks.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/strategy_core.hpp"

namespace lockstep {
namespace detail {

/// A reduction between its agreement and its wait.
class StartedReduction {
 public:
  /// LOCAL. Copies the leaves. InvalidArgument, which begins with `call`, if `op` is not defined for one of them.
  StartedReduction(ReplicaContext& context, const Call& call, ReduceOp op, std::vector<Leaf> leaves)
      : context_{&context},
        call_{call},
        leaves_{std::move(leaves)},
        reduced_{call, op, leaves_, context.strategy().stream()},
        reductions_{inside(context.strategy()).reductions()} {}
  StartedReduction(const StartedReduction&) = delete;

  /// What the ranks must agree on before `start`.
  std::string text(std::string_view structure) const { return reduced_.text(call_.name, structure); }

  /// COLL, directly after that agreement; returns at once.
  void start() { dense_ = reduced_.start_dense(reductions_); }

  /// COLL, blocking. Once, by the meeting point.
  void finish() {
    finished_ = true;
    try {
      dense_->wait();
      dense_.reset();
      // Ranks exchange the numbers of rows first, so this blocks the host on every device.
      reduced_.all_reduce_slices(reductions_);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  bool is_finished() const { return finished_; }

  /// LOCAL. Rethrows what `finish` threw, also where that was swallowed: there is no result then.
  std::vector<Leaf> take_leaves() {
    if (failure_) std::rethrow_exception(failure_);
    return std::move(leaves_);
  }

  /// LOCAL. The context's run is over.
  void leave_run() { context_ = nullptr; }

  /// Null once its run is over.
  ReplicaContext* context() const { return context_; }

  const Call& call() const { return call_; }

 private:
  ReplicaContext* context_;
  Call call_;
  std::vector<Leaf> leaves_;
  ReducedLeaves reduced_;
  Reductions& reductions_;
  std::optional<Work> dense_;
  bool finished_ = false;
  std::exception_ptr failure_;
};

void wait_for(std::shared_ptr<StartedReduction>& started, AnyValue result, const Here& here) {
  const Call call{"PendingReduction::wait", here};
  if (!started) throw ContextError{call.text() + "its result has been taken, or it has been moved from"};
  ReplicaContext* const context = started->context();
  if (!context) throw ContextError{call.text() + "the run that started it is over"};
  require_current(*context, call);
  Strategy& strategy = context->strategy();
  inside(strategy).require_not_captured();
  if (!started->is_finished()) inside(strategy).group().meeting().make_open_sum();
  inside(*context).erase(started);
  const std::vector<Leaf> leaves = started->take_leaves();
  started.reset();
  set_leaves(result, leaves);
}

}  // namespace detail

ReplicaContext::~ReplicaContext() {
  for (const auto& each : started_) each->leave_run();
}

int ReplicaContext::replica_id_in_sync_group(Here here) const {
  detail::require_current(*this, {"replica_id_in_sync_group", here});
  return strategy().rank();
}

std::vector<std::string> ReplicaContext::devices(Here here) const {
  detail::require_current(*this, {"devices", here});
  return {inside(strategy()).group().device_name()};
}

int ReplicaContext::num_replicas_in_sync() const {
  return strategy().num_replicas_in_sync();
}

void ReplicaContext::merge(std::string_view operands, const Here& here, const std::function<void(Strategy&)>& fn) {
  detail::require_current(*this, {"merge_call", here});
  inside(strategy()).agree(TagKind::merge, here, operands);
  const detail::PushedFrame frame{{detail::ContextMode::cross_replica, address_}};
  fn(strategy());
}

void ReplicaContext::attest_at_end(std::vector<SyncOnReadVariable> alike, Here here) {
  const detail::Call call{"attest_at_end", here};
  detail::require_current(*this, call);
  if (detail::is_default(*this)) throw ContextError{call.text() + "outside of run() there is no end to compare at"};
  attested_at_end_ = std::move(alike);
  attested_from_ = here;
}

void ReplicaContext::declared_merge(std::string_view batch, const std::function<void(Reductions&)>& fn, Here here) {
  detail::require_current(*this, {"declared_merge", here});
  inside(strategy()).agree(TagKind::merge, here, batch);
  const detail::PushedFrame frame{{detail::ContextMode::cross_replica, address_}};
  fn(inside(strategy()).reductions());
}

void ReplicaContext::declared_step(std::string_view batch, const std::function<void(Reductions&, AgreedRegion&)>& fn,
                                   Here here) {
  detail::require_current(*this, {"declared_step", here});
  inside(strategy()).agree(TagKind::merge, here, batch);
  AgreedRegion region = inside(strategy()).group().meeting().agreed_region();
  fn(inside(strategy()).reductions(), region);
}

void ReplicaContext::reduce(std::string_view method, ReduceOp op, detail::AnyValue nest, const Here& here) {
  const detail::Call call{method, here};
  detail::require_current(*this, call);
  inside(strategy()).require_not_captured(here);
  std::vector<detail::Leaf> leaves = detail::leaves_in(nest);
  detail::ReducedLeaves reduced{call, op, leaves, strategy().stream()};
  declared_merge(
      reduced.text(method, detail::structure_of(nest)), [&](Reductions& reductions) { reduced.all_reduce(reductions); },
      here);
  detail::set_leaves(nest, leaves);
}

void ReplicaContext::gather(detail::AnyValue nest, const Here& here) {
  const detail::Call call{"all_gather", here};
  detail::require_current(*this, call);
  inside(strategy()).require_not_captured(here);
  std::vector<Tensor> tensors;
  for (const detail::Leaf& leaf : detail::leaves_in(nest)) tensors.push_back(std::get<Tensor>(leaf));
  detail::require_rows(call, tensors);
  declared_merge(
      fmt::format("{}: {}{}", call.name, rows_text(tensors), detail::structure_of(nest)),
      [&](Reductions& reductions) { reductions.all_gather(tensors); }, here);
  detail::set_leaves(nest, std::vector<detail::Leaf>(tensors.begin(), tensors.end()));
}

std::shared_ptr<detail::StartedReduction> ReplicaContext::start(ReduceOp op, const detail::Description& type,
                                                                const void* nest, const Here& here) {
  return start(op, detail::leaves_in({type, nest}), detail::structure_of({type, nest}), here);
}

std::shared_ptr<detail::StartedReduction> ReplicaContext::start(ReduceOp op, std::vector<detail::Leaf> leaves,
                                                                std::string_view structure, const Here& here) {
  const detail::Call call{"all_reduce_async", here};
  detail::require_current(*this, call);
  inside(strategy()).require_not_captured();
  const auto reduction = std::make_shared<detail::StartedReduction>(*this, call, op, std::move(leaves));
  inside(strategy()).agree(TagKind::merge, here, reduction->text(structure));
  reduction->start();
  inside(strategy()).group().meeting().open_sum([reduction] { reduction->finish(); });
  started_.push_back(reduction);
  return reduction;
}

void ReplicaContext::require_waited_for() const {
  if (started_.empty()) return;
  throw ContextError{fmt::format("{}nothing waited for the result: call wait() on it before the end of the run",
                                 started_.front()->call().text())};
}

}  // namespace lockstep
