#include "control/watchdog.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/base/log.hpp>

#include "base/descriptor.hpp"
#include "base/memory_kills.hpp"
#include "base/open_line.hpp"
#include "control/kept_signals.hpp"
#include "control/lost_heartbeats.hpp"
#include "control/report_claim.hpp"
#include "control/signs_of_life.hpp"

namespace lockstep {
namespace {

/// Whether a line does not block: whoever reads it may have stopped.
bool stderr_takes_a_line() {
  pollfd wait{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&wait, 1, 0) > 0;
}

bool is_sum(TagKind kind) {
  return kind == TagKind::sum || kind == TagKind::open_sum;
}

}  // namespace

class Watchdog::Thread {
 public:
  Thread(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job,
         Heartbeats* heartbeats)
      : table_{table},
        names_{std::move(names)},
        options_{options},
        end_job_{std::move(end_job)},
        heartbeats_{heartbeats},
        stop_{::eventfd(0, EFD_CLOEXEC)} {
    options_.tick = std::min(options_.tick, options_.stall_timeout / 10);
    // A timeout may mean "never": more ticks than a counter holds.
    const double ticks = options_.stall_timeout / options_.tick;
    stall_ticks_ = ticks < 1e18 ? static_cast<std::uint64_t>(ticks) + 1 : std::numeric_limits<std::uint64_t>::max();
    // Beats cost more with more nodes, so they get rarer, but not too rare for the timeout that they serve.
    if (heartbeats_) {
      ticks_a_heartbeat_ = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(heartbeats_->nodes().nodes()) / 8, 2,
                                                     std::max<std::uint64_t>(2, stall_ticks_ / 10));
      heartbeats_->ask_after(3 * ticks_a_heartbeat_);
    }
    for (int row = 0; row < table_.rows(); ++row) peers_.push_back(make_peer(row));
    waits_ = {{stop_.get(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    for (const Peer& peer : peers_) waits_.push_back({peer.process.get(), POLLIN, 0});
    thread_ = std::thread{[this] { watch(); }};
  }

  ~Thread() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
    // A signal came while the thread was stopping. It ends this process when nobody holds it back any more.
    if (signals_.has_come()) table_.set_terminated();
  }

  std::chrono::nanoseconds cpu_time() {
    clockid_t clock;
    timespec used = {};
    if (::pthread_getcpuclockid(thread_.native_handle(), &clock) == 0) ::clock_gettime(clock, &used);
    return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

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
  // How many times longer than planned a tick may count for.
  static constexpr double longest_tick = 4;
  // How many times longer than others a rank may be waited for that is mute, since it may work alone.
  static constexpr std::uint64_t patience_with_mute = 10;
  // Neighbours beat every tick, but not at the same moment, and a busy machine delays threads.
  static constexpr std::uint64_t ticks_of_a_silent_carrier = 4;

  struct Peer {
    Descriptor process;      ///< readable once the process has ended; -1 for this process, or without pidfd
    bool elsewhere = false;  ///< on another node
    SignsOfLife life;
    std::uint64_t stalled_ticks = 0;     ///< how long a stall of it is known that does not end the job
    Seconds terminated{0};               ///< since it was found to be ended by SIGTERM
    Seconds refused{0};                  ///< since its host said that it is gone
    bool has_beaten_since_told = false;  ///< since this rank was told to end
  };

  struct Finding {
    enum class Evidence {
      kernel,   ///< seen by this node's ranks only
      silence,  ///< seen by every node, by some sooner
    };
    std::string sentence;
    ExitCode code;
    Evidence evidence = Evidence::silence;
    Reach reach = Reach::whole_job;
    int row = 0;  ///< that a stall is of
  };

  Peer make_peer(int row) {
    const auto seen = table_.read(row);
    Peer peer{.process = Descriptor{}, .life = SignsOfLife{seen.heartbeat, stall_ticks_ / 4}};
    peer.elsewhere = heartbeats_ && !heartbeats_->nodes().same_node(row, table_.row());
    if (row == table_.row() || seen.process == 0) return peer;
    memory_kills_.watch(seen.process);
    auto descriptor = ::syscall(SYS_pidfd_open, seen.process, 0);
    // It existed when it filled its row, so it has ended since.
    if (descriptor < 0 && errno == ESRCH) descriptor = ::eventfd(1, EFD_CLOEXEC);
    if (descriptor < 0)
      log::debug(fmt::format("no pidfd for {}: {}; its end shows by its silence", name(row), std::strerror(errno)));
    peer.process = Descriptor{static_cast<int>(descriptor)};
    return peer;
  }

  const std::string& name(int row) const { return names_[static_cast<std::size_t>(row)]; }
  Peer& peer(int row) { return peers_[static_cast<std::size_t>(row)]; }

  void watch() {
    while (true) {
      const Wake wake = wait_for_tick();
      // The last heartbeat says how this rank left. A datagram may be lost.
      if (wake == Wake::stop) {
        for (int copies = 0; copies < 3; ++copies) beat(Heartbeat::now);
        return;
      }
      // Before the next heartbeat: others must not take this rank for one that was told to end.
      if (options_.on_orphaned && ::getppid() != launcher_) options_.on_orphaned();
      if (wake == Wake::terminate) {
        told_to_end_ = true;
        told_at_ = Clock::now();
        // A process that ends in time ends by itself.
        if (options_.on_interrupted) signals_.heed();
      }
      beat(told_to_end_ ? Heartbeat::now : Heartbeat::when_due);
      if (const auto finding = look_around()) return report(*finding);
      if (heartbeats_ && !told_to_end_) warn_of_lost_heartbeats();
      if (told_to_end_ && has_looked_long_enough()) die_of_signal();
    }
  }

  /// After this rank was told to end.
  bool has_looked_long_enough() {
    const bool may_save = options_.on_interrupted && time_since_told() <= time_to_save;
    if (table_.reported()) return !may_save;
    if (was_interrupted()) {
      if (may_save) {
        if (!std::exchange(asked_to_save_, true)) options_.on_interrupted();
        return false;
      }
      if (claim_report(&table_))
        print_last_line(fmt::format("lockstep: interrupted {}", place_of(table_.read(table_.row()))));
      return true;
    }
    // The others wait for the one that says so: as soon as one of them has ended, mpirun kills the rest.
    const bool waits = heartbeats_ || table_.row() == 0 || options_.on_interrupted;
    return time_since_told() > (waits ? last_look : terminate_spread);
  }

  /// Whether mpirun was interrupted, or told to end itself, and this rank is to say so: the lowest that was told.
  bool was_interrupted() {
    bool all_told = true;
    for (int row = 0; row < table_.rows(); ++row) {
      const auto seen = table_.read(row);
      if (seen.phase == Phase::leaving) return false;
      if (row == table_.row()) continue;
      // A rank of another node that has not beaten since may have been gone before.
      if (peer(row).elsewhere ? !peer(row).has_beaten_since_told : !seen.terminated) return false;
      if (seen.terminated && row < table_.row()) return false;
      all_told = all_told && seen.terminated;
    }
    return all_told || (signals_.came_from_parent() && time_since_told() > node_spread);
  }

  enum class Wake { tick, stop, terminate };

  Wake wait_for_tick() {
    for (int row = 0; row < table_.rows(); ++row) {
      // poll skips negative descriptors. A process that left the job properly would stay readable for ever.
      const int descriptor = peer(row).process.get();
      if (descriptor < 0) continue;
      const auto seen = table_.read(row);
      const bool left = seen.phase == Phase::leaving || seen.terminated;
      waits_[static_cast<std::size_t>(row) + 2].fd = left ? -1 : descriptor;
    }
    // Once this rank was told to end, its remaining time passes in ticks.
    waits_[1].fd = told_to_end_ ? -1 : signals_.descriptor();
    const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(options_.tick);
    for (pollfd& wait : waits_) wait.revents = 0;
    ::poll(waits_.data(), waits_.size(), std::max(1, static_cast<int>(tick.count())));
    // SIGTERM first: on the way out, its message would be lost.
    if (waits_[1].revents) return Wake::terminate;
    if (waits_[0].revents) return Wake::stop;
    return Wake::tick;
  }

  enum class Heartbeat { when_due, now };

  void beat(Heartbeat heartbeat) {
    ++ticks_;
    if (told_to_end_) ++told_ticks_;
    // mpirun does not wait until a busy machine lets this thread tick. But after a process was stopped, much time has
    // passed in which it could not have seen anything.
    tick_took_ =
        std::min<Seconds>(Clock::now() - std::exchange(ticked_at_, Clock::now()), longest_tick * options_.tick);
    memory_kills_.look();
    table_.beat();
    // The other ranks must see it before this one ends: those of other nodes cannot see how it ends.
    if (told_to_end_) table_.set_terminated();
    if (!heartbeats_) return;
    if (heartbeat == Heartbeat::now || ticks_ % ticks_a_heartbeat_ == 0) heartbeats_->send(table_);
    heartbeats_->receive(table_);
  }

  Seconds time_since_told() const { return Clock::now() - told_at_; }

  bool has_ended(const Peer& peer) const {
    pollfd wait{peer.process.get(), POLLIN, 0};
    return peer.process.get() >= 0 && ::poll(&wait, 1, 0) > 0;
  }

  /// What is wrong with the lowest row that has a problem.
  std::optional<Finding> look_around() {
    const auto mine = table_.read(table_.row());
    waited_ticks_ = mine.phase == Phase::meeting && mine.meeting == waited_meeting_ ? waited_ticks_ + 1 : 0;
    waited_meeting_ = mine.meeting;
    met_ = std::exchange(passed_, mine.passed) != mine.passed;
    agreed_ = met_ && !is_sum(mine.last.kind);
    // Every rank has agreed to leave, and may go from here on.
    if (mine.phase == Phase::leaving) return std::nullopt;
    for (int row = 0; row < table_.rows(); ++row) {
      if (row == table_.row()) continue;
      Peer& peer = this->peer(row);
      const std::uint64_t stalled_ticks = peer.stalled_ticks;
      if (auto finding = look_at(row)) return finding;
      if (peer.stalled_ticks == stalled_ticks) peer.stalled_ticks = 0;
    }
    return look_at_own_wait();
  }

  std::optional<Finding> look_at(int row) {
    Peer& peer = this->peer(row);
    // Read the phase after the process: a rank that left properly said so before it ended.
    const bool ended = has_ended(peer);
    const auto seen = table_.read(row);
    if (seen.phase == Phase::leaving) return std::nullopt;
    if (seen.phase == Phase::absent) return peer.elsewhere ? look_at_mute(row) : std::nullopt;
    // Told to end itself, this rank only waits for the others to be told.
    if (ended && seen.terminated && (told_to_end_ || (peer.terminated += tick_took_) <= terminate_spread))
      return std::nullopt;
    if (ended)
      return Finding{fmt::format("{} is gone: {}; it {}", name(row), how_it_ended(seen), describe(seen)),
                     ExitCode::peer_failed, Finding::Evidence::kernel};

    const bool heard = is_heard(row);
    peer.life.look({.heartbeat = seen.heartbeat,
                    .is_heard = heard,
                    .met = peer.elsewhere && met_,
                    .agreed = peer.elsewhere && agreed_,
                    .took = tick_took_});
    // One heartbeat may have been on its way when this rank was told.
    if (peer.elsewhere && told_ticks_ > 1 && peer.life.has_beaten()) peer.has_beaten_since_told = true;
    if (auto finding = look_for_death(row, seen)) return finding;
    if (seen.terminated && peer.elsewhere) return std::nullopt;
    if (peer.elsewhere && peer.life.is_mute()) return look_at_mute(row);
    if (peer.life.unproven_ticks() >= stall_ticks_)
      return stall(row, [&] { return stopped_or_out_of_reach(row, seen); });
    // Say that it runs only on a fresh beat: a rank that stopped on its way is both silent and late.
    const bool runs = heard && peer.life.silent_ticks() == 0;
    const std::uint64_t more = seen.phase == Phase::meeting ? ticks_in(for_another_cause) : 0;
    if (runs && waited_ticks_ >= stall_ticks_ && waited_ticks_ - stall_ticks_ >= more &&
        seen.meeting < waited_meeting_ && seen.phase != Phase::alone)
      return stall(row, [&] {
        return Finding{late_sentence(name(row), table_.read(table_.row()).last, options_.stall_timeout.count(), seen),
                       ExitCode::stall, Finding::Evidence::silence, Reach::whole_job, row};
      });
    return std::nullopt;
  }

  /// Of a rank that is not heard, but seems to live.
  std::optional<Finding> look_at_mute(int row) {
    if (told_to_end_ || waited_ticks_ / patience_with_mute < stall_ticks_) return std::nullopt;
    return stall(row, [&] {
      return Finding{fmt::format("{} does not come: {} was waited for {:g} s, and no heartbeats of it get through, by "
                                 "UDP or TCP",
                                 name(row), describe(table_.read(table_.row()).last),
                                 options_.stall_timeout.count() * static_cast<double>(patience_with_mute)),
                     ExitCode::stall, Finding::Evidence::silence, Reach::whole_job, row};
    });
  }

  /// A stall of that row, if it ends the job. Otherwise one rank of the job speaks of it, in the order of the nodes;
  /// `find` may take time, and is not called again.
  template <class Find>
  std::optional<Finding> stall(int row, Find&& find) {
    if (!options_.on_stall) return find();
    if (++peer(row).stalled_ticks <= ticks_until_turn() || table_.is_observed(row) || !stderr_takes_a_line())
      return std::nullopt;
    const Finding finding = find();
    if (table_.observe(finding.row)) {
      table_.show_observed(finding.row);
      options_.on_stall(finding.sentence);
    }
    // The ranks of a host that is out of reach are told of in one line.
    if (row != finding.row) (void)table_.observe(row);
    return std::nullopt;
  }

  std::string how_it_ended(const PhaseTable::Snapshot& seen) {
    if (seen.terminated) return "SIGTERM ended it";
    const std::string for_memory = memory_kills_.told_of(seen.process);
    return for_memory.empty() ? "its process ended" : for_memory;
  }

  std::uint64_t ticks_in(Seconds time) const { return static_cast<std::uint64_t>(time / options_.tick) + 1; }

  /// Whether the rank that hears this row's heartbeats is alive and shows them.
  bool is_heard(int row) {
    if (!peer(row).elsewhere) return true;
    const NodeMap& nodes = heartbeats_->nodes();
    const int carrier = nodes.carrier(row, nodes.node_of(table_.row()));
    if (carrier == table_.row()) return true;
    const auto seen = table_.read(carrier);
    return peer(carrier).life.silent_ticks() <= ticks_of_a_silent_carrier && seen.phase != Phase::leaving &&
           !seen.terminated;
  }

  /// A rank whose end the kernel does not show here. Its silence must do, if there is a reason to suspect its end.
  std::optional<Finding> look_for_death(int row, const PhaseTable::Snapshot& seen) {
    Peer& peer = this->peer(row);
    if (peer.process.get() >= 0) return std::nullopt;
    const auto unsure = terminate_spread + 2.0 * static_cast<double>(ticks_a_heartbeat_) * options_.tick;
    // Its neighbours learn of it sooner, from their kernel. If it has none, this is the only sign. A firewall may
    // refuse as well, so it counts only if nothing else shows that the rank lives.
    const bool refused = peer.elsewhere && heartbeats_->was_refused(row) && !peer.life.is_mute() &&
                         peer.life.unproven() > Seconds{unsure};
    peer.refused = refused ? peer.refused + tick_took_ : Seconds{0};
    if (peer.refused > terminate_spread && !seen.terminated)
      return Finding{fmt::format("{} is gone: its process ended; it {}", name(row), describe(seen)),
                     ExitCode::peer_failed};
    if (peer.life.is_mute()) return std::nullopt;
    // The last look counts in any case: on a busy machine there may have been few others.
    const bool last = told_to_end_ && peer.elsewhere && !peer.has_beaten_since_told && time_since_told() > last_look;
    if (!last && peer.life.unproven() <= (peer.elsewhere ? Seconds{unsure} : terminate_spread)) return std::nullopt;
    if (told_to_end_ && !seen.terminated)
      return Finding{
          fmt::format("{} is gone: no sign of life before the job was told to end; it {}", name(row), describe(seen)),
          ExitCode::peer_failed};
    if (seen.terminated && peer.elsewhere && !peer.has_beaten_since_told)
      return Finding{fmt::format("{} is gone: SIGTERM ended it; it {}", name(row), describe(seen)),
                     ExitCode::peer_failed};
    return std::nullopt;
  }

  Finding stopped_or_out_of_reach(int row, const PhaseTable::Snapshot& seen) {
    const double seconds = options_.stall_timeout.count();
    if (!peer(row).elsewhere || is_alive(heartbeats_->nodes().node_of(row)) || heartbeats_->host_answers(row))
      return {fmt::format("{} has stopped: no sign of life for {:g} s; it {}", name(row), seconds, describe(seen)),
              ExitCode::stall, Finding::Evidence::silence, Reach::whole_job, row};
    // All fall silent together, but they did not send their last heartbeats at the same moment.
    const int lowest = lowest_there(heartbeats_->nodes().node_of(row));
    return {fmt::format("{} cannot be reached: no sign of life from any rank of its host for {:g} s; it {}",
                        name(lowest), seconds, describe(table_.read(lowest))),
            ExitCode::stall, Finding::Evidence::silence, is_alive(0) ? Reach::chiefs_side : Reach::cut_off, lowest};
  }

  int lowest_there(int node) const {
    for (const int row : heartbeats_->nodes().ranks_on(node)) {
      const auto seen = table_.read(row);
      if (seen.phase != Phase::absent && seen.phase != Phase::leaving && !seen.terminated) return row;
    }
    return heartbeats_->nodes().ranks_on(node).front();
  }

  /// Whether any rank of the node shows signs of life: the ranks of a node that is out of reach fall silent together.
  bool is_alive(int node) {
    if (node == heartbeats_->nodes().node_of(table_.row())) return true;
    for (const int row : heartbeats_->nodes().ranks_on(node)) {
      const auto seen = table_.read(row);
      const SignsOfLife& life = peer(row).life;
      const bool beats =
          peer(row).refused == Seconds{0} && (life.is_mute() || life.unproven_ticks() < stall_ticks_ / 2);
      if (seen.phase != Phase::absent && !seen.terminated && beats) return true;
    }
    return false;
  }

  /// Every rank has come, and yet the agreement does not end.
  std::optional<Finding> look_at_own_wait() {
    const std::uint64_t stalled_ticks = std::exchange(peer(table_.row()).stalled_ticks, 0);
    if (!heartbeats_ || waited_ticks_ < stall_ticks_) return std::nullopt;
    for (int row = 0; row < table_.rows(); ++row) {
      const auto seen = table_.read(row);
      if (seen.phase == Phase::absent || seen.meeting < waited_meeting_) return std::nullopt;
    }
    peer(table_.row()).stalled_ticks = stalled_ticks;
    return stall(table_.row(), [&] {
      return Finding{
          fmt::format("{} is cut off: every rank has come to {}, which has not ended for {:g} s: the network "
                      "that MPI uses has failed",
                      name(table_.row()), describe(table_.read(table_.row()).last), options_.stall_timeout.count()),
          ExitCode::stall};
    });
  }

  /// Once for the job: the node with the lowest rank that misses another's datagrams, although that rank lives.
  void warn_of_lost_heartbeats() {
    if (table_.warned() || table_.read(table_.row()).phase == Phase::leaving) return;
    const std::uint64_t many = std::clamp<std::uint64_t>(stall_ticks_ / 2 / ticks_a_heartbeat_, 3, 50);
    const auto lost = find_lost_heartbeats(*heartbeats_, table_, many, [this](int row) {
      // A moment later TCP may get through.
      const SignsOfLife& life = peer(row).life;
      return life.is_mute() && life.silent_ticks() >= std::max(stall_ticks_ / 2, ticks_in(Seconds{2}));
    });
    lost_ticks_ = lost ? lost_ticks_ + 1 : 0;
    if (!lost || lost_ticks_ <= ticks_until_turn() || !stderr_takes_a_line() || !table_.claim_warning()) return;
    log::warning(describe(*lost, names_, table_.row()));
  }

  void report(const Finding& finding) {
    if (finding.evidence == Finding::Evidence::silence) wait_for_turn();
    const bool printing = claim_report(&table_);
    if (printing) print_last_line("lockstep: " + finding.sentence);
    // The report is printed, or another rank is about to print it: from here on SIGTERM may end this process at once.
    signals_.let_through();
    // mpirun also reports a rank that died, and its exit code says more than ours, so it gets time to end the job. A
    // rank that did not print waits as long, until the line is out; to mpirun on another node it travels through a
    // daemon. If not everyone can be told, each ends what it can, in its own time.
    const bool for_mpirun = finding.code == ExitCode::peer_failed || !printing;
    const Seconds on_its_way{heartbeats_ ? 0.2 : 0.0};
    pass(for_mpirun && finding.reach == Reach::whole_job ? Seconds{3} : on_its_way);
    end_job_(finding.code, finding.reach);
    if (told_to_end_) die_of_signal();
  }

  /// All nodes notice a silence at about the same time. The node of the lowest rank alive reports it, and says so in
  /// its heartbeats.
  void wait_for_turn() {
    for (std::uint64_t tick = ticks_until_turn(); tick > 0 && !table_.reported(); --tick) pass(options_.tick);
  }

  std::uint64_t ticks_until_turn() {
    std::uint64_t before = 0;
    for (int node = 0; heartbeats_ && node < heartbeats_->nodes().node_of(table_.row()); ++node)
      before += may_report(node) ? 1 : 0;
    return before * ticks_in(turn);
  }

  /// Once this rank was told to end, mpirun leaves it no time to wait for those that it has not heard since.
  bool may_report(int node) {
    const auto has_beaten = [this](int row) { return peer(row).has_beaten_since_told; };
    return is_alive(node) && (!told_to_end_ || std::ranges::any_of(heartbeats_->nodes().ranks_on(node), has_beaten));
  }

  /// Lets time pass while this rank still shows signs of life.
  void pass(Seconds time) {
    for (std::uint64_t tick = 0; static_cast<double>(tick) * options_.tick < time; ++tick) {
      beat(Heartbeat::now);
      std::this_thread::sleep_for(options_.tick);
    }
  }

  [[noreturn]] void die_of_signal() {
    table_.set_terminated();
    // Other nodes must hear that a line was said before they miss this rank: each rank there hears it from one here.
    beat(Heartbeat::now);
    signals_.die();
  }

  PhaseTable& table_;
  std::vector<std::string> names_;
  WatchdogOptions options_;
  EndJob end_job_;
  Heartbeats* heartbeats_;
  MemoryKills memory_kills_;
  pid_t launcher_ = ::getppid();
  std::uint64_t stall_ticks_ = 0;
  std::uint64_t ticks_a_heartbeat_ = 1;
  std::uint64_t ticks_ = 0;
  std::uint64_t waited_ticks_ = 0;
  std::uint64_t waited_meeting_ = 0;
  std::uint64_t passed_ = 0;
  bool met_ = false;     ///< since the last look this rank came out of something that all ranks are needed for
  bool agreed_ = false;  ///< that was an agreement
  std::uint64_t lost_ticks_ = 0;
  bool told_to_end_ = false;  ///< by SIGTERM or SIGINT
  bool asked_to_save_ = false;
  std::uint64_t told_ticks_ = 0;
  Clock::time_point told_at_;
  Clock::time_point ticked_at_ = Clock::now();
  Seconds tick_took_{0};
  std::vector<Peer> peers_;
  std::vector<pollfd> waits_;  ///< for the stop of this thread, SIGTERM, and each row's process
  Descriptor stop_;
  KeptSignals signals_;
  std::thread thread_;
};

Watchdog::Watchdog(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job,
                   Heartbeats* heartbeats)
    : thread_{std::make_unique<Thread>(table, std::move(names), options, std::move(end_job), heartbeats)} {}

Watchdog::~Watchdog() = default;

std::chrono::nanoseconds Watchdog::cpu_time() const {
  return thread_->cpu_time();
}

}  // namespace lockstep
