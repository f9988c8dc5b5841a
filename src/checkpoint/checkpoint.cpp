#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/checkpoint/checkpoint.hpp>

#include "checkpoint/tensor_file.hpp"

namespace lockstep {
namespace {

bool is_sync_on_read(const Variable& variable) {
  return variable.state().synchronization == VariableSynchronization::on_read;
}

/// All variables, in the order of their creation. ContextError if one has no memory yet.
std::vector<Variable> variables_of(Strategy& strategy, const Here& here) {
  std::vector<Variable> variables;
  for (const auto& state : strategy.store().variables()) {
    variables.push_back(MirroredVariable{state});
    (void)variables.back().local(here);
  }
  return variables;
}

std::vector<Variable> sync_on_read_among(const std::vector<Variable>& variables) {
  std::vector<Variable> found;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(found), is_sync_on_read);
  return found;
}

/// The variables and the optimizers' state, as entries of a file. `combined` holds the combined values of the
/// sync-on-read variables, in order.
std::vector<NamedTensor> named(const std::vector<Variable>& variables, std::span<const Tensor> combined,
                               const VariableStore& store) {
  std::vector<NamedTensor> tensors;
  auto next = combined.begin();
  for (const Variable& variable : variables)
    tensors.push_back({std::string{variable.name()}, is_sync_on_read(variable) ? (next++)->view() : variable.local()});
  for (OptimizerState& state : store.optimizer_state()) tensors.push_back({std::move(state.name), state.value});
  return tensors;
}

/// COLL. Does `work` on the chief while the others wait. If it fails there, it fails on all.
template <class Work>
void on_chief(Strategy& strategy, const Here& here, Work&& work) {
  if (!strategy.extended().should_checkpoint()) return strategy.agree(TagKind::chief, here, {});
  MeetingPoint& meeting = strategy.group().meeting();
  const auto alone = meeting.working_alone();
  try {
    work();
  } catch (...) {
    meeting.fail(std::current_exception());
  }
  strategy.agree(TagKind::chief, here, {});
}

}  // namespace

void save_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  const std::vector<Variable> variables = variables_of(strategy, here);
  strategy.agree(TagKind::save, here, path.string());
  const std::vector<Tensor> combined = strategy.extended().read_vars(sync_on_read_among(variables), here);
  on_chief(strategy, here, [&] { write_tensors(path, named(variables, combined, strategy.store())); });
}

void restore_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  const std::vector<Variable> variables = variables_of(strategy, here);
  strategy.agree(TagKind::restore, here, path.string());

  const std::vector<Variable> sync_on_read = sync_on_read_among(variables);
  std::vector<Tensor> combined;
  for (const Variable& variable : sync_on_read) combined.push_back(Tensor::zeros(variable.dtype(), variable.shape()));
  on_chief(strategy, here, [&] {
    const std::vector<NamedTensor> wanted = named(variables, combined, strategy.store());
    const std::vector<Tensor> values = read_tensors(path, wanted);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const TensorView& home = wanted[i].value;
      copy(values[i].view(), home, home.device() == DeviceKind::cpu ? host_stream() : strategy.stream());
    }
  });
  strategy.rebroadcast(here);
  if (combined.empty()) return;
  combined = strategy.extended().broadcast_to(PerReplica{combined}, here).value();
  for (std::size_t i = 0; i < sync_on_read.size(); ++i) sync_on_read[i].assign(combined[i], here);
}

}  // namespace lockstep
