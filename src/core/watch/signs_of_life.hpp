// What a watchdog knows of one other rank's life, from one look to the next. Pure.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

/// A rank shows that it lives by its heartbeats, or because others complete an agreement that needs it. Missing
/// heartbeats are silence only if nothing else shows that it lives: a network may carry MPI's messages but no others.
struct SignsOfLife {
  using Seconds = std::chrono::duration<double>;
  static constexpr std::uint16_t few = 3;

  /// What happened since the previous look.
  struct News {
    std::uint32_t heartbeat = 0;  ///< of the rank, as it is now
    bool is_heard = true;         ///< whether its heartbeats would show here
    bool met = false;             ///< whether this rank came out of an agreement or sum that all are needed for
    bool agreed = false;          ///< whether that was an agreement
    Seconds took{0};
  };

  std::uint32_t heartbeat = 0;       ///< of the rank, as the last look showed it
  std::uint32_t silent_ticks = 0;    ///< ticks in which it could have been heard and was not, since its last heartbeat
  std::uint32_t unproven_ticks = 0;  ///< the same, since the last agreement or sum that needed it, if that is later
  float unproven = 0;                ///< how many seconds that is
  std::uint16_t agreements = 0;      ///< while it was mute, at most `few`
  bool has_beaten = false;           ///< a heartbeat has come since the previous look

  /// Agreements count after `mute_ticks` of silence.
  void look(const News& news, std::uint64_t mute_ticks) {
    has_beaten = news.heartbeat != heartbeat;
    heartbeat = news.heartbeat;
    const bool silent = !has_beaten && news.is_heard;
    silent_ticks = silent ? silent_ticks + 1 : 0;
    unproven_ticks = silent && !news.met ? unproven_ticks + 1 : 0;
    unproven = silent && !news.met ? unproven + static_cast<float>(news.took.count()) : 0;
    if (!silent) agreements = 0;
    if (silent_ticks >= mute_ticks && news.agreed && agreements < few) ++agreements;
  }

  /// Whether it has lived on while none of its heartbeats arrived. Agreements that came sooner say nothing: heartbeats
  /// are sent every few ticks, and later by a rank whose cores are busy. It may have entered one agreement, and made a
  /// part of the next, before it fell silent.
  bool is_mute() const { return agreements == few; }
};

}  // namespace lockstep
