// What can be seen of the other ranks while there is no phase table: before MPI has started, and while it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <unistd.h>

#include <lockstep/job/runtime/runtime.hpp>

#include "core/base/countdown.hpp"
#include "core/base/descriptor.hpp"
#include "core/control/phase_table.hpp"
#include "core/watch/kept_signals.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {

/// Ends this process, and with it the job, unless this object is destroyed first: MPI waits for a rank that does not
/// come. After `patience` the system's list of processes says which rank that mpirun started on this node has been
/// stopped for as long, or is missing. If the list shows nothing, the watch waits longer, for a rank of another node;
/// while the job starts, it then names a process of this node that makes no runtime, and says whether that has started
/// MPI. If mpirun tells this process to end, the list says whether one rank's end was the cause. A process that is late
/// itself says so after `patience`, and ends. With RuntimeOptions::OnStall::observe only a missing rank ends the job.
/// Without mpirun there is nothing to watch.
///
/// Its thread, with the name by which other processes know that this one makes a runtime, lives as long as the object:
/// the end of a job must not fail for want of a thread. A look without memory or descriptors finds nothing.
class SiblingWatch {
 public:
  struct Options {
    std::string doing;                              ///< as in "while the job was starting"
    std::chrono::duration<double> patience;         ///< if not positive, unlimited: the options are refused later
    std::chrono::duration<double> for_other_nodes;  ///< how much longer to wait for a rank that the list cannot show
    RuntimeOptions::OnStall on_stall = RuntimeOptions::OnStall::end;
    std::set<int> known;  ///< ranks known to have been on this node
    /// The ranks of MPI_COMM_WORLD to watch, those of a runtime that is a guest; if empty, all that mpirun started.
    std::set<int> only = {};
    PhaseTable* table = nullptr;  ///< where else the report is claimed
    KeptSignals::Keep signals = KeptSignals::Keep::both;
    /// Whether the other ranks may be gone by now.
    std::function<bool()> may_be_gone = [] { return false; };
    /// Whether this process is still busy with something of its own, so that the others wait for it.
    std::function<bool()> is_late = [] { return false; };
  };

  /// Error if there is no thread for it.
  explicit SiblingWatch(Options options);
  SiblingWatch(const SiblingWatch&) = delete;
  ~SiblingWatch();

  /// From here on, a report is also claimed in `table`, which must live until the watch rests. Ranks that have started
  /// look there, also after the process that claimed it has ended.
  void claim_in(PhaseTable& table) { table_ = &table; }

  /// From here on it watches nothing. When this returns, it looks no more. If it rests already, nothing happens.
  void rest();

  /// Watches from anew, at rest or not, with other options but for the signals.
  void resume(Options options);

  /// Calls `late` on the thread after `time`, at rest or not, unless `clear_deadline` comes first, which blocks while a
  /// call is running. `late` must not throw. A pause of the process is none of the time.
  void set_deadline(std::chrono::duration<double> time, std::function<void()> late);
  void clear_deadline() { set_deadline({}, nullptr); }

 private:
  using Seconds = std::chrono::duration<double>;
  enum class Wake { tick, told };
  enum class Task { watch, rest, end };
  enum class How { gone, stopped };
  struct Trouble {
    int rank;
    How how;
    bool operator==(const Trouble&) const = default;
  };

  void run();
  void give(Task task);
  void stay_at_rest();
  void count_down(Seconds time);
  void begin();
  void look_around();
  void look_for_trouble(bool ends);
  void count_tick();
  SiblingView siblings(Look look = Look::at_all) const;
  std::set<int> ranks_expected_here() const;
  void remember_siblings();
  Wake wait();
  bool is_impatient_since(Seconds waited) const;
  Seconds until_impatient() const;
  void note_stopped();
  std::optional<Trouble> look() const;
  std::optional<int> whose_end() const;
  std::optional<int> only_missing(const SiblingView& view) const;
  std::optional<std::string> who_has_not_joined() const;
  void end_untold();
  bool is_interrupted() const;
  bool report(const std::string& sentence, int exit_code) const;
  std::string name_of(int rank) const;
  std::string waited_for(Seconds time) const;
  std::string sentence_about(const Trouble& trouble) const;
  std::string sentence_about_end(int rank) const;
  std::string sentence_about_others() const;
  void observe(const std::string& sentence);
  [[noreturn]] void end_for(const std::string& sentence) const;
  [[noreturn]] void end_when_told() const;
  [[noreturn]] void end_without_evidence() const;

  Options options_;
  std::atomic<PhaseTable*> table_;  ///< that of the options, or what came later; null if there is none
  bool launched_;
  pid_t launcher_ = ::getppid();
  Descriptor launcher_end_;         ///< readable then; none without a launcher
  bool reported_ = false;           ///< by another rank
  std::optional<Trouble> trouble_;  ///< of the last look
  Seconds next_look_{0};
  Seconds waited_{0};
  Seconds looked_at_{0};
  int ticks_ = 0;
  std::map<int, Seconds> stopped_;  ///< for how long a rank has been seen to be stopped
  std::set<std::string> observed_;  ///< what was said of stalls that do not end the job
  std::set<int> seen_;              ///< ranks seen since this watch's last gap
  std::optional<int> ended_;        ///< at the last look
  KeptSignals signals_;
  Descriptor wake_;  ///< readable when there is another task; none if there was no descriptor
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<Task> task_ = Task::watch;
  bool rests_ = false;
  Countdown deadline_;
  std::thread thread_;  ///< the last, as it uses the others
};

}  // namespace lockstep
