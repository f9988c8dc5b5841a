#include "use.hpp"

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "../core.hpp"

namespace cusim {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<Comm>> live;
  std::vector<std::shared_ptr<Comm>> gone;  ///< kept, so that no new one has the handle of an old one
  std::array<char, 512> last_problem{};
};

/// Never destroyed: threads of communicators may outlive main.
Registry& registry() {
  static auto& made = *new Registry;
  return made;
}

}  // namespace

ncclComm_t publish(std::shared_ptr<Comm> comm) {
  const auto handle = reinterpret_cast<ncclComm_t>(comm.get());
  const std::lock_guard lock{registry().mutex};
  registry().live[handle] = std::move(comm);
  return handle;
}

std::shared_ptr<Comm> find(ncclComm_t handle, const char* call) {
  const std::lock_guard lock{registry().mutex};
  const auto place = registry().live.find(handle);
  if (place == registry().live.end())
    found(fmt::format("{} on a communicator that was destroyed, aborted or never made", call));
  return place->second;
}

void withdraw(ncclComm_t handle) {
  const std::lock_guard lock{registry().mutex};
  const auto place = registry().live.find(handle);
  if (place == registry().live.end()) return;
  registry().gone.push_back(std::move(place->second));
  registry().live.erase(place);
}

Use::Use(ncclComm_t handle, const char* call, During allowed) : comm_{find(handle, call)} {
  const int thread = ::gettid();
  if (const char* const other = comm_->inside.exchange(call))
    found(fmt::format("two threads are in one communicator: {} during {}", call, other));
  if (const int owner = comm_->group_thread; owner && owner != thread)
    found(fmt::format("two threads are in one communicator: {} while another has it in a group", call));
  if (allowed == During::progress) return;
  if (const std::string earlier = comm_->in_progress(); !earlier.empty())
    found(fmt::format("{} while {} is in progress", call, earlier));
}

Use::~Use() {
  // A stay that is longer than its work meets more of those who should not be there.
  if (draw("nccl stay", 8) == 0) std::this_thread::sleep_for(std::chrono::microseconds{50});
  comm_->inside = nullptr;
}

ncclResult_t complain(ncclResult_t result, const std::string& problem) {
  const std::lock_guard lock{registry().mutex};
  registry().last_problem.fill('\0');
  problem.copy(registry().last_problem.data(), registry().last_problem.size() - 1);
  return result;
}

}  // namespace cusim

const char* ncclGetLastError(ncclComm_t) {
  return cusim::registry().last_problem.data();
}
