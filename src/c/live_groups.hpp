// The groups that a C program has made and not freed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/lockstep.h>
#include <lockstep/sync/group/group.hpp>

#include "core/base/parts.hpp"

/// Members in order of acquisition; they are destroyed in reverse.
struct lockstep_group {
  lockstep_group(lockstep::RuntimeOptions options, lockstep::Here here) : runtime{std::move(options), here} {}

  lockstep::Runtime runtime;
  lockstep::Group ranks = runtime.group();
  int models = 0;  ///< of liblockstep-torch-c.so, which are on these ranks
};

namespace lockstep::in_c {

/// The place that a C program passes: "file.c:41", another text, or null. No call of a Group keeps it.
class LOCKSTEP_PARTS_API Place {
 public:
  explicit Place(const char* at);
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  Here here() const { return at_ ? Here{file_.c_str(), line_} : Here{}; }

  /// `group`, whose ranks may be at different places if this one is null.
  Group on(const Group& group) const { return at_ ? group : group.anywhere(); }

 private:
  const char* at_;
  std::string file_;
  std::uint32_t line_ = 0;
};

/// LOCAL. ContextError if groups live that another thread has made.
void require_thread_of_groups();

/// LOCAL. The group of that handle. InvalidArgument if it is none, or was freed; ContextError on another thread than
/// that of the groups.
LOCKSTEP_PARTS_API lockstep_group& live_group(const lockstep_group* handle);

/// LOCAL. Its handle.
lockstep_group* add_live_group(std::unique_ptr<lockstep_group> group);
std::unique_ptr<lockstep_group> take_live_group(const lockstep_group* handle);

/// LOCAL, on the thread of the groups. Names what this process does from here on, for sentences about a lost rank.
void name_phase(lockstep_group& group, std::string_view name);
/// LOCAL, on the thread of the groups. When destroyed, shows that name again: for calls after which sentences would
/// show something else, whether they succeed or fail.
struct PhaseAgain {
  LOCKSTEP_PARTS_API ~PhaseAgain();
};

}  // namespace lockstep::in_c
