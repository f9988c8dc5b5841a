#include "control/judgement.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "control/job_time.hpp"
#include "control/tag.hpp"
#include "control/watch_view.hpp"

namespace lockstep {
namespace {

bool is_sum(TagKind kind) {
  return kind == TagKind::sum || kind == TagKind::open_sum;
}

/// What one look adds to what is known.
class Notes : WatchView {
 public:
  Notes(const WatchView& view, Judgement& result) : WatchView{view}, result_{result} {}

  Met take() {
    if (seen_.since_told) ++state_.told_ticks;
    note_pause();
    note_progress();
    note_own_call();
    note_others_wait();
    note_own_wait();
    note_stalls_told();
    note_questions();
    return met_;
  }

 private:
  // How long one question takes to reach all ranks: mpirun tells its daemons, and a busy machine delays threads.
  static constexpr Seconds time_to_ask{0.3};

  void note_own_call() {
    const bool same = seen_.calls == state_.calls && last_of(row(job_.row)) == state_.waited;
    const bool is_in_call = seen_.calls.begun != seen_.calls.ended;
    state_.called_ticks = is_in_call && same ? state_.called_ticks + 1 : 0;
    state_.calls = seen_.calls;
  }

  /// If others have beaten meanwhile, only this rank was stopped. They may have been continued a little earlier.
  void note_pause() {
    if (seen_.took <= JobTime::longest_look) return;
    const double missed = seen_.took / job_.tick;
    for (int row = 0; row < rows(); ++row) {
      const Snapshot& seen = this->row(row);
      if (row == job_.row || seen.phase == Phase::absent) continue;
      if (static_cast<double>(seen.heartbeat - peer(row).life.heartbeat()) > missed / 2) return;
    }
    result_.was_paused = true;
  }

  void note_progress() {
    for (int row = 0; row < rows(); ++row) {
      Peer& peer = this->peer(row);
      const std::uint64_t now = this->row(row).progress;
      peer.still_ticks = std::exchange(peer.progress, now) == now ? peer.still_ticks + 1 : 0;
      const std::uint64_t meetings = this->row(row).meetings;
      peer.unmet_ticks = std::exchange(peer.meetings, meetings) == meetings ? peer.unmet_ticks + 1 : 0;
      peer.waiting_ticks = this->row(row).phase == Phase::meeting && peer.unmet_ticks > 0 ? peer.waiting_ticks + 1 : 0;
    }
  }

  void note_own_wait() {
    const Snapshot& mine = row(job_.row);
    const bool waits = mine.phase == Phase::meeting && last_of(mine) == state_.waited;
    state_.waited_ticks = waits ? state_.waited_ticks + 1 : 0;
    state_.waited = last_of(mine);
    met_.any = std::exchange(state_.passed, mine.passed) != mine.passed;
    met_.agreed = met_.any && !is_sum(mine.last.kind);
  }

  void note_stalls_told() {
    ++state_.ticks_since_stall_told;
    for (int row = 0; row < rows(); ++row) {
      const bool before = std::exchange(peer(row).stall_told, sight(row).stall_told);
      if (sight(row).stall_told && !before) state_.ticks_since_stall_told = 0;
    }
  }

  void note_others_wait() {
    const Snapshot& mine = row(job_.row);
    const bool in_time = mine.phase == Phase::leaving || mine.phase == Phase::alone || mine.phase == Phase::absent;
    const auto waits = [&](const Observation::Row& other) {
      return other.seen.phase == Phase::meeting && mine.shows(other.seen.group) && is_before(mine, last_of(other.seen));
    };
    const bool same = last_of(mine) == state_.waited;
    const bool is_awaited =
        !in_time && same && peer(job_.row).still_ticks > 0 && std::ranges::any_of(seen_.rows, waits);
    state_.awaited_ticks = is_awaited ? state_.awaited_ticks + 1 : 0;
    const std::uint64_t ticks = std::max(state_.awaited_ticks, state_.called_ticks);
    // Early enough to be on disk when others say that it is late. Once.
    result_.takes_stack = ticks == stall_ticks_ - stall_ticks_ / 4;
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
    const std::uint64_t on_its_way = job_.between_nodes() ? 2 * job_.ticks_a_heartbeat() : 0;
    result_.answers = state_.open_ticks > ticks_in(time_to_ask) + on_its_way + ticks_until_turn();
    // What comes from now on is another question.
    if (result_.answers) state_.answered = number;
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

std::uint64_t WatchedJob::ticks_a_heartbeat() const {
  if (!between_nodes()) return 1;
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(nodes.nodes()) / 8, 2,
                                   std::max<std::uint64_t>(2, stall_ticks() / 10));
}

WatchState::WatchState(const WatchedJob& job, const std::vector<PhaseTable::Snapshot>& rows) {
  for (const PhaseTable::Snapshot& seen : rows)
    peers.push_back(
        {.life = {seen.heartbeat, job.stall_ticks() / 4}, .progress = seen.progress, .meetings = seen.meetings});
}

Judgement judge_look(const WatchedJob& job, const Observation& seen, WatchState state) {
  Judgement judgement{std::move(state)};
  const WatchView view{job, seen, judgement.state};
  const Met met = Notes{view, judgement}.take();
  look_for_failure(view, met, judgement);
  if (judgement.unknown_host || judgement.failure) return judgement;
  if (seen.since_told)
    judgement.last_act = last_act(view);
  else
    judgement.lost_heartbeats = lost_heartbeats(view);
  return judgement;
}

}  // namespace lockstep
