// Which rank is gone, stopped, late, stuck or out of reach.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/watch/ending_signals.hpp"
#include "core/watch/wait_chain.hpp"
#include "core/watch/watch_notes.hpp"
#include "core/watch/watch_view.hpp"

namespace lockstep {
namespace {

class FailureSearch : WatchView {
 public:
  FailureSearch(const WatchView& view, Met met, Judgement& result) : WatchView{view}, met_{met}, result_{result} {}

  std::optional<Finding> look_around() {
    // Every rank has agreed to leave, and may go from here on.
    if (seen_.own.phase == Phase::leaving) return std::nullopt;
    for (const int row : seen_.fresh)
      if (row != job_.row)
        if (auto finding = look_at(row)) return finding;
    return look_at(job_.row);
  }

 private:
  // A rank that waits in an earlier meeting waits for somebody else. How much longer the others have to find whom.
  static constexpr Seconds for_another_cause{1};
  // How long ranks wait for each other until that is said.
  static constexpr Seconds for_a_circle{3};
  // How many times longer than others a rank may be waited for that is mute, since it may work alone.
  static constexpr std::uint64_t patience_with_mute = 10;
  // Neighbours beat every tick, but not at the same moment, and a busy machine delays threads.
  static constexpr std::uint64_t ticks_of_a_silent_carrier = 4;

  /// The file about the threads of a rank that stalls: "; run1/stacks/rank-2.txt says where its threads were".
  std::string stack_of(int row) const {
    if (seen_.stacks.empty() || !seen_.read(row).has_stack()) return {};
    return fmt::format("; {} says where its threads were", stack_file(seen_.stacks, row).string());
  }

  std::optional<Finding> look_at_itself() {
    auto finding = look_at_own_call();
    return finding ? finding : look_at_own_wait();
  }

  std::optional<Finding> look_at(int row) {
    Peer& peer = this->peer(row);
    const std::uint32_t stalled_ticks = peer.stalled_ticks;
    auto finding = row == job_.row ? look_at_itself() : look_at_other(row);
    if (peer.stalled_ticks == stalled_ticks) peer.stalled_ticks = 0;
    return finding;
  }

  std::optional<Finding> look_at_other(int row) {
    Peer& peer = this->peer(row);
    const bool elsewhere = is_elsewhere(row);
    const Row& seen = this->row(row);
    if (seen.phase == Phase::leaving) return std::nullopt;
    if (seen.phase == Phase::absent) return elsewhere ? look_at_mute(row) : std::nullopt;
    if (seen.process == Process::ended) return look_at_ended(row);

    const bool heard = is_heard(row);
    peer.life.look({.heartbeat = seen.heartbeat,
                    .is_heard = heard,
                    // A rank that was stopped may meet others before its own watchdog wakes up.
                    .met = elsewhere ? met_.any : peer.unmet_ticks == 0,
                    .agreed = elsewhere && met_.agreed,
                    .took = took_},
                   stall_ticks_ / 4);
    // One heartbeat may have been on its way when this rank was told.
    if (elsewhere && state_.told_ticks > 1 && peer.life.has_beaten) peer.has_beaten_since_told = true;
    if (auto finding = look_for_death(row)) return finding;
    if (seen.terminated && elsewhere) return std::nullopt;
    if (elsewhere && peer.life.is_mute()) return look_at_mute(row);
    if (peer.life.unproven_ticks >= stall_ticks_)
      return stall(row, ticks_until_turn_for(row), [&](auto turn) { return stopped_or_out_of_reach(row, turn); });
    // Say that it runs only on a fresh beat: a rank that stopped on its way is both silent and late.
    const bool runs = heard && peer.life.silent_ticks <= ticks_between_rows(row);
    const std::uint64_t more = seen.phase == Phase::meeting ? ticks_in(for_another_cause) : 0;
    std::uint64_t waited =
        std::min(std::max(state_.waited_ticks, state_.called_ticks), std::uint64_t{peer.still_ticks});
    // Who has nothing more to do waits for those that still work with each other.
    if (seen_.own.last.kind == TagKind::leave) waited = std::min(waited, std::uint64_t{peer.unmet_ticks});
    if (!runs || !is_member(row) || !seen.is_behind || seen.phase == Phase::alone) return std::nullopt;
    if (waited >= stall_ticks_ && waited - stall_ticks_ >= more) return look_for_cause(row, waited);
    look_for_circle(row, waited);
    return std::nullopt;
  }

  /// Ranks that wait for each other hardly ever come out of it. But another thread of one may still come to where the
  /// others wait, so the job goes on until the stall timeout.
  void look_for_circle(int row, std::uint64_t waited_ticks) {
    const std::uint64_t enough = ticks_in(for_a_circle);
    if (waited_ticks < enough || stall_ticks_ / 2 < enough) return;
    if (this->row(row).phase != Phase::meeting || this->row(row).stall_told) return;
    const WaitChain chain = follow_waits(seen_.read, rows(), job_.row, row);
    const auto has_waited = [&](int each) { return each == job_.row || peer(each).waiting_ticks >= enough; };
    if (!chain.is_circle || !std::ranges::all_of(chain.rows, has_waited)) return;
    tell_of_stall(row, 0, [&](auto turn) {
      std::string sentence = circle_sentence(chain, seen_.read, job_.names.all(), for_a_circle.count());
      if (!job_.only_observes)
        sentence += fmt::format("; the job ends if they still do after {:g} s", job_.stall_timeout.count());
      return stalled(chain.rows, std::move(sentence), turn);
    });
  }

  /// Each rank of a circle waits for another one, so the lowest decides for all who is near.
  std::uint64_t turn_of(const WaitChain& circle) const {
    return ticks_until_turn_of_waiting_for(std::ranges::min(circle.rows));
  }

  /// Of a rank for which this one has waited too long: it may wait for others itself, in another group.
  std::optional<Finding> look_for_cause(int row, std::uint64_t waited_ticks) {
    const WaitChain chain = follow_waits(seen_.read, rows(), job_.row, row);
    const int cause = chain.cause();
    // Nobody is to blame for a wait that has just begun.
    for (const int each : chain.rows)
      if (each != job_.row && each != cause && peer(each).waiting_ticks < stall_ticks_) return std::nullopt;
    if (chain.is_circle)
      return stall(row, turn_of(chain), [&](auto turn) {
        return stalled(chain.rows, circle_sentence(chain, seen_.read, job_.names.all(), job_.stall_timeout.count()),
                       turn);
      });
    // Those that wait with it know who is in its group.
    const Snapshot last = seen_.read(cause);
    if (last.phase == Phase::meeting && last.group != 0 && waited_ticks / 2 < stall_ticks_) return std::nullopt;
    if (cause != row && (is_busy(cause) || !runs(cause))) return std::nullopt;
    return stall(row, ticks_until_turn_of_waiting_for(cause),
                 [&](auto turn) { return late(cause, seen_.read(chain.waits_for_cause()).last, turn); });
  }

  /// Whether that rank is known to run: what has become of others is found without a chain.
  bool runs(int row) const {
    const Row& seen = this->row(row);
    return seen.phase != Phase::absent && seen.phase != Phase::leaving && !seen.terminated && is_heard(row) &&
           !peer(row).life.is_mute() && peer(row).life.silent_ticks <= ticks_between_rows(row);
  }

  Finding late(int row, const TagName& waited, std::uint64_t turn) const {
    const Snapshot seen = seen_.read(row);
    const double seconds = job_.stall_timeout.count();
    std::vector<int> together;
    if (seen.phase == Phase::meeting && seen.group == 0)
      for (int each = 0; each < rows(); ++each)
        if (waits_at(each, last_of(seen))) together.push_back(each);
    if (together.size() < 2)
      return stalled({row}, late_sentence(name(row), waited, seconds, seen, stack_of(row)), turn);
    // Each may wait for another of them.
    auto sentence = fmt::format("error: {} has not ended for {:g} s on replicas {}, and no rank is late for it",
                                describe(seen.last), seconds, fmt::join(together, ", "));
    return stalled(std::move(together), std::move(sentence), turn);
  }

  std::optional<Finding> look_at_ended(int row) {
    if (!this->row(row).terminated) {
      if (const auto killed = seen_.killed.find(row); killed != seen_.killed.end()) return gone(row, killed->second);
      const int signal = static_cast<int>(seen_.read(row).ended_by);
      return gone(row, signal == 0 ? "its process ended" : name_of_signal(signal) + " ended it");
    }
    // Told to end itself, this rank only waits for the others to be told.
    if (is_told()) return std::nullopt;
    const float since = peer(row).terminated += static_cast<float>(took_.count());
    return since > std::min(terminate_spread, job_.launcher_waits / 2).count()
               ? std::optional{gone(row, "SIGTERM ended it")}
               : std::nullopt;
  }

  /// Of a rank that is not heard, but seems to live.
  std::optional<Finding> look_at_mute(int row) {
    if (is_told() || !is_member(row) || state_.waited_ticks / patience_with_mute < stall_ticks_) return std::nullopt;
    return stall(row, ticks_until_turn_of_waiting_for(row), [&](auto turn) {
      return stalled({row},
                     fmt::format("{} does not come: {} was waited for {:g} s, and no heartbeats of it get through, by "
                                 "UDP or TCP",
                                 name(row), describe(seen_.own.last),
                                 job_.stall_timeout.count() * static_cast<double>(patience_with_mute)),
                     turn);
    });
  }

  /// This rank is inside its GPU's driver, and the GPU does not wait for others.
  std::optional<Finding> look_at_own_call() {
    if (state_.called_ticks < stall_ticks_) return std::nullopt;
    for (const int other : seen_.fresh)
      if (is_member(other) && row(other).is_behind && is_busy(other)) return std::nullopt;
    // Nobody else sees it, so nobody else has a turn.
    return stall(job_.row, 0, [&](auto turn) {
      return stalled({job_.row},
                     fmt::format("{} is stuck: a call to its GPU's driver has not returned for {:g} s; it {}{}",
                                 name(job_.row), job_.stall_timeout.count(), describe(seen_.own), stack_of(job_.row)),
                     turn);
    });
  }

  /// Every rank has come, and yet the agreement does not end.
  std::optional<Finding> look_at_own_wait() {
    if (!job_.between_nodes() || state_.waited_ticks < stall_ticks_) return std::nullopt;
    for (int row = 0; row < rows(); ++row)
      if (is_member(row) && (this->row(row).phase == Phase::absent || this->row(row).has_not_come)) return std::nullopt;
    // A rank that is silent may have stopped here, later than this rank began to wait: its stall is told first. Each
    // rank that waits here sees the same of itself, so what was told of one of them says why. What was told of a rank
    // that got through does not.
    for (int row = 0; row < rows(); ++row)
      if (job_.only_observes && this->row(row).stall_told ? waits_at(row, state_.waited) : is_silent(row))
        return std::nullopt;
    return stall(job_.row, ticks_until_turn(), [&](auto turn) {
      return stalled(
          {job_.row},
          fmt::format("{} is cut off: every rank has come to {}, which has not ended for {:g} s: the network "
                      "that MPI uses has failed",
                      name(job_.row), describe(seen_.own.last), job_.stall_timeout.count()),
          turn);
    });
  }

  /// Who works alone is waited for without a limit, and who shows progress as long as it does.
  bool is_busy(int row) const { return this->row(row).phase == Phase::alone || peer(row).still_ticks < stall_ticks_; }

  bool waits_at(int row, const PhaseTable::Met& meeting) const {
    return this->row(row).phase == Phase::meeting && last_of(seen_.read(row)) == meeting;
  }

  /// A rank whose end the kernel does not show here. Its silence must do, if there is a reason to suspect its end.
  std::optional<Finding> look_for_death(int row) {
    if (this->row(row).process != Process::unknown) return std::nullopt;
    Peer& peer = this->peer(row);
    const bool elsewhere = is_elsewhere(row);
    const bool terminated = this->row(row).terminated;
    if (!is_near(row) && seen_.lost == row) return gone(row, "its process ended", ticks_until_turn_for(row));
    const std::uint64_t a_heartbeat = std::max(job_.ticks_a_heartbeat(), ticks_between_rows(row));
    const Seconds unsure = terminate_spread + 2.0 * static_cast<double>(a_heartbeat) * job_.tick;
    // Its neighbours learn of it sooner, from their kernel. If it has none, this is the only sign. A firewall may
    // refuse as well, so it counts only if nothing else shows that the rank lives.
    const bool refused = this->row(row).refused && !peer.life.is_mute() && peer.life.unproven > unsure.count();
    peer.refused = refused ? peer.refused + static_cast<float>(took_.count()) : 0;
    const auto turn = [&] { return ticks_until_turn_for(row); };
    if (peer.refused > job_.refusal.count() && !terminated) return gone(row, "its process ended", turn());
    if (peer.life.is_mute()) return std::nullopt;
    // The last look counts in any case: on a busy machine there may have been few others.
    const bool last =
        is_told() && elsewhere && is_near(row) && !peer.has_beaten_since_told && *seen_.since_told > last_look;
    if (!last && peer.life.unproven <= (elsewhere ? unsure : terminate_spread).count()) return std::nullopt;
    if (is_told() && !terminated) return gone(row, "no sign of life before the job was told to end", turn());
    if (terminated && elsewhere && !peer.has_beaten_since_told) return gone(row, "SIGTERM ended it", turn());
    return std::nullopt;
  }

  /// If only this node sees it, nobody else has a turn.
  Finding gone(int row, std::string_view how, std::uint64_t turn_ticks = 0) const {
    return {fmt::format("{} is gone: {}; it {}", name(row), how, describe(seen_.read(row))),
            Error::ExitCode::peer_failed,
            Reach::whole_job,
            {row},
            turn_ticks};
  }

  static Finding stalled(std::vector<int> rows, std::string sentence, std::uint64_t turn_ticks,
                         Reach reach = Reach::whole_job) {
    return {std::move(sentence), Error::ExitCode::stall, reach, std::move(rows), turn_ticks};
  }

  /// A stall of that row, if it ends the job. `find` may have a question.
  template <class Find>
  std::optional<Finding> stall(int row, std::uint64_t turn_ticks, Find&& find) {
    if (!job_.only_observes) return find(turn_ticks);
    tell_of_stall(row, turn_ticks, find);
    return std::nullopt;
  }

  /// One rank of the job speaks of it, in the order of the nodes, and of one stall at a time: a heartbeat carries no
  /// more.
  template <class Find>
  void tell_of_stall(int row, std::uint64_t patience, Find&& find) {
    if (++peer(row).stalled_ticks <= patience || this->row(row).stall_told || !seen_.takes_a_line || result_.stall)
      return;
    if (state_.ticks_since_stall_told < std::max(patience + 1, job_.ticks_to_all())) return;
    // It may be of another row, which was told of.
    const auto found = find(patience);
    if (std::ranges::none_of(found.rows, [this](int each) { return this->row(each).stall_told; }))
      result_.stall = found;
  }

  Finding stopped_or_out_of_reach(int row, std::uint64_t turn_ticks) {
    const int node = job_.nodes.node_of(row);
    const double seconds = job_.stall_timeout.count();
    if (!is_elsewhere(row) || shows_life(node) || host_answers(row))
      return stalled({row},
                     fmt::format("{} has stopped: no sign of life for {:g} s; it {}", name(row), seconds,
                                 describe(seen_.read(row))),
                     turn_ticks);
    // All fall silent together, but they did not send their last heartbeats at the same moment. One sentence is enough.
    std::vector<int> silent;
    for (const int each : job_.nodes.ranks_on(node)) {
      const Row& seen = this->row(each);
      if (seen.phase != Phase::absent && seen.phase != Phase::leaving && !seen.terminated) silent.push_back(each);
    }
    const int lowest = silent.front();
    return stalled(std::move(silent),
                   fmt::format("{} cannot be reached: no sign of life from any rank of its host for {:g} s; it {}",
                               name(lowest), seconds, describe(seen_.read(lowest))),
                   turn_ticks, runs_on(0) ? Reach::chiefs_side : Reach::cut_off);
  }

  /// Whether the host of that row does. It is asked once in a look.
  bool host_answers(int row) {
    const auto [answer, is_new] = host_answers_.try_emplace(job_.nodes.node_of(row));
    if (is_new) answer->second = seen_.host_answers(row);
    return answer->second;
  }

  /// How long the row of a rank that runs may look the same.
  std::uint64_t ticks_between_rows(int row) const { return is_near(row) ? 0 : job_.ticks_a_round(); }

  /// Whether the rank that hears this row's heartbeats is alive and shows them.
  bool is_heard(int row) const {
    if (!is_elsewhere(row)) return true;
    if (!is_near(row) && state_.passing_ticks <= job_.ticks_to_all() + 2 * job_.ticks_a_round()) return false;
    const int carrier = job_.nodes.carrier(row, job_.nodes.node_of(job_.row));
    if (carrier == job_.row) return true;
    const Row& seen = this->row(carrier);
    return peer(carrier).life.silent_ticks <= ticks_of_a_silent_carrier && seen.phase != Phase::leaving &&
           !seen.terminated;
  }

  Met met_;
  Judgement& result_;
  std::map<int, bool> host_answers_;  ///< by node
};

}  // namespace

void look_for_failure(const WatchView& view, Met met, Judgement& judgement) {
  judgement.failure = FailureSearch{view, met, judgement}.look_around();
}

}  // namespace lockstep
