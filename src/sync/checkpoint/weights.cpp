#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/sync/checkpoint/weights.hpp>

#include "core/base/digest.hpp"
#include "core/control/tag.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/strategy_values.hpp"
#include "sync/checkpoint/tensor_file.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// The file at `path`, or that of the checkpoint there, which must hold what the manifest says.
OpenTensorFile open_weights(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return OpenTensorFile{path};
  require_one_checkpoint(path);
  return open_checkpoint_file(path, read_checkpoint(path), weights_file);
}

/// Of a file or a checkpoint.
WeightsMetadata metadata_of_one(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? read_checkpoint(path).metadata
                                                      : OpenTensorFile{path}.metadata();
}

std::optional<WeightsMetadata> metadata_at(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::status(checkpoint_at(path), ignored);
  if (there.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (!std::filesystem::is_directory(there) || has_manifest(checkpoint_at(path)))
    return read_checkpoint_at(path, metadata_of_one);
  // The caller that restores one of them reports the ones passed over.
  return read_newest(path, metadata_of_one, [](const CheckpointError&) {});
}

/// The values of the variables that the file has.
struct Matched {
  std::vector<NamedTensor> homes;
  std::vector<Tensor> values;
  std::string rest;
};

Matched match(const OpenTensorFile& file, const std::vector<NamedTensor>& variables) {
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
    if (!entry.fits(variable.value.dtype(), variable.value.shape())) {
      others.push_back(fmt::format("has '{}' as {}, and the variable is {}", variable.name, describe(entry),
                                   describe(variable.value)));
      continue;
    }
    matched.homes.push_back(variable);
    matched.values.push_back(file.read(entry));
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

void save_weights(Strategy& strategy, const std::filesystem::path& path, const WeightsMetadata& metadata, Here here) {
  safetensors::require_writable(metadata);
  const Scope scope = detail::enter(strategy, {"save_weights", here});
  StrategyValues values{strategy, here};
  inside(strategy).agree(TagKind::save, here, path.string());
  values.combine(here);
  on_chief(strategy, here, [&] { write_tensors(path, values.variables(), metadata); });
}

std::optional<WeightsMetadata> read_weights_metadata(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = detail::enter(strategy, {"read_weights_metadata", here});
  inside(strategy).agree(TagKind::restore, here, path.string());
  return strategy.broadcast_object([&] { return metadata_at(path); }, here).value();
}

detail::LoadedWeights load_weights(Strategy& strategy, const std::filesystem::path& path, Here here) {
  const Scope scope = detail::enter(strategy, {"load_weights", here});
  StrategyValues values{strategy, here};
  inside(strategy).agree(TagKind::restore, here, path.string());
  values.combine(here);  // so that those that the file does not have keep what they hold
  const auto read = [&](const std::filesystem::path& found) {
    const OpenTensorFile file = open_weights(found);
    const Matched matched = match(file, values.variables());
    values.set(matched.homes, matched.values);
    return std::tuple{file.path().string(), std::ssize(matched.values), matched.rest, file.metadata()};
  };
  const auto [file, taken, rest, metadata] =
      strategy.broadcast_object([&] { return read_checkpoint_at(path, read); }, here).value();
  values.spread(here);
  return {file, taken, rest, metadata};
}

std::uint64_t weights_digest(const detail::VariableList& variables) {
  static_assert(std::endian::native == std::endian::little, "the digest is of little-endian bytes");
  Digest digest;
  for (const Variable& variable : variables) {
    const Tensor weights = Tensor::on_host(variable.for_reading(variable.dtype()));
    digest.update({weights.view().data(), weights.view().bytes()});
  }
  return digest.value();
}

}  // namespace lockstep
