#include "c/live_groups.hpp"

#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include <lockstep/core/base/error.hpp>

#include "c/calls.hpp"
#include "c/live_handles.hpp"

namespace lockstep::in_c {
namespace {

/// Never destroyed: a program may end without freeing its groups, whose ranks have then left the job together.
struct LiveGroups {
  std::mutex mutex;  ///< another thread may ask, to be refused
  LiveHandles<lockstep_group> groups{"group", "create"};
  std::thread::id thread;           ///< of the first that lives
  lockstep_group* namer = nullptr;  ///< of the phase, if there is one
  std::string phase;
};

LiveGroups& live() {
  static LiveGroups& all = *new LiveGroups;
  return all;
}

void require_thread(const LiveGroups& all) {
  require<ContextError>(all.groups.empty() || all.thread == std::this_thread::get_id(),
                        "this is another thread than that of the first group; expected that one");
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
  lockstep_group& found = all.groups.at(handle);
  require_thread(all);
  return found;
}

lockstep_group* add_live_group(std::unique_ptr<lockstep_group> group) {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  if (all.groups.empty()) all.thread = std::this_thread::get_id();
  return all.groups.add(std::move(group));
}

std::unique_ptr<lockstep_group> take_live_group(const lockstep_group* handle) {
  LiveGroups& all = live();
  const std::lock_guard lock{all.mutex};
  if (all.namer == handle) name_phase(*all.namer, {});
  return all.groups.take(handle);
}

void name_phase(lockstep_group& group, std::string_view name) {
  LiveGroups& all = live();
  all.namer = name.empty() ? nullptr : &group;
  all.phase = name;
  group.ranks.name_phase(name);
}

PhaseAgain::~PhaseAgain() {
  const LiveGroups& all = live();
  if (all.namer) all.namer->ranks.name_phase(all.phase);
}

}  // namespace lockstep::in_c
