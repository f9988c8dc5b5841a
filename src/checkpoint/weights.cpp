#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/checkpoint/weights.hpp>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/failure.hpp"
#include "checkpoint/strategy_values.hpp"
#include "checkpoint/tensor_file.hpp"
#include "tensor/digest.hpp"

namespace lockstep {
namespace {

/// A file to read, and what must be in it if it is a checkpoint's.
struct Source {
  std::filesystem::path file;
  std::optional<Manifest> manifest;
};

Source source_at(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {path, std::nullopt};
  if (const auto inside = checkpoints_in(path); !inside.empty())
    fail_checkpoint(path.string(), fmt::format("is a folder of checkpoints; expected one of them, such as {}",
                                               inside.front().filename().string()));
  Source source{path / weights_file, read_checkpoint(path)};
  if (!source.manifest->file(weights_file)) fail_checkpoint(path.string(), fmt::format("has no {}", weights_file));
  return source;
}

Tensor read_entry(const Source& source, const OpenTensorFile& file, const safetensors::Entry& entry) {
  const Tensor value = file.read(entry);
  if (source.manifest) require_digest(source.file, *source.manifest->file(weights_file), entry.name, value.view());
  return value;
}

/// The values of the variables that the file has.
struct Matched {
  std::vector<NamedTensor> homes;
  std::vector<Tensor> values;
  std::string rest;
};

Matched match(const Source& source, const std::vector<NamedTensor>& variables) {
  const OpenTensorFile file{source.file};
  std::map<std::string_view, const safetensors::Entry*> entries;
  for (const safetensors::Entry& entry : file.entries()) entries.emplace(entry.name, &entry);

  Matched matched;
  std::vector<std::string_view> missing, unknown;
  std::vector<std::string> others;
  for (const NamedTensor& variable : variables) {
    const auto found = entries.find(variable.name);
    if (found == entries.end()) {
      missing.push_back(variable.name);
      continue;
    }
    const safetensors::Entry& entry = *found->second;
    entries.erase(found);
    if (entry.dtype != variable.value.dtype() || entry.shape != variable.value.shape()) {
      others.push_back(fmt::format("has '{}' as {}, and the variable is {}", variable.name, describe(entry),
                                   describe(variable.value)));
      continue;
    }
    matched.homes.push_back(variable);
    matched.values.push_back(read_entry(source, file, entry));
  }
  for (const auto& [name, entry] : entries) unknown.push_back(name);

  constexpr std::size_t most = 3;
  std::vector<std::string> rest;
  if (!missing.empty()) rest.push_back("has no " + listed(missing));
  if (others.size() > most) rest.push_back(fmt::format("has {} more of another type or shape", others.size() - most));
  others.resize(std::min(others.size(), most));
  rest.insert(rest.begin() + (missing.empty() ? 0 : 1), others.begin(), others.end());
  if (!unknown.empty()) rest.push_back(fmt::format("has {}, which no variable is called", listed(unknown)));
  matched.rest = one_line(fmt::format("{}", fmt::join(rest, "; ")));
  return matched;
}

}  // namespace

void save_weights(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  StrategyValues values{strategy, here};
  strategy.agree(TagKind::save, here, path.string());
  values.combine(here);
  on_chief(strategy, here, [&] { write_tensors(path, values.variables()); });
}

LoadedWeights load_weights(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = strategy.scope();
  StrategyValues values{strategy, here};
  strategy.agree(TagKind::restore, here, path.string());
  values.combine(here);  // so that those that the file does not have keep what they hold
  const auto read = [&] {
    const Source source = source_at(path);
    const Matched matched = match(source, values.variables());
    values.set(matched.homes, matched.values);
    return fmt::format("{}\n{}\n{}", matched.values.size(), matched.rest, source.file.string());
  };
  const std::string text = strategy.broadcast_object(read, here).value();
  values.spread(here);
  const std::size_t rest = text.find('\n') + 1, file = text.find('\n', rest) + 1;
  return {text.substr(file), std::stoll(text), text.substr(rest, file - 1 - rest)};
}

}  // namespace lockstep
