#include "core/watch/judgement.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/control/job_time.hpp"
#include "core/watch/watch_view.hpp"

namespace lockstep {
namespace {

bool is_sum(TagKind kind) {
  return kind == TagKind::sum || kind == TagKind::open_sum;
}

/// Of what changes when a rank goes on.
std::uint32_t digest_of_place(const PhaseTable::Snapshot& row) {
  std::uint64_t digest = 0;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(row.phase), row.meeting, row.meetings, static_cast<std::uint64_t>(row.last.kind),
        std::uint64_t{row.last.count}, static_cast<std::uint64_t>(row.position.where),
        static_cast<std::uint64_t>(row.position.kind), row.position.step, row.position.since})
    digest = (digest ^ part) * 0x9e3779b97f4a7c15 + 1;  // Knuth's multiplicative hash
  return static_cast<std::uint32_t>(digest >> 32);
}

/// What one look adds to what is known, and what follows from it where no rank is gone or stalls.
class Look : WatchView {
 public:
  Look(const WatchView& view, Judgement& result) : WatchView{view}, result_{result} {}

  Met take_notes() {
    if (seen_.since_told) ++state_.told_ticks;
    note_pause();
    note_progress();
    note_own_call();
    note_others_wait();
    note_own_wait();
    note_stalls_told();
    note_questions();
    note_wishes();
    return met_;
  }

  /// After this rank was told to end.
  LastAct last_act() const {
    const Seconds since = *seen_.since_told;
    const bool may_save = job_.saves_at_end && since <= time_to_save;
    if (seen_.reported) return may_save ? LastAct::none : LastAct::end;
    if (was_interrupted()) {
      if (!may_save) return LastAct::say_and_end;
      return std::exchange(state_.asked_to_save, true) ? LastAct::none : LastAct::save;
    }
    // The others wait for the one that says so: as soon as one of them has ended, mpirun kills the rest.
    const bool waits = job_.between_nodes() || job_.row == 0 || job_.saves_at_end;
    return since > (waits ? last_look : terminate_spread) ? LastAct::end : LastAct::none;
  }

  /// A warning about the lowest rank that this one is to hear and misses, although that rank lives.
  std::optional<std::string> lost_heartbeats() const {
    if (!job_.between_nodes() || seen_.warned || seen_.own.phase == Phase::leaving) return std::nullopt;
    for (const int row : seen_.fresh) {
      const auto [by_tcp, by_none] = lost(row);
      if (!by_tcp && !by_none) continue;
      if (!seen_.takes_a_line) return std::nullopt;
      return fmt::format(
          "heartbeats between {} and {} do not get through by UDP{}", name(job_.row), name(row),
          by_tcp ? ": they go by TCP" : ", nor by TCP: a rank there may be waited for ten times the stall timeout");
    }
    return std::nullopt;
  }

 private:
  // How long the ranks have to save what they have made after they were told to end, with time left for a line.
  static constexpr Seconds time_to_save{0.6};
  // When mpirun is interrupted, it ends the ranks of its own node first and tells those of other nodes two seconds
  // later. How long one that was told waits until it takes their heartbeats for that. A death would show by then.
  static constexpr Seconds node_spread{0.6};
  // How long TCP has to get through where datagrams do not.
  static constexpr Seconds time_for_tcp{2};
  // How long a rank waits, or misses another, until it wishes for rows that are not near.
  static constexpr Seconds longest_in_peace{1};
  // How long rows are passed on after a wish. A wish is renewed when half of that is over.
  static constexpr Seconds a_wish{4};
  // How long one question takes to reach all ranks: mpirun tells its daemons, and a busy machine delays threads.
  static constexpr Seconds time_to_ask{0.3};

  void note_own_call() {
    const bool same = seen_.calls == state_.calls && last_of(seen_.own) == state_.waited;
    const bool is_in_call = seen_.calls.begun != seen_.calls.ended;
    state_.called_ticks = is_in_call && same ? state_.called_ticks + 1 : 0;
    state_.calls = seen_.calls;
  }

  /// If others have beaten meanwhile, only this rank was stopped. They may have been continued a little earlier.
  void note_pause() {
    if (seen_.took <= JobTime::longest_look) return;
    const double missed = seen_.took / job_.tick;
    for (const int row : seen_.fresh) {
      const Row& seen = this->row(row);
      if (row == job_.row || seen.phase == Phase::absent) continue;
      if (static_cast<double>(seen.heartbeat - peer(row).life.heartbeat) > missed / 2) return;
    }
    result_.was_paused = true;
  }

  void note_progress() {
    for (const int row : seen_.fresh) {
      Peer& peer = this->peer(row);
      const std::uint32_t now = this->row(row).progress;
      peer.still_ticks = std::exchange(peer.progress, now) == now ? peer.still_ticks + 1 : 0;
      const std::uint32_t meetings = this->row(row).meetings;
      peer.unmet_ticks = std::exchange(peer.meetings, meetings) == meetings ? peer.unmet_ticks + 1 : 0;
      peer.waiting_ticks = this->row(row).phase == Phase::meeting && peer.unmet_ticks > 0 ? peer.waiting_ticks + 1 : 0;
    }
  }

  void note_own_wait() {
    const Snapshot& mine = seen_.own;
    const bool waits = mine.phase == Phase::meeting && last_of(mine) == state_.waited;
    state_.waited_ticks = waits ? state_.waited_ticks + 1 : 0;
    state_.waited = last_of(mine);
    met_.any = std::exchange(state_.passed, mine.passed) != mine.passed;
    met_.agreed = met_.any && !is_sum(mine.last.kind);
  }

  void note_stalls_told() {
    ++state_.ticks_since_stall_told;
    for (const int row : seen_.fresh) {
      const bool before = std::exchange(peer(row).stall_told, this->row(row).stall_told);
      if (this->row(row).stall_told && !before) state_.ticks_since_stall_told = 0;
    }
  }

  void note_others_wait() {
    const Snapshot& mine = seen_.own;
    const bool in_time = mine.phase == Phase::leaving || mine.phase == Phase::alone || mine.phase == Phase::absent;
    const auto waits = [this](int other) { return row(other).waits_for_us; };
    const bool same = last_of(mine) == state_.waited;
    const bool is_awaited =
        !in_time && same && peer(job_.row).still_ticks > 0 && std::ranges::any_of(seen_.fresh, waits);
    state_.awaited_ticks = is_awaited ? state_.awaited_ticks + 1 : 0;
    // Early enough to be on disk when others say that it is late. Once.
    const bool is_time = std::max(state_.awaited_ticks, state_.called_ticks) >= stall_ticks_ - stall_ticks_ / 4;
    state_.took_stack = state_.took_stack && is_time;
    result_.takes_stack = is_time && !state_.took_stack;
  }

  void note_questions() {
    const PhaseTable::Questions& questions = seen_.questions;
    const bool is_news =
        std::exchange(state_.answered, questions.answered).value_or(questions.answered) != questions.answered;
    // What had come by now was part of the question that was answered.
    result_.asks = seen_.asked && !is_news && !questions.is_open();
    const std::uint32_t number = questions.asked + (result_.asks ? 1 : 0);
    if (std::exchange(state_.asked, number) != number) state_.open_ticks = 0;
    state_.open_ticks = questions.is_open() || result_.asks ? state_.open_ticks + 1 : 0;
    if (state_.open_ticks == 0) return;
    const std::uint64_t on_its_way = job_.between_nodes() ? 2 * job_.ticks_to_all() : 0;
    result_.answers = state_.open_ticks > ticks_in(time_to_ask) + on_its_way + ticks_until_turn();
    // What comes from now on is another question.
    if (result_.answers) state_.answered = number;
  }

  /// Rows are passed on for a while after each wish.
  void note_wishes() {
    if (job_.nodes.are_all_near()) return;
    const std::uint64_t lasts = std::max(ticks_in(a_wish), 4 * job_.ticks_a_round());
    if (std::exchange(state_.wishes, seen_.wishes) != seen_.wishes)
      state_.wish_ticks = 0;
    else if (state_.wish_ticks && ++*state_.wish_ticks > lasts)
      state_.wish_ticks.reset();
    state_.passing_ticks = state_.wish_ticks ? state_.passing_ticks + 1 : 0;
    result_.wishes = needs_rows() && state_.wish_ticks.value_or(lasts) >= lasts / 2;
  }

  /// Whether this rank has a question that rows of nodes that are not near may answer.
  bool needs_rows() const {
    const std::uint64_t long_time = ticks_in(std::min(longest_in_peace, job_.stall_timeout / 8));
    const auto is_missed = [&](int row) {
      return is_elsewhere(row) && is_near(row) && this->row(row).phase != Phase::leaving && !peer(row).life.is_mute() &&
             peer(row).life.silent_ticks >= long_time;
    };
    if (is_told() || state_.open_ticks > 0 || std::max(state_.waited_ticks, state_.called_ticks) >= long_time)
      return true;
    return std::ranges::any_of(seen_.fresh, is_missed);
  }

  /// Whether mpirun was interrupted, or told to end itself, and this rank is to say so: the lowest that was told.
  bool was_interrupted() const {
    bool all_told = true;
    for (int row = 0; row < rows(); ++row) {
      const Row& seen = this->row(row);
      if (seen.phase == Phase::leaving) return false;
      if (row == job_.row) continue;
      // A rank of another node that has not beaten since may have been gone before.
      if (is_elsewhere(row) ? !peer(row).has_beaten_since_told : !seen.terminated) return false;
      if (seen.terminated && row < job_.row) return false;
      all_told = all_told && seen.terminated;
    }
    return all_told || (seen_.told_by_parent && *seen_.since_told > node_spread);
  }

  struct Lost {
    bool by_tcp;
    bool by_none;
  };

  Lost lost(int row) const {
    const Row& seen = this->row(row);
    if (!seen.is_heard_here || seen.phase == Phase::absent || seen.phase == Phase::leaving || seen.terminated)
      return {false, false};
    // Some datagrams are lost on any network.
    const std::uint64_t many = std::clamp<std::uint64_t>(stall_ticks_ / 2 / job_.ticks_a_heartbeat(), 3, 50);
    // The other side could not hear that this one has said so. A moment later TCP may get through.
    const bool first = job_.nodes.node_of(job_.row) < job_.nodes.node_of(row);
    const SignsOfLife& life = peer(row).life;
    const bool silent = life.silent_ticks >= std::max(stall_ticks_ / 2, ticks_in(time_for_tcp));
    return {seen.missed_datagrams >= many, first && life.is_mute() && silent};
  }

  Judgement& result_;
  Met met_;
};

}  // namespace

std::uint64_t WatchedJob::stall_ticks() const {
  // More ticks than a counter holds.
  const double ticks = stall_timeout / tick;
  return ticks < 1e18 ? static_cast<std::uint64_t>(ticks) + 1 : std::numeric_limits<std::uint64_t>::max();
}

std::uint64_t WatchedJob::ticks_a_round() const {
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(nodes.nodes()) / 8, 2,
                                   std::max<std::uint64_t>(2, stall_ticks() / 10));
}

void Observation::Row::look(const PhaseTable::Snapshot& now, const PhaseTable::Snapshot& own) {
  const auto low_bits = [](std::uint64_t number) { return static_cast<std::uint32_t>(number); };
  heartbeat = low_bits(now.heartbeat);
  meetings = low_bits(now.meetings);
  progress = low_bits(now.progress);
  place = digest_of_place(now);
  phase = now.phase;
  terminated = now.terminated != 0;
  const auto number = now.met_in(own.group);
  has_not_come = number < own.met_last();
  is_behind = number && has_not_come;
  waits_for_us = now.phase == Phase::meeting && own.shows(now.group) && *own.met_in(now.group) < now.met_last();
}

WatchState::WatchState(const std::vector<Observation::Row>& rows) {
  peers.reserve(rows.size());
  for (const Observation::Row& seen : rows)
    peers.push_back({.life = {.heartbeat = seen.heartbeat}, .progress = seen.progress, .meetings = seen.meetings});
}

Judgement judge_look(const WatchedJob& job, const Observation& seen, WatchState& state) {
  Judgement judgement;
  const WatchView view{job, seen, state};
  Look look{view, judgement};
  look_for_failure(view, look.take_notes(), judgement);
  if (!judgement.failure && seen.since_told)
    judgement.last_act = look.last_act();
  else if (!judgement.failure)
    judgement.lost_heartbeats = look.lost_heartbeats();
  // If there was no memory for this look, the next one says it.
  state.took_stack = state.took_stack || judgement.takes_stack;
  return judgement;
}

}  // namespace lockstep
