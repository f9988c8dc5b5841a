#include "sync/checkpoint/saved_difference.hpp"

#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"
#include "core/control/tag.hpp"
#include "sync/checkpoint/checkpoint_files.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/strategy_values.hpp"
#include "sync/checkpoint/tensor_file.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

bool same_elements(const TensorView& one, const Tensor& other) {
  const Tensor on_host = Tensor::on_host(one);
  return std::memcmp(on_host.view().data(), other.view().data(), on_host.view().bytes()) == 0;
}

std::string difference_in(const OpenTensorFile& file, std::span<const NamedTensor> here) {
  const std::vector<Tensor> there = read_tensors(file, here);
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!same_elements(here[i].value, there[i]))
      return fmt::format("{} has another value of '{}'", file.path().string(), excerpt(here[i].name));
  return {};
}

std::string difference_in(const Manifest& there, const Manifest& here) {
  if (there.training != here.training) return "is of another training";
  if (there.kernels != here.kernels) return "is of other kernels";
  if (there.state != here.state) return "has another state of the training";
  if (there.metadata != here.metadata) return "describes another model, or other data";
  return {};
}

/// COLL. What `compare` finds on the chief.
std::string compare_on_chief(Strategy& strategy, std::string_view call, const std::filesystem::path& path,
                             const Here& here, const std::function<std::string(const StrategyValues&)>& compare) {
  const Scope scope = detail::enter(strategy, {call, here});
  StrategyValues values{strategy, here};
  inside(strategy).agree(TagKind::restore, here, path.string());
  values.combine(here);
  return strategy.broadcast_object([&] { return compare(values); }, here).value();
}

}  // namespace

std::string difference_of_checkpoint(Strategy& strategy, const std::filesystem::path& checkpoint,
                                     const Manifest& expected, Here here) {
  const auto compare_there = [&](const StrategyValues& values) -> std::string {
    const Manifest manifest = read_checkpoint(checkpoint);
    if (const std::string wrong = difference_in(manifest, expected); !wrong.empty())
      return fmt::format("{} {}", checkpoint.string(), wrong);
    for (const TensorFile& file : files_of(values))
      if (std::string wrong = difference_in(open_checkpoint_file(checkpoint, manifest, file.name), file.tensors);
          !wrong.empty())
        return wrong;
    return {};
  };
  const auto compare = [&](const StrategyValues& values) -> std::string {
    if (!has_manifest(checkpoint)) return {};
    try {
      return read_checkpoint_at(checkpoint, [&](const auto&) { return compare_there(values); });
    } catch (const CheckpointError&) {
      if (!is_gone(checkpoint)) throw;
      return {};
    }
  };
  return compare_on_chief(strategy, "difference_of_checkpoint", checkpoint, here, compare);
}

std::string difference_of_weights(Strategy& strategy, const std::filesystem::path& path,
                                  const WeightsMetadata& expected, Here here) {
  const auto compare = [&](const StrategyValues& values) -> std::string {
    const OpenTensorFile file{path};
    if (file.metadata() != expected) return fmt::format("{} describes another model, or other data", path.string());
    return difference_in(file, values.variables());
  };
  return compare_on_chief(strategy, "difference_of_weights", path, here, compare);
}

}  // namespace lockstep
