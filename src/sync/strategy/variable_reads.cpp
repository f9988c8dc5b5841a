#include "sync/strategy/variable_reads.hpp"

#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/tag.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"

namespace lockstep::detail {
namespace {

/// Turns one rank's component of a sync-on-read variable into the value that the variable reads as.
class ComponentRead {
 public:
  /// `component` is one leaf, which becomes the value.
  ComponentRead(const Call& call, const Variable& variable, std::vector<Leaf>& component, Stream& stream)
      : variable_{variable}, reduced_{call, op_of(call, variable), component, stream} {}

  std::string text() const {
    const std::string read = fmt::format("read variable {} ({})", variable_.label(), name_of(variable_.aggregation()));
    return is_broadcast() ? fmt::format("{}: {}", read, reduced_.leaves_text()) : reduced_.text(read);
  }

  /// COLL; an agreement covers it.
  void combine(Reductions& reductions) {
    if (is_broadcast()) {
      reduced_.broadcast(reductions, 0);
    } else {
      reduced_.all_reduce(reductions);
    }
  }

 private:
  bool is_broadcast() const { return variable_.aggregation() == Variable::Aggregation::only_first_replica; }

  static ReduceOp op_of(const Call& call, const Variable& variable) {
    if (variable.aggregation() == Variable::Aggregation::none)
      throw InvalidArgument{
          fmt::format("{}variable {} has the aggregation `none`: there is no way to read its components as one",
                      call.text(), variable.label())};
    return detail::op_of(variable.aggregation());
  }

  const Variable& variable_;
  ReducedLeaves reduced_;
};

/// ContextError where the values of all replicas cannot be read.
void require_readable(const Strategy& strategy, const Call& call) {
  require_not_another(strategy, call);
  if (current_frame() && !Strategy::in_cross_replica_context())
    throw ContextError{call.text() +
                       "reading a variable requires cross-replica context, and this is replica context, inside of "
                       "run(): call local() on the variable for this replica's component, or read it in a merge_call "
                       "or after the run"};
}

}  // namespace

std::vector<Tensor> read_variables(Strategy& strategy, const Call& call, const VariableList& variables) {
  const Here here = call.here.value_or(Here{});
  require_readable(strategy, call);
  std::vector<std::vector<Leaf>> values;  // of one leaf each
  std::list<ComponentRead> reads;
  std::vector<std::string> texts;
  values.reserve(variables.size());
  for (const Variable& variable : variables) {
    require_own(strategy, variable, call);
    const bool is_combined = inside(variable).state().synchronization == Variable::Synchronization::on_read;
    if (is_combined) inside(strategy).require_not_captured(here);
    values.push_back({Tensor::on_host(variable.local(here))});
    if (!is_combined) continue;
    texts.push_back(reads.emplace_back(call, variable, values.back(), strategy.stream()).text());
  }
  if (!reads.empty()) inside(strategy).agree(TagKind::reduce, here, fmt::format("{}", fmt::join(texts, ", ")));
  for (ComponentRead& read : reads) read.combine(inside(strategy).reductions());

  std::vector<Tensor> tensors;
  for (const std::vector<Leaf>& each : values) tensors.push_back(std::get<Tensor>(each.front()));
  return tensors;
}

}  // namespace lockstep::detail
