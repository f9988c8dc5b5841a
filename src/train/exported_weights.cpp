#include "train/exported_weights.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/checkpoint/weights.hpp>

#include "base/file_type.hpp"

namespace lockstep {

void require_exportable(const TrainingOptions& options) {
  const std::filesystem::path& path = options.exported_weights;
  if (path.empty()) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  // What is there is replaced, and a device or a pipe would be gone.
  std::string wrong = why_not_regular(path);
  if (wrong.empty() && ::access(folder.c_str(), W_OK | X_OK) != 0) wrong = std::generic_category().message(errno);
  if (!wrong.empty())
    throw ConfigError{fmt::format("--export {}: {}; expected a file that can be written", path.string(), wrong)};
}

void export_weights(Strategy& strategy, const TrainingOptions& options, const TrainingTask& task) {
  if (options.exported_weights.empty()) return;
  save_weights(strategy, options.exported_weights, metadata_of(task.description(), task.schema()));
  if (strategy.group().rank() == 0)
    log::info(fmt::format("wrote the weights to {}", options.exported_weights.string()));
}

}  // namespace lockstep
