#include "python/waits.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace lockstep::python {
namespace {

using std::chrono::steady_clock;

struct Wait {
  const Call* call;
  steady_clock::time_point begun;
};

struct Waits {
  std::mutex mutex;
  // All under `mutex`.
  std::vector<Wait> all;  ///< in the order in which they began
  std::map<std::string, std::int64_t> calls;
};

Waits& waits() {
  static Waits all;
  return all;
}

}  // namespace

ShownWait::ShownWait(const Call& call) : call_{call} {
  const std::scoped_lock lock{waits().mutex};
  waits().all.push_back({&call, steady_clock::now()});
}

ShownWait::~ShownWait() {
  const std::scoped_lock lock{waits().mutex};
  waits().all.erase(std::ranges::find(waits().all, &call_, &Wait::call));
}

std::optional<FoundWait> first_wait(steady_clock::duration ago) {
  const std::scoped_lock lock{waits().mutex};
  const std::vector<Wait>& all = waits().all;
  if (all.empty() || steady_clock::now() - all.front().begun < ago) return {};
  const Call& call = *all.front().call;
  return FoundWait{call.place(), call.other(), call.group(), call.number()};
}

bool FoundWait::is_for(int rank) const {
  if (group.empty()) return other == rank;
  const std::scoped_lock lock{waits().mutex};
  const auto made = waits().calls.find(group);
  return made != waits().calls.end() && made->second < number;
}

void open_group(const std::string& group) {
  const std::scoped_lock lock{waits().mutex};
  waits().calls[group] = 0;
}

std::int64_t count_call(const std::string& group) {
  const std::scoped_lock lock{waits().mutex};
  return ++waits().calls[group];
}

}  // namespace lockstep::python
