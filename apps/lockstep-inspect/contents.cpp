#include "apps/lockstep-inspect/contents.hpp"

#include <system_error>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "checkpoint/checkpoint_folder.hpp"

namespace lockstep {

std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw ConfigError{fmt::format("{}: {}; expected a checkpoint, a folder of checkpoints or a safetensors file",
                                  path.string(), error.message())};
  return std::filesystem::is_directory(status) ? checkpoints_in(path) : std::vector<std::filesystem::path>{};
}

Contents contents_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path, std::nullopt, {path}};
  Contents contents{path, read_checkpoint(path), {}};
  for (const Manifest::File& file : contents.manifest->files) contents.tensors.push_back(path / file.name);
  return contents;
}

}  // namespace lockstep
