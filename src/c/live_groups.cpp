#include "c/live_groups.hpp"

#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include <lockstep/core/base/error.hpp>

namespace lockstep::in_c {
namespace {

/// Never destroyed: a program may end without freeing its groups, whose ranks have then left the job together.
struct LiveGroups {
  std::mutex mutex;  ///< another thread may ask, to be refused
  std::map<const lockstep_group*, std::unique_ptr<lockstep_group>> groups;
  std::thread::id thread;  ///< of the first that lives
};

LiveGroups& live() {
  static LiveGroups& all = *new LiveGroups;
  return all;
}

void require_thread(const LiveGroups& all) {
  if (!all.groups.empty() && all.thread != std::this_thread::get_id())
    throw ContextError{"this is another thread than that of the first group; expected that one"};
}

}  // namespace

Place::Place(const char* at) : at_{at} {
  if (!at) return;
  file_ = at;
  const std::size_t colon = file_.rfind(':');
  if (colon == std::string::npos || colon == 0) return;
  const char* const end = file_.data() + file_.size();
  std::uint32_t line = 0;
  const auto [after, error] = std::from_chars(file_.data() + colon + 1, end, line);
  if (error != std::errc{} || after != end || line == 0) return;
  line_ = line;
  file_.resize(colon);
}

void require_thread_of_groups() {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  require_thread(all);
}

lockstep_group& live_group(const lockstep_group* handle) {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  if (!handle) throw InvalidArgument{"the group is NULL; expected one that lockstep_group_create has made"};
  const auto found = all.groups.find(handle);
  if (found == all.groups.end()) throw InvalidArgument{"the group is none, or was freed; expected one that lives"};
  require_thread(all);
  return *found->second;
}

lockstep_group* add_live_group(std::unique_ptr<lockstep_group> group) {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  if (all.groups.empty()) all.thread = std::this_thread::get_id();
  lockstep_group* const handle = group.get();
  all.groups.emplace(handle, std::move(group));
  return handle;
}

std::unique_ptr<lockstep_group> take_live_group(const lockstep_group* handle) {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  const auto found = all.groups.find(handle);
  std::unique_ptr<lockstep_group> group = std::move(found->second);
  all.groups.erase(found);
  return group;
}

}  // namespace lockstep::in_c
