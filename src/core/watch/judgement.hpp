// What a watchdog makes of what it sees: which rank is gone, stopped, late or out of reach, and who says so. Knows no
// clock, thread or socket: the watchdog looks around, asks for a judgement, and acts on it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/control/phase_table.hpp"
#include "core/control/shared_table.hpp"
#include "core/device/device_call.hpp"
#include "core/watch/node_map.hpp"
#include "core/watch/signs_of_life.hpp"

namespace lockstep {

/// Which ranks can still be told that the job ends.
enum class Reach {
  whole_job,    ///< every rank that is left
  chiefs_side,  ///< a node is out of reach, but not rank 0's
  cut_off,      ///< rank 0's node is out of reach
};

/// What does not change while a job is watched.
struct WatchedJob {
  using Seconds = std::chrono::duration<double>;

  TableOnDemand<std::string> names;  ///< of the rows: "replica 2 (worker:1, host b)"
  NodeMap nodes;                     ///< a single one if no heartbeats come from others
  int row = 0;                       ///< this rank's
  Seconds stall_timeout{60};
  Seconds tick{0.05};          ///< the time between two looks, at most a tenth of the timeout
  bool only_observes = false;  ///< stalls do not end the job
  Seconds refusal{0.3};        ///< how long a host must refuse a rank's heartbeats before the rank is gone
  bool saves_at_end = false;   ///< the ranks have a moment to save what they have made when they are told to end
  Seconds launcher_waits{1};   ///< after the end of a rank, until it tells the others to end
  bool between_nodes() const { return nodes.nodes() > 1; }

  /// The timeout. It may mean "never".
  std::uint64_t stall_ticks() const;

  std::uint64_t ticks_a_heartbeat() const { return between_nodes() ? 2 : 1; }

  /// Rows that are sent around cost more with more nodes, so they get rarer, but not too rare for the timeout that they
  /// serve.
  std::uint64_t ticks_a_round() const;

  /// What one node says reaches all.
  std::uint64_t ticks_to_all() const { return ticks_a_heartbeat() * std::max<std::uint64_t>(1, nodes.steps()); }
};

/// What a watchdog sees in one look around. A job may have thousands of ranks, so a row is small, and says what each
/// look needs to know; what only a sentence needs is read then.
struct Observation {
  using Seconds = WatchedJob::Seconds;

  enum class Process : std::uint8_t {
    unknown,  ///< of another node, this rank's own, or the kernel does not tell
    running,
    ended,
  };

  struct Row {
    // The low bits of numbers that rise.
    std::uint32_t heartbeat = 0;
    std::uint32_t meetings = 0;
    std::uint32_t progress = 0;

    std::uint32_t place = 0;  ///< a digest of where the rank is: another one when it has gone on
    /// Heartbeats of it that came over TCP alone since the last datagram; 0 if another rank is to hear it.
    std::uint32_t missed_datagrams = 0;
    Phase phase : 8 = Phase::absent;
    Process process : 2 = Process::unknown;  ///< known before the row was read: who leaves properly says so first
    bool terminated : 1 = false;             ///< SIGTERM ends it
    bool refused : 1 = false;                ///< its host says that nobody receives there what is sent to it
    bool is_heard_here : 1 = false;          ///< this rank is the one of its node that is to hear its datagrams
    bool stall_told : 1 = false;             ///< some rank has reported that this one stalls at its current place
    bool is_behind : 1 = false;              ///< it has not come to where this rank met last
    bool has_not_come : 1 = false;           ///< the same, or that is not known of it
    bool waits_for_us : 1 = false;           ///< it waits where this rank has not come to

    /// Notes what the table shows. `own` is the row of the rank that looks, which was read before.
    void look(const PhaseTable::Snapshot& now, const PhaseTable::Snapshot& own);
  };

  PhaseTable::Snapshot own;  ///< the row of the rank that looks
  std::vector<Row> rows;
  std::vector<int> fresh;                                  ///< of `rows`, those that this look has read; ascending
  std::function<PhaseTable::Snapshot(int row)> read = {};  ///< all of a row, as it is now
  std::map<int, std::string> killed = {};  ///< by row: why the kernel killed the process, if it is known
  std::vector<int> members;                ///< of the group in which this rank met last; empty for all ranks
  detail::DeviceCalls calls;               ///< this rank's
  Seconds took{0};                         ///< since the look before
  std::optional<Seconds> since_told = {};  ///< to end, by SIGTERM or SIGINT
  bool told_by_parent = false;
  bool reported = false;     ///< someone has said what ends the job
  bool warned = false;       ///< someone has said that heartbeats do not get through
  bool takes_a_line = true;  ///< stderr does: whoever reads it may have stopped
  /// Whether the host of that row answers. Asks it, which waits if it does not.
  std::function<bool(int row)> host_answers = {};
  std::uint32_t wishes = 0;         ///< for the rows of all ranks, as this node knows them
  std::optional<int> lost = {};     ///< the rank that is gone, as somebody of the job has reported
  bool asked = false;               ///< somebody has asked this rank where everyone is, since the look before
  PhaseTable::Questions questions;  ///< as this node knew them after that
  std::filesystem::path stacks;     ///< the folder of stacks; empty if there is none
};

/// What is kept from one look to the next.
struct WatchState {
  struct Peer {
    SignsOfLife life;
    std::uint32_t progress = 0;          ///< as the last look showed it
    std::uint32_t still_ticks = 0;       ///< how long it has not risen
    std::uint32_t meetings = 0;          ///< as the last look showed them
    std::uint32_t unmet_ticks = 0;       ///< how long it has met nobody
    std::uint32_t waiting_ticks = 0;     ///< how long it has waited where it waits
    std::uint32_t stalled_ticks = 0;     ///< how long a stall of it is known that does not end the job
    float terminated = 0;                ///< seconds since it was found to be ended by SIGTERM
    float refused = 0;                   ///< seconds since its host said that it is gone
    bool stall_told = false;             ///< as the last look showed it
    bool has_beaten_since_told = false;  ///< since this rank was told to end
  };

  /// Before the first look. `rows` are as they are now.
  explicit WatchState(const std::vector<Observation::Row>& rows);

  std::vector<Peer> peers;  ///< by row
  std::uint64_t waited_ticks = 0;
  PhaseTable::Met waited;          ///< where this rank met last
  detail::DeviceCalls calls;       ///< as the last look showed them
  std::uint64_t called_ticks = 0;  ///< how long this rank has been in the same call to its GPU's driver
  std::uint64_t passed = 0;
  std::uint64_t told_ticks = 0;              ///< since this rank was told to end
  std::uint64_t ticks_since_stall_told = 0;  ///< of any row
  bool asked_to_save = false;                ///< this rank was asked to save what it has made
  std::uint32_t wishes = 0;                  ///< as the last look showed them
  std::optional<std::uint64_t> wish_ticks;   ///< since the last was known; empty if rows are not passed on
  std::uint64_t passing_ticks = 0;           ///< how long rows have been passed on
  std::uint64_t awaited_ticks = 0;           ///< how long others have waited for this rank where it is
  bool took_stack = false;                   ///< of this rank, since they wait or its driver has not returned
  std::uint32_t asked = 0;                   ///< the number of the last question where everyone is
  std::uint64_t open_ticks = 0;              ///< how long it has been open
  std::optional<std::uint32_t> answered;     ///< how often that was answered, as the last look showed it
};

/// That a rank is gone, or stalls.
struct Finding {
  std::string sentence;
  Error::ExitCode code = Error::ExitCode::stall;
  Reach reach = Reach::whole_job;
  std::vector<int> rows;         ///< that it is of; the sentence names the first
  std::uint64_t turn_ticks = 0;  ///< how long the nodes with lower ranks have to say it first
};

/// What a rank that was told to end does next.
enum class LastAct {
  none,         ///< looks around once more
  save,         ///< has the program save what it has made
  say_and_end,  ///< says that the job was interrupted, and ends
  end,
};

struct Judgement {
  std::optional<Finding> failure = {};              ///< ends the job
  std::optional<Finding> stall = {};                ///< to be told of, unless one of its rows has been; the job goes on
  std::optional<std::string> lost_heartbeats = {};  ///< a warning for the job, once
  LastAct last_act = LastAct::none;
  bool takes_stack = false;  ///< this rank is about to stall, and keeps its stack
  bool wishes = false;       ///< this rank wishes to see the rows of all ranks, or still does
  bool asks = false;         ///< passes on to the others that somebody wants to know where everyone is
  bool answers = false;      ///< prints the table, unless another rank of this node does
  bool was_paused = false;   ///< the whole job was, since the look before: stopped, or suspended with its machine
};

/// What is wrong with the lowest row that has a problem; this rank's own row comes last. A rank of this node can be
///   gone          its process ended without leaving the job. The kernel shows this at once, and whether it killed the
///                 process for memory. An end by SIGTERM counts only if this rank gets none itself, as it does when the
///                 whole job is told to end
///   stopped       its watchdog has not beaten for the stall timeout
///   late          it runs, but others have waited for it in an agreement for the stall timeout, and it has shown no
///                 progress (progress_count.hpp) for as long
///   stuck         it has been in one call to its GPU's driver for the stall timeout. Only the rank itself sees this.
///                 The driver may wait for the GPU, and the GPU for a rank that has not come to the last collective
///                 that was enqueued here: then that rank is late
/// Ranks of other nodes are known by their heartbeats, and by the agreements that they make possible. One of those can
/// also be
///   gone          its host refuses heartbeats for it, or it fell silent, after SIGTERM or before this rank got one, or
///                 somebody nearer has reported it
///   out of reach  it is the lowest rank of a node whose ranks are all silent and whose host does not answer
///   mute          it takes part in agreements, but no heartbeat gets through. It may then work alone without our
///                 knowing, so it is late only after ten times the stall timeout
/// If every rank has come to an agreement that does not end, and none is silent, the network is to blame. If heartbeats
/// get through by TCP alone, or not at all while the job goes on, one rank of the job warns of that, once.
///
/// A rank for which others have waited for three quarters of the stall timeout, or whose driver has not returned for as
/// long, keeps its stack. The sentence that ends the job a little later names the file.
///
/// Ranks that wait for each other in a circle are named after 3 s, long before the stall timeout ends the job.
///
/// Where everyone is may be asked of all ranks, as mpirun does with a signal, or of one. What is asked within 0.3 s, or
/// before the answer is known, is one question. The lowest node alive answers it; if it does not, the next.
///
/// Decision 0021 says when rows of nodes come that are not near, and which node speaks first. A heartbeat carries one
/// observed stall, so the next is told of when that one has travelled.
Judgement judge_look(const WatchedJob& job, const Observation& seen, WatchState& state);

}  // namespace lockstep
