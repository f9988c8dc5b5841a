#include "apps/lockstep-train/saved/exported_weights.hpp"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_type.hpp"
#include "core/base/own_file.hpp"
#include "core/base/system_error.hpp"
#include "sync/checkpoint/safetensors.hpp"

namespace lockstep {
namespace {

/// What this run reads or writes besides, by its option; null if the path is another, or a new one in a folder of data.
const char* other_use(const std::filesystem::path& path, const TrainingOptions& options) {
  std::error_code none;
  const auto is_at = [&](const std::filesystem::path& used) { return std::filesystem::equivalent(path, used, none); };
  const auto is_in = [&](const std::filesystem::path& used) {
    return std::filesystem::exists(path, none) &&
           std::filesystem::equivalent(path.has_parent_path() ? path.parent_path() : ".", used, none);
  };
  for (const auto& [option, used] : {std::pair{"--data", options.data}, {"--metrics", options.metrics}})
    if (!used.empty() && (path == used || is_at(used) || is_in(used))) return option;
  return nullptr;
}

/// Whether it is a link to what a process has open, such as /dev/stdout.
bool names_descriptor(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::read_symlink(path, none).string().starts_with("/proc/");
}

}  // namespace

void require_exportable(const TrainingOptions& options) {
  const std::filesystem::path& path = options.exported_weights;
  if (path.empty()) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::string name = fmt::format("--export {}", path.string());
  // What is there is replaced, and a device or a pipe would be gone.
  std::string wrong = why_not_regular(path);
  if (names_descriptor(path)) wrong = "is what a process has open, not a file";
  if (const char* const option = other_use(path, options); wrong.empty() && option)
    wrong = fmt::format("is a file of {} too", option);
  if (wrong.empty() && ::access(folder.c_str(), W_OK | X_OK) != 0) wrong = error_text(errno);
  if (!wrong.empty()) throw ConfigError{fmt::format("{}: {}; expected a file that can be written", name, wrong)};
  // A link is replaced, and what it leads to stays.
  std::error_code none;
  if (!std::filesystem::is_symlink(path, none))
    require_own(path, {safetensors::own_begin}, name, "a new file, or weights that lockstep wrote",
                safetensors::length_bytes);
}

}  // namespace lockstep
