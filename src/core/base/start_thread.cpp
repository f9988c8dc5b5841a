#include "core/base/start_thread.hpp"

#include <fstream>
#include <system_error>

#include <fmt/format.h>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/control_group.hpp"
#include "core/base/memory_use.hpp"

namespace lockstep {

std::thread start_thread(std::string_view purpose, std::function<void()> work) {
  try {
    return std::thread{std::move(work)};
  } catch (const std::system_error& error) {
    throw Error{
        fmt::format("no thread {} could be started: {}; {}", purpose, error.code().message(), limits_of_threads())};
  }
}

std::string limits_of_threads(const std::filesystem::path& root) {
  rlimit limit = {};
  (void)::getrlimit(RLIMIT_NPROC, &limit);
  std::string text = fmt::format("RLIMIT_NPROC is {}",
                                 limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur));
  // Each thread has a stack.
  if (const auto memory = memory_limit()) text += fmt::format(", RLIMIT_AS is {} bytes", *memory);
  const auto group = find_control_group(root, "self", "pids", {"pids.max", "pids.max"});
  if (!group) return text;
  for (std::filesystem::path folder = group->folder;; folder = folder.parent_path()) {
    std::string most;
    // "max" where there is no limit. The innermost limit is not always the one that was reached.
    if (std::ifstream{folder / "pids.max"} >> most && most != "max")
      text += fmt::format(", pids.max of {} is {}", folder.string(), most);
    if (folder == group->base || folder == folder.parent_path()) return text;
  }
}

}  // namespace lockstep
