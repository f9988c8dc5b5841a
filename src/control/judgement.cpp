#include "control/judgement.hpp"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/ending_signals.hpp"
#include "control/job_time.hpp"
#include "control/tag.hpp"
#include "control/watch_notes.hpp"

namespace lockstep {
namespace {

bool is_sum(TagKind kind) {
  return kind == TagKind::sum || kind == TagKind::open_sum;
}

/// One look around.
class Look {
 public:
  Look(const WatchedJob& job, const Observation& seen, WatchState state)
      : job_{job},
        seen_{seen},
        stall_ticks_{job.stall_ticks()},
        // mpirun does not wait until a busy machine lets this rank look. But after a process was stopped, much time has
        // passed in which it could not have seen anything.
        took_{std::min(seen.took, longest_tick * job.tick)},
        result_{std::move(state)},
        state_{result_.state} {
    if (seen_.since_told) ++state_.told_ticks;
    note_pause();
    note_own_call();
    note_others_wait();
    note_own_wait();
    note_stalls_told();
    note_questions();
  }
  Look(const Look&) = delete;

  Judgement judge() {
    result_.failure = look_around();
    if (result_.unknown_host || result_.failure) return std::move(result_);
    if (seen_.since_told)
      result_.last_act = last_act();
    else
      result_.lost_heartbeats = look_for_lost_heartbeats();
    return std::move(result_);
  }

 private:
  using Seconds = WatchedJob::Seconds;
  using Peer = WatchState::Peer;
  using Process = Observation::Process;
  using Snapshot = PhaseTable::Snapshot;

  // When mpirun is told to end, it tells every rank, one after the other. So a rank ended by SIGTERM is nobody's fault
  // until the others have heard nothing for this long; mpirun itself takes a second to react to a dead rank.
  static constexpr Seconds terminate_spread{0.3};
  // How long the ranks have to save what they have made after they were told to end. There must be time left for a
  // line.
  static constexpr Seconds time_to_save{0.6};
  // How long a rank that was told to end waits until the silence of a rank on another node means something. mpirun
  // kills it a second after telling it.
  static constexpr Seconds last_look{0.8};
  // When mpirun is interrupted, it ends the ranks of its own node first and tells those of other nodes two seconds
  // later. How long one that was told waits until it takes their heartbeats for that. A death would show by then.
  static constexpr Seconds node_spread{0.6};
  // How long each node with lower ranks alive has to report first.
  static constexpr Seconds turn{0.5};
  // A rank that waits in an earlier meeting waits for somebody else. How much longer the others have to find whom.
  static constexpr Seconds for_another_cause{1};
  // How long one question takes to reach all ranks: mpirun tells its daemons, and a busy machine delays threads.
  static constexpr Seconds time_to_ask{0.3};
  // How many times longer than planned a tick may count for.
  static constexpr double longest_tick = 4;
  // How many times longer than others a rank may be waited for that is mute, since it may work alone.
  static constexpr std::uint64_t patience_with_mute = 10;
  // Neighbours beat every tick, but not at the same moment, and a busy machine delays threads.
  static constexpr std::uint64_t ticks_of_a_silent_carrier = 4;
  // How long TCP has to get through where datagrams do not.
  static constexpr Seconds time_for_tcp{2};

  const Snapshot& row(int row) const { return seen_.rows[static_cast<std::size_t>(row)].seen; }
  const Observation::Row& sight(int row) const { return seen_.rows[static_cast<std::size_t>(row)]; }
  const std::string& name(int row) const { return job_.names[static_cast<std::size_t>(row)]; }
  Peer& peer(int row) { return state_.peers[static_cast<std::size_t>(row)]; }
  const Peer& peer(int row) const { return state_.peers[static_cast<std::size_t>(row)]; }
  int rows() const { return static_cast<int>(seen_.rows.size()); }
  bool is_elsewhere(int row) const { return !job_.nodes.same_node(row, job_.row); }
  bool is_told() const { return seen_.since_told.has_value(); }
  std::uint64_t ticks_in(Seconds time) const { return static_cast<std::uint64_t>(time / job_.tick) + 1; }

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

  void note_own_wait() {
    const Snapshot& mine = row(job_.row);
    const bool waits = mine.phase == Phase::meeting && last_of(mine) == state_.waited;
    state_.waited_ticks = waits ? state_.waited_ticks + 1 : 0;
    state_.waited = last_of(mine);
    met_ = std::exchange(state_.passed, mine.passed) != mine.passed;
    agreed_ = met_ && !is_sum(mine.last.kind);
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
    const auto is_to_come = [&](std::uint64_t group) {
      return group == 0 || std::ranges::find(mine.groups, group, &PhaseTable::Met::group) != mine.groups.end();
    };
    const auto waits = [&](const Observation::Row& other) {
      return other.seen.phase == Phase::meeting && is_to_come(other.seen.group) && is_before(mine, last_of(other.seen));
    };
    const bool same = last_of(mine) == state_.waited;
    const bool is_awaited = !in_time && same && std::ranges::any_of(seen_.rows, waits);
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

  /// The file about the threads of a rank that stalls: "; run1/stacks/rank-2.txt says where its threads were".
  std::string stack_of(int row) const {
    if (!this->row(row).stack_kept || seen_.stacks.empty()) return {};
    return fmt::format("; {} says where its threads were", stack_file(seen_.stacks, row).string());
  }

  std::optional<Finding> look_around() {
    // Every rank has agreed to leave, and may go from here on.
    if (row(job_.row).phase == Phase::leaving) return std::nullopt;
    for (int row = 0; row < rows(); ++row)
      if (row != job_.row)
        if (auto finding = look_at(row)) return finding;
    return look_at(job_.row);
  }

  std::optional<Finding> look_at_itself() {
    auto finding = look_at_own_call();
    return finding ? finding : look_at_own_wait();
  }

  std::optional<Finding> look_at(int row) {
    Peer& peer = this->peer(row);
    const std::uint64_t stalled_ticks = peer.stalled_ticks;
    auto finding = row == job_.row ? look_at_itself() : look_at_other(row);
    if (peer.stalled_ticks == stalled_ticks) peer.stalled_ticks = 0;
    return finding;
  }

  std::optional<Finding> look_at_other(int row) {
    Peer& peer = this->peer(row);
    const bool elsewhere = is_elsewhere(row);
    const Snapshot& seen = this->row(row);
    if (seen.phase == Phase::leaving) return std::nullopt;
    if (seen.phase == Phase::absent) return elsewhere ? look_at_mute(row) : std::nullopt;
    if (sight(row).process == Process::ended) return look_at_ended(row);

    const bool heard = is_heard(row);
    peer.life.look({.heartbeat = seen.heartbeat,
                    .is_heard = heard,
                    .met = elsewhere && met_,
                    .agreed = elsewhere && agreed_,
                    .took = took_});
    // One heartbeat may have been on its way when this rank was told.
    if (elsewhere && state_.told_ticks > 1 && peer.life.has_beaten()) peer.has_beaten_since_told = true;
    if (auto finding = look_for_death(row)) return finding;
    if (seen.terminated && elsewhere) return std::nullopt;
    if (elsewhere && peer.life.is_mute()) return look_at_mute(row);
    if (peer.life.unproven_ticks() >= stall_ticks_) return stall(row, [&] { return stopped_or_out_of_reach(row); });
    // Say that it runs only on a fresh beat: a rank that stopped on its way is both silent and late.
    const bool runs = heard && peer.life.silent_ticks() == 0;
    const std::uint64_t more = seen.phase == Phase::meeting ? ticks_in(for_another_cause) : 0;
    const std::uint64_t waited = std::max(state_.waited_ticks, state_.called_ticks);
    if (runs && waited >= stall_ticks_ && waited - stall_ticks_ >= more && is_member(row) &&
        is_before(seen, state_.waited) && seen.phase != Phase::alone)
      return stall(row, [&] { return late(row); });
    return std::nullopt;
  }

  Finding late(int row) const {
    const Snapshot& seen = this->row(row);
    const double seconds = job_.stall_timeout.count();
    std::vector<int> together;
    if (seen.phase == Phase::meeting)
      for (int each = 0; each < rows(); ++each)
        if (waits_at(each, last_of(seen))) together.push_back(each);
    if (together.size() < 2)
      return stalled({row}, late_sentence(name(row), this->row(job_.row).last, seconds, seen, stack_of(row)));
    // Each may wait for another of them.
    auto sentence = fmt::format("error: {} has not ended for {:g} s on replicas {}, and no rank is late for it",
                                describe(seen.last), seconds, fmt::join(together, ", "));
    return stalled(std::move(together), std::move(sentence));
  }

  std::optional<Finding> look_at_ended(int row) {
    if (!this->row(row).terminated) {
      if (!sight(row).killed.empty()) return gone(row, sight(row).killed);
      const int signal = this->row(row).ended_by;
      return gone(row, signal == 0 ? "its process ended" : name_of_signal(signal) + " ended it");
    }
    // Told to end itself, this rank only waits for the others to be told.
    if (is_told()) return std::nullopt;
    peer(row).terminated += took_;
    const Seconds spread = std::min(terminate_spread, job_.launcher_waits / 2);
    return peer(row).terminated > spread ? std::optional{gone(row, "SIGTERM ended it")} : std::nullopt;
  }

  /// Of a rank that is not heard, but seems to live.
  std::optional<Finding> look_at_mute(int row) {
    if (is_told() || state_.waited_ticks / patience_with_mute < stall_ticks_ || !is_member(row)) return std::nullopt;
    return stall(row, [&] {
      return stalled({row}, fmt::format("{} does not come: {} was waited for {:g} s, and no heartbeats of it get "
                                        "through, by UDP or TCP",
                                        name(row), describe(this->row(job_.row).last),
                                        job_.stall_timeout.count() * static_cast<double>(patience_with_mute)));
    });
  }

  /// This rank is inside its GPU's driver, and the GPU does not wait for others.
  std::optional<Finding> look_at_own_call() {
    if (state_.called_ticks < stall_ticks_) return std::nullopt;
    // Who works alone is waited for without a limit.
    const PhaseTable::Met entered = last_of(row(job_.row));
    const auto is_awaited = [&](const Observation::Row& other) {
      return other.seen.phase == Phase::alone && is_before(other.seen, entered);
    };
    if (std::ranges::any_of(seen_.rows, is_awaited)) return std::nullopt;
    return stall(job_.row, [&] {
      // Nobody else sees it, so nobody else has a turn.
      return Finding{
          fmt::format("{} is stuck: a call to its GPU's driver has not returned for {:g} s; it {}{}", name(job_.row),
                      job_.stall_timeout.count(), describe(row(job_.row)), stack_of(job_.row)),
          Error::ExitCode::stall,
          Reach::whole_job,
          {job_.row},
          0};
    });
  }

  /// Every rank has come, and yet the agreement does not end.
  std::optional<Finding> look_at_own_wait() {
    if (!job_.between_nodes() || state_.waited_ticks < stall_ticks_) return std::nullopt;
    for (int row = 0; row < rows(); ++row) {
      const Snapshot& seen = this->row(row);
      if (is_member(row) && (seen.phase == Phase::absent || seen.met_in(state_.waited.group) < state_.waited.number))
        return std::nullopt;
    }
    // A rank that is silent may have stopped here, later than this rank began to wait: its stall is told first. Each
    // rank that waits here sees the same of itself, so what was told of one of them says why. What was told of a rank
    // that got through does not.
    for (int row = 0; row < rows(); ++row)
      if (sight(row).stall_told ? waits_at(row, state_.waited) : is_silent(row)) return std::nullopt;
    return stall(job_.row, [&] {
      return stalled({job_.row}, fmt::format("{} is cut off: every rank has come to {}, which has not ended for {:g} "
                                             "s: the network that MPI uses has failed",
                                             name(job_.row), describe(row(job_.row).last), job_.stall_timeout.count()));
    });
  }

  bool waits_at(int row, const PhaseTable::Met& meeting) const {
    return this->row(row).phase == Phase::meeting && last_of(this->row(row)) == meeting;
  }

  static PhaseTable::Met last_of(const Snapshot& row) { return {row.group, row.met_last()}; }

  /// Whether that rank is known not to have come there yet. It may be none that is to come.
  static bool is_before(const Snapshot& row, const PhaseTable::Met& meeting) {
    const auto number = row.met_in(meeting.group);
    return number && *number < meeting.number;
  }

  /// Whether that rank is to come where this one met last.
  bool is_member(int row) const {
    return seen_.members.empty() || std::ranges::find(seen_.members, row) != seen_.members.end();
  }

  /// A rank whose end the kernel does not show here. Its silence must do, if there is a reason to suspect its end.
  std::optional<Finding> look_for_death(int row) {
    if (sight(row).process != Process::unknown) return std::nullopt;
    Peer& peer = this->peer(row);
    const bool elsewhere = is_elsewhere(row);
    const bool terminated = this->row(row).terminated;
    const Seconds unsure = terminate_spread + 2.0 * static_cast<double>(job_.ticks_a_heartbeat()) * job_.tick;
    // Its neighbours learn of it sooner, from their kernel. If it has none, this is the only sign. A firewall may
    // refuse as well, so it counts only if nothing else shows that the rank lives.
    const bool refused = sight(row).refused && !peer.life.is_mute() && peer.life.unproven() > unsure;
    peer.refused = refused ? peer.refused + took_ : Seconds{0};
    if (peer.refused > job_.refusal && !terminated) return gone(row, "its process ended", ticks_until_turn());
    if (peer.life.is_mute()) return std::nullopt;
    // The last look counts in any case: on a busy machine there may have been few others.
    const bool last = is_told() && elsewhere && !peer.has_beaten_since_told && *seen_.since_told > last_look;
    if (!last && peer.life.unproven() <= (elsewhere ? unsure : terminate_spread)) return std::nullopt;
    if (is_told() && !terminated)
      return gone(row, "no sign of life before the job was told to end", ticks_until_turn());
    if (terminated && elsewhere && !peer.has_beaten_since_told)
      return gone(row, "SIGTERM ended it", ticks_until_turn());
    return std::nullopt;
  }

  /// If only this node sees it, nobody else has a turn.
  Finding gone(int row, std::string_view how, std::uint64_t turn_ticks = 0) const {
    return {fmt::format("{} is gone: {}; it {}", name(row), how, describe(this->row(row))),
            Error::ExitCode::peer_failed,
            Reach::whole_job,
            {row},
            turn_ticks};
  }

  Finding stalled(std::vector<int> rows, std::string sentence, Reach reach = Reach::whole_job) const {
    return {std::move(sentence), Error::ExitCode::stall, reach, std::move(rows), ticks_until_turn()};
  }

  /// A stall of that row, if it ends the job. Otherwise one rank of the job speaks of it, in the order of the nodes,
  /// and of one stall at a time: a heartbeat carries no more. `find` may have a question.
  template <class Find>
  std::optional<Finding> stall(int row, Find&& find) {
    if (!job_.only_observes) return find();
    const std::uint64_t patience = ticks_until_turn();
    if (++peer(row).stalled_ticks <= patience || sight(row).stall_told || !seen_.takes_a_line || result_.stall)
      return std::nullopt;
    if (state_.ticks_since_stall_told >= std::max(patience + 1, job_.ticks_a_heartbeat())) result_.stall = find();
    return std::nullopt;
  }

  Finding stopped_or_out_of_reach(int row) {
    const int node = job_.nodes.node_of(row);
    const double seconds = job_.stall_timeout.count();
    if (!is_elsewhere(row) || is_alive(node) || host_answers(row))
      return stalled({row}, fmt::format("{} has stopped: no sign of life for {:g} s; it {}", name(row), seconds,
                                        describe(this->row(row))));
    // All fall silent together, but they did not send their last heartbeats at the same moment. One sentence is enough.
    std::vector<int> silent;
    for (const int each : job_.nodes.ranks_on(node)) {
      const Snapshot& seen = this->row(each);
      if (seen.phase != Phase::absent && seen.phase != Phase::leaving && !seen.terminated) silent.push_back(each);
    }
    const int lowest = silent.front();
    return stalled(std::move(silent),
                   fmt::format("{} cannot be reached: no sign of life from any rank of its host for {:g} s; it {}",
                               name(lowest), seconds, describe(this->row(lowest))),
                   is_alive(0) ? Reach::chiefs_side : Reach::cut_off);
  }

  /// Whether the host of that row does. If that is not known, it is the question, and the answer does not count.
  bool host_answers(int row) {
    const auto answer = seen_.host_answers.find(job_.nodes.node_of(row));
    if (answer != seen_.host_answers.end()) return answer->second;
    if (!result_.unknown_host) result_.unknown_host = row;
    return true;
  }

  /// Whether the rank that hears this row's heartbeats is alive and shows them.
  bool is_heard(int row) const {
    if (!is_elsewhere(row)) return true;
    const int carrier = job_.nodes.carrier(row, job_.nodes.node_of(job_.row));
    if (carrier == job_.row) return true;
    const Snapshot& seen = this->row(carrier);
    return peer(carrier).life.silent_ticks() <= ticks_of_a_silent_carrier && seen.phase != Phase::leaving &&
           !seen.terminated;
  }

  /// For so long that it may have stopped.
  bool is_silent(int row) const { return peer(row).life.unproven_ticks() >= stall_ticks_ / 2; }

  /// Whether any rank of the node shows signs of life: the ranks of a node that is out of reach fall silent together.
  bool is_alive(int node) const {
    if (node == job_.nodes.node_of(job_.row)) return true;
    return std::ranges::any_of(job_.nodes.ranks_on(node), [this](int row) {
      const bool beats = peer(row).refused == Seconds{0} && (peer(row).life.is_mute() || !is_silent(row));
      return this->row(row).phase != Phase::absent && !this->row(row).terminated && beats;
    });
  }

  /// Once this rank was told to end, mpirun leaves it no time to wait for those that it has not heard since.
  bool may_report(int node) const {
    const auto has_beaten = [this](int row) { return peer(row).has_beaten_since_told; };
    return is_alive(node) && (!is_told() || std::ranges::any_of(job_.nodes.ranks_on(node), has_beaten));
  }

  /// All nodes notice a silence at about the same time. The node of the lowest rank alive reports it, and says so in
  /// its heartbeats.
  std::uint64_t ticks_until_turn() const {
    std::uint64_t before = 0;
    for (int node = 0; node < job_.nodes.node_of(job_.row); ++node) before += may_report(node) ? 1 : 0;
    return before * ticks_in(turn);
  }

  /// After this rank was told to end.
  LastAct last_act() {
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

  /// Whether mpirun was interrupted, or told to end itself, and this rank is to say so: the lowest that was told.
  bool was_interrupted() const {
    bool all_told = true;
    for (int row = 0; row < rows(); ++row) {
      const Snapshot& seen = this->row(row);
      if (seen.phase == Phase::leaving) return false;
      if (row == job_.row) continue;
      // A rank of another node that has not beaten since may have been gone before.
      if (is_elsewhere(row) ? !peer(row).has_beaten_since_told : !seen.terminated) return false;
      if (seen.terminated && row < job_.row) return false;
      all_told = all_told && seen.terminated;
    }
    return all_told || (seen_.told_by_parent && *seen_.since_told > node_spread);
  }

  /// Of the lowest rank that this one is to hear and misses, although it lives. The node with the lowest rank that
  /// misses another speaks.
  std::optional<std::string> look_for_lost_heartbeats() {
    if (!job_.between_nodes() || seen_.warned || row(job_.row).phase == Phase::leaving) return std::nullopt;
    for (int row = 0; row < rows(); ++row) {
      const auto [by_tcp, by_none] = lost_heartbeats(row);
      if (!by_tcp && !by_none) continue;
      if (++state_.lost_ticks <= ticks_until_turn() || !seen_.takes_a_line) return std::nullopt;
      return fmt::format(
          "heartbeats between {} and {} do not get through by UDP{}", name(job_.row), name(row),
          by_tcp ? ": they go by TCP" : ", nor by TCP: a rank there may be waited for ten times the stall timeout");
    }
    state_.lost_ticks = 0;
    return std::nullopt;
  }

  struct Lost {
    bool by_tcp;
    bool by_none;
  };

  Lost lost_heartbeats(int row) const {
    const auto missed = sight(row).missed_datagrams;
    const Snapshot& seen = this->row(row);
    if (!missed || seen.phase == Phase::absent || seen.phase == Phase::leaving || seen.terminated)
      return {false, false};
    // Some datagrams are lost on any network.
    const std::uint64_t many = std::clamp<std::uint64_t>(stall_ticks_ / 2 / job_.ticks_a_heartbeat(), 3, 50);
    // The other side could not hear that this one has said so. A moment later TCP may get through.
    const bool first = job_.nodes.node_of(job_.row) < job_.nodes.node_of(row);
    const SignsOfLife& life = peer(row).life;
    const bool silent = life.silent_ticks() >= std::max(stall_ticks_ / 2, ticks_in(time_for_tcp));
    return {*missed >= many, first && life.is_mute() && silent};
  }

  const WatchedJob& job_;
  const Observation& seen_;
  std::uint64_t stall_ticks_;
  Seconds took_;
  Judgement result_;
  WatchState& state_;
  bool met_ = false;     ///< since the last look this rank came out of something that all ranks are needed for
  bool agreed_ = false;  ///< that was an agreement
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
  for (const PhaseTable::Snapshot& seen : rows) peers.push_back({.life = {seen.heartbeat, job.stall_ticks() / 4}});
}

Judgement judge_look(const WatchedJob& job, const Observation& seen, WatchState state) {
  return Look{job, seen, std::move(state)}.judge();
}

}  // namespace lockstep
