// A lock for file systems that have none: it lasts as long as its holder renews it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <time.h>

#include "core/base/counted_time.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

/// Who holds a lock, as the lock says to whom it refuses.
struct LockHolder {
  std::string host;
  std::int64_t process = 0;
  std::string since;  ///< when it took the lock, such as 2026-01-31T12:00:00Z, by its own clock
  std::string key;    ///< a name that no other holder has

  /// This process, now, with a new key.
  static LockHolder self();
};

/// One line of JSON.
std::string line_about(const LockHolder& holder);

/// Nothing for a text that is none.
std::optional<LockHolder> parse_holder(std::string_view text);

/// "process 12 on host a since 2026-01-31T12:00:00Z", or "another process" if it is not known.
std::string describe(const std::optional<LockHolder>& holder);

struct LeaseTimes {
  std::chrono::milliseconds renewed_every{500};
  std::chrono::milliseconds lost_after{10000};  ///< without being renewed
};

/// A folder that holds one file, which is called like its holder's key. Whoever wants the lease makes such a folder
/// beside it and moves it there: the file system lets that happen only where there is no folder or an empty one, so one
/// of any number succeeds. The holder touches its file again and again. If a file is no longer touched, others remove
/// it by its name, which cannot hit the next holder's, and move theirs again.
///
/// Times are the file system's own, as the clocks of hosts differ. A lease counts as lost only after it has been
/// watched for some time.
class LOCKSTEP_PARTS_API Lease {
 public:
  enum class Attempt : std::uint8_t {
    taken,
    held,       ///< by one who has just renewed it
    undecided,  ///< there is one, and whether its holder lives is seen later
  };

  Lease(std::filesystem::path path, LeaseTimes times);
  Lease(const Lease&) = delete;
  /// Gives it up.
  ~Lease();

  /// LOCAL, does not wait; call it again until it is decided. A lease that is taken is renewed by a thread.
  /// CheckpointError if the file system allows none here, or another user's cannot be read or taken over.
  Attempt attempt();

  /// How often to call `attempt`.
  std::chrono::milliseconds pace() const { return times_.renewed_every / 4; }

  /// Who holds it now; nothing if it is free, or that cannot be seen.
  std::optional<LockHolder> holder() const;

  /// Renews it, once it is taken. From any thread. False if somebody else has taken it, for this process was stopped
  /// for too long, or removed it.
  bool renew();

  /// Whether a call of `renew` has found that, this process's own or its thread's.
  bool is_lost() const { return lost_; }

 private:
  /// The file of a holder.
  struct Seen {
    std::filesystem::path file;
    timespec renewed;
    bool operator==(const Seen& other) const;
  };

  std::optional<Seen> look() const;
  CountedTime::Seconds longest_look() const;
  Attempt judge(std::optional<Seen> seen, const timespec& now);
  void require_other_user_leaves(int error);
  void renew_until_given_up();
  void give_up();
  void remove_what_killed_ones_left(const timespec& now) const;

  std::filesystem::path path_;
  LeaseTimes times_;
  LockHolder self_ = LockHolder::self();
  std::filesystem::path file_;  ///< this process's, in the lease
  std::optional<Seen> watched_;
  std::optional<CountedTime> watched_for_;
  std::optional<CountedTime> empty_for_;  ///< another user's lease, which this process may not move
  std::atomic<bool> lost_{false}, warned_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_given_up_ = false;
  std::thread renewing_;  ///< once it is taken
};

}  // namespace lockstep
