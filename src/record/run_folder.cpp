#include "record/run_folder.hpp"

#include <system_error>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "checkpoint/folder.hpp"
#include "checkpoint/folder_lock.hpp"

namespace lockstep {

std::shared_ptr<ExclusiveUse> hold_run_folder(const std::filesystem::path& folder, const RunRecord::Names& names,
                                              RunStart start) {
  const std::string name = fmt::format("{} {}", names.folder, folder.string());
  require_writable_folder(folder, name);
  std::shared_ptr<ExclusiveUse> use = hold_folder(folder, name);
  if (start == RunStart::may_resume) return use;
  const RunLayout layout{folder};
  for (const auto& file : {layout.description(), layout.metrics(), layout.timeline()}) {
    std::error_code none;
    if (std::filesystem::exists(std::filesystem::symlink_status(file, none)))
      throw ConfigError{fmt::format("{}: holds a run already; expected {}, which goes on with it, or another folder",
                                    name, names.resume)};
  }
  return use;
}

}  // namespace lockstep
