#include "group.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <unistd.h>

#include "use.hpp"

namespace cusim {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t failure = ncclSuccess;
  std::vector<std::pair<std::shared_ptr<Comm>, std::vector<Call>>> calls;
};
thread_local Group group;

}  // namespace

bool in_group() {
  return group.depth > 0;
}

ncclResult_t failed_in_group(ncclResult_t result) {
  if (in_group() && group.failure == ncclSuccess) group.failure = result;
  return result;
}

ncclResult_t add(const std::shared_ptr<Comm>& comm, const Call& call) {
  if (!in_group()) return comm->launch({call});
  const auto place =
      std::find_if(group.calls.begin(), group.calls.end(), [&](const auto& entry) { return entry.first == comm; });
  if (place != group.calls.end()) {
    place->second.push_back(call);
  } else {
    comm->group_thread = ::gettid();
    group.calls.push_back({comm, {call}});
  }
  return ncclSuccess;
}

ncclResult_t start_group() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (group.depth == 0) return complain(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group whole = std::exchange(group, {});
  ncclResult_t result = whole.failure;
  for (const auto& [comm, calls] : whole.calls) {
    if (result == ncclSuccess || result == ncclInProgress) {
      const ncclResult_t launched = comm->launch(calls);
      if (launched != ncclSuccess) result = launched;
      if (launched != ncclSuccess && launched != ncclInProgress) complain(launched, comm->problem());
    }
    comm->group_thread = 0;
  }
  return result;
}

}  // namespace cusim
