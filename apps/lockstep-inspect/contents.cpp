#include "apps/lockstep-inspect/contents.hpp"

#include <system_error>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(checkpoint_at(path), error);
  if (!std::filesystem::exists(status))
    throw ConfigError{fmt::format("{}: {}; expected a checkpoint, a folder of checkpoints or a safetensors file",
                                  path.string(), error.message())};
  return std::filesystem::is_directory(status) ? checkpoints_in(path) : std::vector<std::filesystem::path>{};
}

std::vector<Fact> facts_of(const WeightsMetadata& metadata) {
  std::vector<Fact> facts;
  for (const auto& [name, text] : metadata) facts.emplace_back("metadata " + name, text);
  return facts;
}

std::vector<Fact> facts_of(const Manifest& manifest) {
  std::vector<Fact> facts{{"step", fmt::format("{}", manifest.step)}};
  facts.insert(facts.end(), manifest.training.begin(), manifest.training.end());
  facts.emplace_back("kernels", manifest.kernels);
  if (!manifest.compression.empty()) facts.emplace_back("compression", manifest.compression);
  if (manifest.best)
    facts.emplace_back("best", fmt::format("step {}, loss {}", manifest.best->step, manifest.best->loss));
  for (const auto& [name, state] : manifest.state) facts.emplace_back("state of " + name, state);
  for (Fact& fact : facts_of(manifest.metadata)) facts.push_back(std::move(fact));
  return facts;
}

Contents contents_of(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) return {path, std::nullopt, {path}};
  return contents_of_checkpoint(path);
}

Contents contents_of_checkpoint(const std::filesystem::path& path) {
  Contents contents{path, read_checkpoint(path), {}};
  for (const Manifest::File& file : contents.manifest->files) contents.tensors.push_back(path / file.name);
  return contents;
}

}  // namespace lockstep
