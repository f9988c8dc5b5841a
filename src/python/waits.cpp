#include "python/waits.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace lockstep::python {
namespace {

using std::chrono::steady_clock;

struct Wait {
  const Call* call;
  steady_clock::time_point begun = steady_clock::now();
};

struct Waits {
  std::mutex mutex;
  // All under `mutex`.
  std::int64_t begun = 0;
  std::map<std::int64_t, Wait> all;  ///< in the order in which they began
  std::map<std::string, const CountedCalls*> groups;
};

/// Never destroyed: threads may still ask while the process exits.
Waits& waits() {
  static Waits& all = *new Waits;
  return all;
}

}  // namespace

CountedCalls::CountedCalls(std::string group) : group_{std::move(group)} {
  const std::scoped_lock lock{waits().mutex};
  waits().groups[group_] = this;
}

CountedCalls::~CountedCalls() {
  const std::scoped_lock lock{waits().mutex};
  std::erase_if(waits().groups, [this](const auto& each) { return each.second == this; });  // not a later one's
}

ShownWait::ShownWait(const Call& call) {
  const std::scoped_lock lock{waits().mutex};
  number_ = waits().begun++;
  waits().all.emplace(number_, Wait{&call});
}

ShownWait::~ShownWait() {
  const std::scoped_lock lock{waits().mutex};
  waits().all.erase(number_);
}

std::optional<FoundWait> first_wait(steady_clock::duration ago) {
  const std::scoped_lock lock{waits().mutex};
  if (waits().all.empty()) return {};
  const Wait& first = waits().all.begin()->second;
  const Call& call = *first.call;
  if (steady_clock::now() - first.begun < ago || call.has_met()) return {};
  return FoundWait{call.other(), call.number(), call.group() ? call.group()->group() : std::string{}, call.place()};
}

bool FoundWait::is_for(int rank) const {
  if (group.empty()) return other == rank;
  const std::scoped_lock lock{waits().mutex};
  const auto found = waits().groups.find(group);
  return found != waits().groups.end() && found->second->made() < number;
}

}  // namespace lockstep::python
