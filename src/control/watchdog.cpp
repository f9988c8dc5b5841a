#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/base/log.hpp>
#include <lockstep/control/watchdog.hpp>

namespace lockstep {
namespace {

/// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_{value} {}
  Descriptor(Descriptor&& other) noexcept : value_{std::exchange(other.value_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

// A signal handler can reach nothing but a global.
std::atomic<int> terminate_descriptor{-1};

void on_terminate(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  if (const int descriptor = terminate_descriptor.load(); descriptor >= 0) (void)!::write(descriptor, &one, sizeof one);
  errno = saved;
}

}  // namespace

class Watchdog::Thread {
 public:
  Thread(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job)
      : table_{table},
        names_{std::move(names)},
        options_{options},
        end_job_{std::move(end_job)},
        stop_{::eventfd(0, EFD_CLOEXEC)},
        terminate_{::eventfd(0, EFD_CLOEXEC)} {
    options_.tick = std::min(options_.tick, options_.stall_timeout / 10);
    // "Never" is a timeout too: it is more ticks than a counter holds.
    const double ticks = options_.stall_timeout / options_.tick;
    stall_ticks_ = ticks < 1e18 ? static_cast<std::uint64_t>(ticks) + 1 : std::numeric_limits<std::uint64_t>::max();
    spread_ticks_ = static_cast<std::uint64_t>(terminate_spread / options_.tick) + 1;
    for (int row = 0; row < table_.rows(); ++row) peers_.push_back(make_peer(row));
    terminate_descriptor = terminate_.get();
    struct sigaction action = {};
    action.sa_handler = on_terminate;
    ::sigaction(SIGTERM, &action, &previous_action_);
    thread_ = std::thread{[this] { watch(); }};
  }

  ~Thread() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
    ::sigaction(SIGTERM, &previous_action_, nullptr);
    terminate_descriptor = -1;
    // One that came while the thread was on its way out: taken, and not yet acted on.
    pollfd taken{terminate_.get(), POLLIN, 0};
    if (::poll(&taken, 1, 0) <= 0) return;
    table_.set_terminated();
    ::kill(::getpid(), SIGTERM);
  }

 private:
  // mpirun that is told to end tells every rank, one after the other. A rank that SIGTERM ended is therefore nobody's
  // fault unless the others have heard nothing for so long; mpirun's own reaction to a dead rank takes a second.
  static constexpr std::chrono::duration<double> terminate_spread{0.3};

  struct Peer {
    Descriptor process;  ///< readable once the process has ended; -1 for ourselves, or where the kernel has none
    std::uint64_t heartbeat = 0;
    std::uint64_t silent_ticks = 0;
    std::uint64_t terminated_ticks = 0;  ///< since it was seen to have ended by SIGTERM
  };

  struct Finding {
    std::string sentence;
    ExitCode code;
  };

  Peer make_peer(int row) const {
    Peer peer;
    const std::int32_t process = table_.read(row).process;
    if (row == table_.row() || process == 0) return peer;
    const auto descriptor = ::syscall(SYS_pidfd_open, process, 0);
    if (descriptor < 0)
      log::debug(fmt::format("no pidfd for {}: {}; its end shows by its silence", name(row), std::strerror(errno)));
    peer.process = Descriptor{static_cast<int>(descriptor)};
    return peer;
  }

  const std::string& name(int row) const { return names_[static_cast<std::size_t>(row)]; }

  void watch() {
    while (true) {
      const Wake wake = wait_for_tick();
      if (wake == Wake::stop) return;
      table_.beat();
      const auto finding = look_around(wake);
      if (finding) report(*finding);
      if (wake == Wake::terminate) die_of_sigterm();
      if (finding) return;
    }
  }

  enum class Wake { tick, stop, terminate };

  Wake wait_for_tick() {
    std::vector<pollfd> waits{{stop_.get(), POLLIN, 0}, {terminate_.get(), POLLIN, 0}};
    // Negative descriptors are skipped by poll. A process that left the job properly stays readable for ever.
    for (int row = 0; row < table_.rows(); ++row) {
      const auto seen = table_.read(row);
      const bool left = seen.phase == Phase::leaving || seen.terminated;
      waits.push_back({left ? -1 : peers_[static_cast<std::size_t>(row)].process.get(), POLLIN, 0});
    }
    const auto tick = std::chrono::duration_cast<std::chrono::milliseconds>(options_.tick);
    ::poll(waits.data(), waits.size(), std::max(1, static_cast<int>(tick.count())));
    // SIGTERM first: what it has to say would be lost on the way out.
    if (waits[1].revents) return Wake::terminate;
    if (waits[0].revents) return Wake::stop;
    return Wake::tick;
  }

  bool has_ended(const Peer& peer) const {
    pollfd wait{peer.process.get(), POLLIN, 0};
    return peer.process.get() >= 0 && ::poll(&wait, 1, 0) > 0;
  }

  /// The lowest row that something is wrong with.
  std::optional<Finding> look_around(Wake wake) {
    count_own_wait();
    for (int row = 0; row < table_.rows(); ++row) {
      if (row == table_.row()) continue;
      if (auto finding = look_at(row, wake)) return finding;
    }
    return std::nullopt;
  }

  void count_own_wait() {
    const auto mine = table_.read(table_.row());
    waited_ticks_ = mine.phase == Phase::meeting && mine.meeting == waited_meeting_ ? waited_ticks_ + 1 : 0;
    waited_meeting_ = mine.meeting;
  }

  std::optional<Finding> look_at(int row, Wake wake) {
    Peer& peer = peers_[static_cast<std::size_t>(row)];
    // The phase after the process: one that left properly said so before it ended.
    const bool ended = has_ended(peer);
    const auto seen = table_.read(row);
    if (seen.phase == Phase::leaving || seen.phase == Phase::absent) return std::nullopt;
    if (ended && seen.terminated && ++peer.terminated_ticks <= spread_ticks_) return std::nullopt;
    if (ended)
      return Finding{fmt::format("{} is gone: {}; it {}", name(row),
                                 seen.terminated ? "SIGTERM ended it" : "its process ended", describe(seen)),
                     ExitCode::peer_failed};

    peer.silent_ticks = seen.heartbeat == peer.heartbeat ? peer.silent_ticks + 1 : 0;
    peer.heartbeat = seen.heartbeat;
    const double seconds = options_.stall_timeout.count();
    if (peer.silent_ticks >= stall_ticks_)
      return Finding{
          fmt::format("{} has stopped: no sign of life for {:g} s; it {}", name(row), seconds, describe(seen)),
          ExitCode::stall};
    // Told to end, perhaps because of a rank whose end the kernel does not show: then its silence must do.
    const bool silent = static_cast<double>(peer.silent_ticks) * options_.tick > terminate_spread;
    if (wake == Wake::terminate && peer.process.get() < 0 && silent && !seen.terminated)
      return Finding{
          fmt::format("{} is gone: no sign of life before the job was told to end; it {}", name(row), describe(seen)),
          ExitCode::peer_failed};
    // That it runs is said on a fresh beat only: a rank that stopped on its way is both silent and late.
    const bool runs = peer.silent_ticks == 0;
    if (runs && waited_ticks_ >= stall_ticks_ && seen.meeting < waited_meeting_ && seen.phase != Phase::alone)
      return Finding{fmt::format("{} is late: {} was waited for {:g} s; it runs, and {}", name(row),
                                 describe(table_.read(table_.row()).last), seconds, describe(seen)),
                     ExitCode::stall};
    return std::nullopt;
  }

  void report(const Finding& finding) {
    const bool printing = table_.claim_report();
    if (printing) {
      const std::string line = fmt::format("lockstep: {}\n", finding.sentence);
      (void)!::write(STDERR_FILENO, line.data(), line.size());
    }
    // Said or about to be said by another: from here on SIGTERM may end this process at once.
    ::sigaction(SIGTERM, &previous_action_, nullptr);
    // A rank that died is mpirun's to report as well: its exit code tells more than ours, so it gets the time to end
    // the job. Whoever did not print gives the line the same time to get out.
    const auto patience = std::chrono::seconds{finding.code == ExitCode::peer_failed || !printing ? 3 : 0};
    std::this_thread::sleep_for(patience);
    end_job_(finding.code);
  }

  [[noreturn]] void die_of_sigterm() {
    table_.set_terminated();
    ::sigaction(SIGTERM, &previous_action_, nullptr);
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(
        std::chrono::seconds{1});  // Delivery is the kernel's business; it does not return here.
    std::_Exit(128 + SIGTERM);
  }

  PhaseTable& table_;
  std::vector<std::string> names_;
  WatchdogOptions options_;
  EndJob end_job_;
  std::uint64_t stall_ticks_ = 0;
  std::uint64_t spread_ticks_ = 0;
  std::uint64_t waited_ticks_ = 0;
  std::uint64_t waited_meeting_ = 0;
  std::vector<Peer> peers_;
  Descriptor stop_;
  Descriptor terminate_;
  struct sigaction previous_action_ = {};
  std::thread thread_;
};

Watchdog::Watchdog(PhaseTable& table, std::vector<std::string> names, WatchdogOptions options, EndJob end_job)
    : thread_{std::make_unique<Thread>(table, std::move(names), options, std::move(end_job))} {}

Watchdog::~Watchdog() = default;

}  // namespace lockstep
