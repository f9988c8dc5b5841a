// Agreements that go on while the program does something else.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/control/channel.hpp"
#include "core/control/tag.hpp"
#include "core/control/verdict.hpp"

namespace lockstep {

class MeetingPoint;

/// One of them. Its methods may be called on any thread.
class Agreement {
 public:
  /// Whether every rank has come, and this one knows if they agree.
  bool is_settled() const { return settled_.load(std::memory_order_acquire); }

  /// Once it is settled: what every rank throws; null if they agree.
  const std::exception_ptr& verdict() const { return verdict_; }

  const Tag& tag() const { return tag_; }

  /// The number of this wait for the others (MeetingPoint::waits). The next one is that of what was agreed on.
  std::uint64_t number() const { return number_; }

 private:
  friend class StartedAgreements;
  enum class Stage : std::uint8_t { asked, answered, differ, told };

  Tag tag_;
  std::uint64_t number_ = 0;
  Stage stage_ = Stage::asked;
  std::array<std::uint64_t, 2> words_{};
  std::vector<Tag> tags_;  ///< of all ranks, where they differ
  std::string text_;       ///< of a rank that failed
  std::unique_ptr<ControlChannel::Exchange> exchange_;
  std::atomic<bool> settled_ = false;
  std::exception_ptr verdict_;
};

/// Those of one meeting point. They begin, and are settled, in order; in between, several are under way.
class StartedAgreements {
 public:
  /// The meeting point outlives this object.
  explicit StartedAgreements(MeetingPoint& meeting) : meeting_{meeting} {}

  /// COLL, but returns at once.
  std::shared_ptr<const Agreement> start(const Tag& tag, std::uint64_t number);

  /// LOCAL, never blocks. Whether something was to do.
  bool advance();

  /// The oldest that is not settled; null if there is none.
  std::shared_ptr<const Agreement> oldest() const;
  bool are_settled() const { return unsettled_.load(std::memory_order_acquire) == 0; }

  /// The verdict that this rank has thrown, or will throw, as `exception`; null if there is none, or it was long ago.
  std::shared_ptr<const AgreedFailure> known(const std::exception_ptr& exception) const;

  /// The last verdict, if none was agreed on since; null otherwise.
  std::shared_ptr<const AgreedFailure> last() const;
  void forget_last();

  /// Adds to `left` what `known` finds.
  void leave_failures(std::vector<std::shared_ptr<const AgreedFailure>>& left) const;

  /// The tags of all ranks at the agreements that failed since the last call.
  std::vector<Tag> take_tags();

 private:
  /// More at a time would use a tag of MPI's twice.
  static constexpr std::size_t most_under_way = 8192;

  void send_more();
  bool settle_first();
  void judge(Agreement& agreement, bool has_text);
  void settle(Agreement& agreement);

  MeetingPoint& meeting_;
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Agreement>> under_way_;
  std::size_t sent_ = 0;  ///< of these, at the front
  std::atomic<std::size_t> unsettled_ = 0;
  std::deque<std::shared_ptr<const AgreedFailure>> failures_;  ///< the latest
  std::shared_ptr<const AgreedFailure> last_;
  std::vector<Tag> tags_;                                  ///< of agreements that failed
  std::atomic<bool> has_last_ = false, has_tags_ = false;  ///< so that who finds none takes no lock
};

}  // namespace lockstep
