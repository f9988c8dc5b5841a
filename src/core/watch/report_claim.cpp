#include "core/watch/report_claim.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "core/base/abstract_socket.hpp"
#include "core/base/descriptor.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep {
namespace {

// Any process of this host may hold a name before the job does. Each that another user holds is passed over.
constexpr int names_of_claim = 8;

/// The names of a job on this node, made without memory: there may be none left for the last line.
class ClaimName {
 public:
  /// Empty without a launcher.
  ClaimName() {
    const std::string_view job = name_of_job([](const char* name) { return std::getenv(name); });
    if (job.empty()) return;
    add("lockstep report ");
    add(job);
    add(" ");
    add(::getppid());
    add(" of ");
    std::array<char, 64> space;
    const ssize_t length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
    add({space.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))});
  }

  bool is_empty() const { return size_ == 0; }

  /// Calls bind or connect with the address for the name of that number.
  bool with_address(int number, const std::function<int(const sockaddr*, socklen_t)>& call) const {
    ClaimName numbered = *this;
    if (number > 0) {
      numbered.add(" ");
      numbered.add(number);
    }
    return with_abstract_address({numbered.text_.data(), numbered.size_}, call);
  }

 private:
  void add(std::string_view text) { size_ += text.copy(text_.data() + size_, text_.size() - size_); }
  void add(int number) {
    std::array<char, 16> digits;
    add({digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr});
  }

  std::array<char, 512> text_;
  std::size_t size_ = 0;
};

/// Whether a process of this user listens there. `socket` is used up if anybody does.
bool is_held_by_us(const ClaimName& job, int number, Descriptor& socket) {
  if (socket.get() < 0) socket = make_local_socket();
  return job.with_address(number, [&](const sockaddr* address, socklen_t size) {
    return ::connect(socket.get(), address, size);
  }) && is_peer_of_this_user(std::exchange(socket, Descriptor{}));
}

/// A name that is free or refuses says nothing of the next: whoever had it when the report was claimed may be gone.
bool is_held_by_us(const ClaimName& job) {
  Descriptor socket;
  for (int number = 0; number < names_of_claim; ++number)
    if (is_held_by_us(job, number, socket)) return true;
  return false;
}

enum class Hold { mine, ours, of_another };

Hold hold(const ClaimName& job, int number, const Descriptor& socket) {
  const bool bound = job.with_address(
      number, [&](const sockaddr* address, socklen_t size) { return ::bind(socket.get(), address, size); });
  if (bound) return ::listen(socket.get(), SOMAXCONN) == 0 ? Hold::mine : Hold::of_another;
  // A rank that has just taken the name listens a moment later.
  Descriptor asking;
  for (int look = 0; look < 10; ++look) {
    if (is_held_by_us(job, number, asking)) return Hold::ours;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return Hold::of_another;
}

}  // namespace

bool claim_report(PhaseTable* table, std::optional<int> code) {
  if (table && !table->claim_report(code)) return false;
  // For the processes of this node that have no table in common.
  const ClaimName job;
  if (job.is_empty()) return true;
  if (is_held_by_us(job)) return false;
  static Descriptor claim;  // held as long as the process lives
  for (int number = 0; number < names_of_claim; ++number) {
    Descriptor socket = make_local_socket();
    if (socket.get() < 0) break;
    const Hold holder = hold(job, number, socket);
    if (holder == Hold::mine) claim = std::move(socket);
    if (holder != Hold::of_another) return holder == Hold::mine;
  }
  return true;  // twice rather than not at all
}

bool report_is_claimed() {
  const ClaimName job;
  return !job.is_empty() && is_held_by_us(job);
}

}  // namespace lockstep
