#include "sync/checkpoint/folder_lock.hpp"

#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/base/supervised_job.hpp"
#include "core/base/system_error.hpp"
#include "sync/checkpoint/failure.hpp"

namespace lockstep {
namespace {

/// The folders that this process uses. It owns none.
struct UsedFolders {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<ExclusiveUse>> uses;
};

UsedFolders& used_folders() {
  static UsedFolders folders;
  return folders;
}

}  // namespace

std::chrono::milliseconds patience_with_other_jobs() {
  return std::chrono::seconds{std::getenv(supervised_variable) ? 30 : 0};
}

std::shared_ptr<ExclusiveUse> lock_folder(const std::filesystem::path& folder, const std::string& name,
                                          std::chrono::milliseconds patience) {
  std::error_code told_by_stat;
  std::filesystem::create_directories(folder, told_by_stat);
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0)
    fail_checkpoint(folder.string(), fmt::format("cannot be made: {}", error_text(errno)));
  UsedFolders& used = used_folders();
  const std::scoped_lock lock{used.mutex};
  std::weak_ptr<ExclusiveUse>& known = used.uses[{status.st_dev, status.st_ino}];
  if (auto use = known.lock()) return use;
  auto use = std::make_shared<ExclusiveUse>(ExclusiveUse::Options{.file = folder / ".lock",
                                                                  .lease = folder / ".lease",
                                                                  .name = name,
                                                                  .expected = "a folder that no other training uses",
                                                                  .patience = patience});
  known = use;
  return use;
}

}  // namespace lockstep
