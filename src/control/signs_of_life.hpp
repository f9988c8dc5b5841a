// What a watchdog knows of one other rank's life, from one look to the next. Pure.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

/// A rank shows that it lives by its heartbeats, or because others complete an agreement that needs it. Missing
/// heartbeats are silence only if nothing else shows that it lives: a network may carry MPI's messages but no others.
class SignsOfLife {
 public:
  using Seconds = std::chrono::duration<double>;

  /// What happened since the previous look.
  struct News {
    std::uint64_t heartbeat = 0;  ///< of the rank, as it is now
    bool is_heard = true;         ///< whether its heartbeats would show here
    bool met = false;             ///< whether this rank came out of an agreement or sum that all are needed for
    bool agreed = false;          ///< whether that was an agreement
    Seconds took{0};
  };

  /// `heartbeat` is the rank's as it is now. `mute_ticks`: after how many ticks of silence the rank can count as mute.
  SignsOfLife(std::uint64_t heartbeat, std::uint64_t mute_ticks) : mute_ticks_{mute_ticks}, heartbeat_{heartbeat} {}

  void look(const News& news) {
    has_beaten_ = news.heartbeat != heartbeat_;
    heartbeat_ = news.heartbeat;
    const bool silent = !has_beaten_ && news.is_heard;
    silent_ticks_ = silent ? silent_ticks_ + 1 : 0;
    unproven_ticks_ = silent && !news.met ? unproven_ticks_ + 1 : 0;
    unproven_ = silent && !news.met ? unproven_ + news.took : Seconds{0};
    if (!silent) agreements_ = 0;
    if (silent && news.agreed) ++agreements_;
  }

  /// The rank's, as the previous look showed it.
  std::uint64_t heartbeat() const { return heartbeat_; }

  /// Whether a heartbeat has come since the previous look.
  bool has_beaten() const { return has_beaten_; }

  /// Ticks in which it could have been heard and was not, since its last heartbeat.
  std::uint64_t silent_ticks() const { return silent_ticks_; }

  /// The same, since the last agreement or sum that needed it, if that is later.
  std::uint64_t unproven_ticks() const { return unproven_ticks_; }
  Seconds unproven() const { return unproven_; }

  /// Whether it has lived on while none of its heartbeats arrived. It may have entered one agreement, and made a part
  /// of the next, before it fell silent.
  bool is_mute() const { return silent_ticks_ >= mute_ticks_ && agreements_ >= 3; }

 private:
  std::uint64_t mute_ticks_;
  std::uint64_t heartbeat_;
  bool has_beaten_ = false;
  std::uint64_t silent_ticks_ = 0;
  std::uint64_t unproven_ticks_ = 0;
  std::uint64_t agreements_ = 0;
  Seconds unproven_{0};
};

}  // namespace lockstep
