#include "models/record/run_folder.hpp"

#include <system_error>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/record/ledger.hpp"
#include "models/record/run_description.hpp"
#include "models/record/timeline.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/folder.hpp"
#include "sync/checkpoint/folder_lock.hpp"

namespace lockstep {
namespace {

/// ConfigError if a file would be replaced or removed that no run has written.
void require_own_files(const RunLayout& layout, const RunRecord::Options& options) {
  const auto name_of = [&](const std::filesystem::path& path) {
    return fmt::format("{} {}", options.folder_name, path.string());
  };
  bool has_run = false;
  for (const auto& path : {layout.description(), moved_away(layout.description())})
    has_run |= !read_description(path, name_of(path)).empty();
  (void)Timeline::find(layout.timeline(), name_of(layout.timeline()));
  (void)LedgerFile::find({layout.ledger(), layout.ledger_of_shards()}, 0, options.folder_name);
  if (has_run) return;
  // They have no beginning of their own, and only a run whose description is there has them.
  std::error_code none;
  for (const auto& path : {layout.where(), layout.stacks()})
    if (std::filesystem::exists(std::filesystem::symlink_status(path, none)))
      throw ConfigError{
          fmt::format("{}: holds something else, which would be lost; expected another folder, or none of "
                      "that name",
                      name_of(path))};
}

}  // namespace

std::shared_ptr<ExclusiveUse> lock_run_folder(const RunRecord::Options& options, RunStart start) {
  const std::filesystem::path& folder = options.folder;
  const std::string name = fmt::format("{} {}", options.folder_name, folder.string());
  require_writable_folder(folder, name);
  require_own_files(RunLayout{folder}, options);
  std::shared_ptr<ExclusiveUse> use = lock_folder(folder, name);
  finish_move_over(RunLayout{folder}.description());
  if (start == RunStart::may_resume) return use;
  const RunLayout layout{folder};
  for (const auto& file : {layout.description(), layout.metrics(), layout.timeline()}) {
    std::error_code none;
    if (std::filesystem::exists(std::filesystem::symlink_status(file, none)))
      throw ConfigError{fmt::format("{}: holds a run already; expected {}, which goes on with it, or another folder",
                                    name, options.resume_name)};
  }
  return use;
}

}  // namespace lockstep
