#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/checkpoint/checkpoint.hpp>

#include "core/control/tag.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/shared_counter.hpp"
#include "sync/checkpoint/strategy_values.hpp"
#include "sync/checkpoint/tensor_file.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/fit_progress.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// All values of a strategy in one file.
std::vector<NamedTensor> all(const StrategyValues& values) {
  std::vector<NamedTensor> tensors = values.variables();
  for (NamedTensor& state : values.optimizer_state()) tensors.push_back(std::move(state));
  return tensors;
}

bool has_entry(const std::filesystem::path& path, std::string_view name) {
  const OpenTensorFile file{path};
  return std::ranges::find(file.entries(), name, &safetensors::Entry::name) != file.entries().end();
}

}  // namespace

void save_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = detail::enter(strategy, {"save_checkpoint", here});
  StrategyValues values{strategy, here};
  inside(strategy).agree(TagKind::save, here, path.string());
  values.combine(here);
  on_chief(strategy, here, [&] { write_tensors(path, all(values)); });
}

void restore_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = detail::enter(strategy, {"restore_checkpoint", here});
  StrategyValues values{strategy, here};
  inside(strategy).agree(TagKind::restore, here, path.string());
  on_chief(strategy, here, [&] {
    read_checkpoint_at(path, [&](const std::filesystem::path& file) {
      std::vector<NamedTensor> homes = all(values);
      SharedCounter shared;
      shared.take_missing(homes, [&](std::string_view name) { return has_entry(file, name); });
      values.set(homes, read_tensors(file, homes));
      shared.restore(file.string());
    });
  });
  values.spread(here);
  // A file of weights alone, or from before the first step, says nothing that `fit` would have to go on from.
  const std::int64_t steps = detail::FitProgress::optimizer_steps(strategy.store());
  detail::FitProgress& progress = detail::FitProgress::of(strategy.store());
  if (steps > 0)
    progress.restore({.checkpoint = path.string(), .step = steps, .state = {}, .optimizer_steps = steps});
  else
    progress.forget_restored();
}

}  // namespace lockstep
