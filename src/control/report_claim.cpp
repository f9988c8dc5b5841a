#include "control/report_claim.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include "base/abstract_socket.hpp"
#include "base/descriptor.hpp"
#include "cluster/launch.hpp"

namespace lockstep {
namespace {

// Any process of this host may hold a name before the job does. Each that another user holds is passed over.
constexpr int names_of_claim = 8;

/// The job's name on this node; none without a launcher.
std::optional<std::string> job_of_claim() {
  const std::string job = name_of_job([](const char* name) { return std::getenv(name); });
  if (job.empty()) return std::nullopt;
  return fmt::format("lockstep report {} {}", job, name_of_parent());
}

/// Calls bind or connect with the address for the name of that number.
bool with_address(const std::string& job, int number, const std::function<int(const sockaddr*, socklen_t)>& call) {
  return with_abstract_address(number == 0 ? job : fmt::format("{} {}", job, number), call);
}

/// Whether a process of this user listens there.
bool is_held_by_us(const std::string& job, int number) {
  const Descriptor socket = make_local_socket();
  return with_address(
             job, number,
             [&](const sockaddr* address, socklen_t size) { return ::connect(socket.get(), address, size); }) &&
         is_peer_of_this_user(socket);
}

bool is_held_by_us(const std::string& job) {
  for (int number = 0; number < names_of_claim; ++number)
    if (is_held_by_us(job, number)) return true;
  return false;
}

enum class Hold { mine, ours, of_another };

Hold hold(const std::string& job, int number, const Descriptor& socket) {
  const bool bound = with_address(
      job, number, [&](const sockaddr* address, socklen_t size) { return ::bind(socket.get(), address, size); });
  if (bound) return ::listen(socket.get(), SOMAXCONN) == 0 ? Hold::mine : Hold::of_another;
  // A rank that has just taken the name listens a moment later.
  for (int look = 0; look < 10; ++look) {
    if (is_held_by_us(job, number)) return Hold::ours;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return Hold::of_another;
}

}  // namespace

bool claim_report(PhaseTable* table) {
  if (table && !table->claim_report()) return false;
  const auto job = job_of_claim();
  if (!job) return true;
  if (is_held_by_us(*job)) return false;
  static Descriptor claim;  // held as long as the process lives
  for (int number = 0; number < names_of_claim; ++number) {
    Descriptor socket = make_local_socket();
    if (socket.get() < 0) break;
    const Hold holder = hold(*job, number, socket);
    if (holder == Hold::mine) claim = std::move(socket);
    if (holder != Hold::of_another) return holder == Hold::mine;
  }
  return true;  // twice rather than not at all
}

bool report_is_claimed() {
  const auto job = job_of_claim();
  return job && is_held_by_us(*job);
}

}  // namespace lockstep
