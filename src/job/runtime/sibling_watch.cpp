#include "job/runtime/sibling_watch.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/host_name.hpp"
#include "core/base/open_line.hpp"
#include "core/base/start_thread.hpp"
#include "core/watch/report_claim.hpp"
#include "job/runtime/launcher.hpp"
#include "job/runtime/observed_stall.hpp"

namespace lockstep {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr Seconds tick{0.05};
constexpr int ticks_a_claim = 5;  // between looks for one
constexpr Seconds gap{0.5};
constexpr Seconds between_looks{0.25};
// mpirun tells one rank after the other to end, and they look at each other then.
constexpr Seconds until_all_have_looked{0.5};

/// Without memory for a look, the next may have some.
template <class Look>
void try_to(Look&& look) {
  try {
    look();
  } catch (const std::exception&) {
  }
}

void sleep(Seconds time) {
  std::this_thread::sleep_for(time);
}

}  // namespace

SiblingWatch::SiblingWatch(Options options)
    : options_{std::move(options)},
      table_{options_.table},
      launched_{rank_from_launcher().has_value()},
      launcher_end_{launched_ ? static_cast<int>(::syscall(SYS_pidfd_open, launcher_, 0)) : -1},
      signals_{options_.signals},
      wake_{::eventfd(0, EFD_CLOEXEC)} {
  begin();
  thread_ = start_thread("that watches the ranks while MPI starts and ends", [this] { run(); });
}

SiblingWatch::~SiblingWatch() {
  give(Task::end);
  thread_.join();
}

void SiblingWatch::rest() {
  if (task_ == Task::rest) return;
  give(Task::rest);
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return rests_; });
}

void SiblingWatch::resume(Options options) {
  rest();  // a job that fails early ends while it is still being watched
  options_ = std::move(options);
  table_ = options_.table;
  begin();
  give(Task::watch);
}

void SiblingWatch::give(Task task) {
  {
    const std::lock_guard lock{mutex_};
    task_ = task;
    if (task == Task::watch) rests_ = false;
  }
  changed_.notify_all();
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void SiblingWatch::set_deadline(std::chrono::duration<double> time, std::function<void()> late) {
  {
    const std::lock_guard lock{mutex_};
    deadline_.set(time, std::move(late));
  }
  changed_.notify_all();
}

void SiblingWatch::stay_at_rest() {
  std::unique_lock lock{mutex_};
  rests_ = true;
  changed_.notify_all();
  if (!deadline_.is_set()) return changed_.wait(lock, [this] { return task_ != Task::rest || deadline_.is_set(); });
  const auto before = std::chrono::steady_clock::now();
  changed_.wait_for(lock, tick / 5, [this] { return task_ != Task::rest; });
  lock.unlock();
  count_down(std::chrono::steady_clock::now() - before);
}

void SiblingWatch::count_down(Seconds time) {
  const std::lock_guard lock{mutex_};
  deadline_.pass(time);
}

/// Forgets what it has seen.
void SiblingWatch::begin() {
  reported_ = false;
  trouble_.reset();
  ended_.reset();
  waited_ = looked_at_ = Seconds{0};
  stopped_.clear();
  observed_.clear();
  seen_ = options_.known;
  next_look_ = until_impatient();
}

void SiblingWatch::run() {
  (void)::pthread_setname_np(::pthread_self(), thread_of_runtime);
  while (task_ != Task::end) {
    if (task_ == Task::rest) {
      stay_at_rest();
      continue;
    }
    try_to([this] { remember_siblings(); });
    const Wake wake = wait();
    if (task_ != Task::watch) continue;
    if (wake == Wake::told) end_when_told();
    if (launched_) try_to([this] { look_around(); });
  }
}

void SiblingWatch::look_around() {
  count_tick();
  end_untold();
  if (waited_ < next_look_) return;
  const bool impatient = is_impatient_since(waited_);
  next_look_ = waited_ + (impatient ? between_looks : until_impatient());
  note_stopped();
  if (impatient) look_for_trouble(options_.on_stall == RuntimeOptions::OnStall::end);
}

void SiblingWatch::look_for_trouble(bool ends) {
  // The others wait for this process and cannot tell that its own thread is stuck.
  if (ends && options_.is_late())
    end_for(fmt::format("{} is late: {}", name_of(*rank_from_launcher()), waited_for(options_.patience)));
  // A single look may catch a process that is just starting, or that is stopped for a moment.
  const auto before = std::exchange(trouble_, look());
  if (trouble_ && trouble_ == before) {
    if (!ends && trouble_->how == How::stopped) {
      observe(sentence_about(*trouble_));
    } else {
      end_for(sentence_about(*trouble_));
    }
  }
  // A rank that starts slowly may still come.
  if (!is_impatient_since(waited_ - options_.for_other_nodes)) return;
  const auto not_joined = who_has_not_joined();
  if (!ends) return observe(not_joined ? *not_joined : sentence_about_others());
  if (not_joined) end_for(*not_joined);
  end_without_evidence();
}

/// Counts ticks, like the watchdog: a job that is suspended as a whole is not late.
void SiblingWatch::count_tick() {
  waited_ += tick;
  // A daemon that loses mpirun ends at once, and may leave us behind.
  if (::getppid() != launcher_) end_without_launcher(Error::ExitCode::stall);
  static_assert(2 * ticks_a_claim * tick < until_claim_is_seen);
  if (++ticks_ % ticks_a_claim == 0) reported_ = reported_ || report_is_claimed();
}

SiblingView SiblingWatch::siblings(Look look) const {
  SiblingView all = look_at_siblings(look);
  if (!options_.only.empty())
    std::erase_if(all.processes, [&](const SiblingView::Process& each) { return !options_.only.contains(each.rank); });
  return all;
}

std::set<int> SiblingWatch::ranks_expected_here() const {
  std::set<int> ranks = ranks_if_all_are_here();
  if (!options_.only.empty()) std::erase_if(ranks, [&](int rank) { return !options_.only.contains(rank); });
  return ranks;
}

void SiblingWatch::remember_siblings() {
  const int all = ranks_on_this_node();
  if (!launched_ || (all > 0 && static_cast<int>(seen_.size()) >= all)) return;
  for (const auto& each : siblings(Look::for_others).processes) seen_.insert(each.rank);
}

SiblingWatch::Wake SiblingWatch::wait() {
  // MPI ends this process as soon as it sees that the launcher is gone, and would leave its shared memory.
  pollfd waits[]{{signals_.descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}, {launcher_end_.get(), POLLIN, 0}};
  const auto before = std::chrono::steady_clock::now();
  ::poll(waits, std::size(waits), static_cast<int>(tick / std::chrono::milliseconds{1}));
  const Seconds waited = std::chrono::steady_clock::now() - before;
  // This process was stopped itself, and may be told to end because of that.
  if (waited > gap) {
    seen_.clear();
    stopped_.clear();
  }
  count_down(waited);
  // SIGTERM first: on the way out, its message would be lost.
  if (waits[0].revents) return Wake::told;
  std::uint64_t tasks = 0;
  if (waits[1].revents) (void)!::read(wake_.get(), &tasks, sizeof tasks);
  return Wake::tick;
}

bool SiblingWatch::is_impatient_since(Seconds waited) const {
  return options_.patience.count() > 0 && waited >= options_.patience;
}

/// How long until the next look of a watch that is patient still. Each of n ranks looks at n.
SiblingWatch::Seconds SiblingWatch::until_impatient() const {
  return std::clamp(options_.patience / 8, between_looks, std::max(Seconds{2}, ranks_on_this_node() * tick));
}

/// Ranks that are seen to be stopped look after look. One that is stopped for less than the patience is no stall.
void SiblingWatch::note_stopped() {
  const Seconds since = waited_ - std::exchange(looked_at_, waited_);
  std::map<int, Seconds> stopped;
  if (options_.patience.count() > 0)
    for (const auto& each : siblings().processes)
      if (each.stopped) stopped[each.rank] = stopped_.contains(each.rank) ? stopped_[each.rank] + since : Seconds{0};
  stopped_ = std::move(stopped);
}

/// The lowest rank that is missing or has stopped.
std::optional<SiblingWatch::Trouble> SiblingWatch::look() const {
  const SiblingView view = siblings();
  std::set<int> expected = ranks_expected_here();
  expected.insert(seen_.begin(), seen_.end());
  if (const auto missing = view.missing(expected); !missing.empty() && !options_.may_be_gone())
    return Trouble{missing.front(), How::gone};
  // What happened between two looks is not known.
  const Seconds long_enough = options_.patience - until_impatient();
  const auto stopped = std::ranges::find_if(view.processes, [&](const SiblingView::Process& each) {
    const auto seen = stopped_.find(each.rank);
    return each.stopped && seen != stopped_.end() && seen->second >= long_enough;
  });
  return stopped == view.processes.end() ? std::nullopt : std::optional{Trouble{stopped->rank, How::stopped}};
}

/// mpirun tells the ranks to end when it has seen one of them end, or when it is told so itself. In the first case that
/// rank is missing. Another may have ended as soon as it was told; but then its end still shows, or two are missing.
std::optional<int> SiblingWatch::whose_end() const {
  if (!launched_) return std::nullopt;
  const SiblingView view = siblings();
  return view.nameless > 0 ? std::nullopt : only_missing(view);
}

std::optional<int> SiblingWatch::only_missing(const SiblingView& view) const {
  if (options_.may_be_gone()) return std::nullopt;
  const auto missing = view.missing(seen_);
  if (missing.size() != 1) return std::nullopt;
  // The missing rank may have ended because of one that has stopped.
  if (std::ranges::any_of(view.processes, &SiblingView::Process::stopped)) return std::nullopt;
  return missing.front();
}

/// MPICH's launcher may tell nobody that a rank has ended. A single look may see one that is just starting.
void SiblingWatch::end_untold() {
  if (nearest_launcher() != LauncherKind::pmi) return;
  const auto before = std::exchange(ended_, only_missing(siblings()));
  if (ended_ && ended_ == before) end_for(sentence_about_end(*ended_));
}

/// A process of this node that runs, and without which no rank can start.
std::optional<std::string> SiblingWatch::who_has_not_joined() const {
  if (options_.doing != "starting") return std::nullopt;
  for (const auto& each : siblings().processes) {
    const char* why = nullptr;
    switch (how_far(each.id)) {
      case Joined::unknown:
      case Joined::runtime: continue;
      case Joined::nothing: why = "it has not started MPI"; break;
      case Joined::mpi: why = "it has started MPI, but makes no Runtime"; break;
      case Joined::maybe_mpi: why = "it makes no Runtime"; break;
    }
    return fmt::format("world rank {} (host {}, program {}) has not joined the job: {}; {}", each.rank, host_name(),
                       program_of(each.id), why, waited_for(options_.patience + options_.for_other_nodes));
  }
  return std::nullopt;
}

/// Whether nobody's end can be the cause. At the end of the job all work is done, and it goes unsaid.
bool SiblingWatch::is_interrupted() const {
  if (options_.doing != "starting") return false;
  if (!launched_) return true;
  const std::set<int> expected = ranks_expected_here();
  const SiblingView view = siblings();
  return rank_from_launcher() == 0 && !expected.empty() && view.nameless == 0 && view.is_whole &&
         view.missing(expected).empty();
}

bool SiblingWatch::report(const std::string& sentence, int exit_code) const {
  const bool mine = !reported_ && claim_report(table_, exit_code);
  if (mine) print_last_line("lockstep: " + sentence, exit_code);
  return mine;
}

/// A guest's replicas have numbers of their own, which the system does not show.
std::string SiblingWatch::name_of(int rank) const {
  return fmt::format("{} {}", options_.only.empty() ? "replica" : "world rank", rank);
}

std::string SiblingWatch::waited_for(Seconds time) const {
  return fmt::format("it was waited for {:g} s while the job was {}", time.count(), options_.doing);
}

std::string SiblingWatch::sentence_about(const Trouble& trouble) const {
  // It may have been no rank of this program.
  if (trouble.how == How::gone && options_.doing == "starting")
    return fmt::format("world rank {} (host {}) has not joined the job: its process has ended; {}", trouble.rank,
                       host_name(), waited_for(options_.patience));
  return fmt::format("{} {}: {}", name_of(trouble.rank), trouble.how == How::stopped ? "has stopped" : "is gone",
                     waited_for(options_.patience));
}

std::string SiblingWatch::sentence_about_end(int rank) const {
  return fmt::format("{} is gone: its process ended while the job was {}", name_of(rank), options_.doing);
}

std::string SiblingWatch::sentence_about_others() const {
  const char* const others = !options_.only.empty()             ? "the other ranks of its runtime"
                             : !ranks_if_all_are_here().empty() ? "the other ranks"
                                                                : "ranks of other nodes";
  return fmt::format("{} waited {:g} s for {} while the job was {}", name_of(*rank_from_launcher()),
                     (options_.patience + options_.for_other_nodes).count(), others, options_.doing);
}

/// Said once, by the lowest rank here that runs. Ranks cannot tell each other anything yet, or any more.
void SiblingWatch::observe(const std::string& sentence) {
  if (!observed_.insert(sentence).second) return;
  const SiblingView all = siblings();
  const auto lowest = std::ranges::find_if_not(all.processes, &SiblingView::Process::stopped);
  if (lowest != all.processes.end() && lowest->rank == rank_from_launcher()) warn_of_stall(sentence);
}

void SiblingWatch::end_for(const std::string& sentence) const {
  constexpr int code = static_cast<int>(Error::ExitCode::stall);
  const bool mine = report(sentence, code);
  // Whichever rank ends first ends the job.
  signals_.let_through();
  sleep(mine ? until_claim_is_seen : Seconds{3});
  end_siblings_like_launcher(SiblingsToEnd::all);
  std::_Exit(code);
}

void SiblingWatch::end_when_told() const {
  constexpr int told = 128 + SIGTERM;
  try_to([&] {
    if (const auto rank = whose_end())
      report(sentence_about_end(*rank), told);
    else if (is_interrupted())
      report("interrupted while the job was starting", told);
  });
  if (launched_) sleep(until_all_have_looked);
  signals_.die();
}

void SiblingWatch::end_without_evidence() const {
  const SiblingView all = siblings();
  const int rank = *rank_from_launcher();
  const bool with_chief = all.processes.empty() || all.processes.front().rank == 0;
  if (!with_chief) sleep(Seconds{1});
  report(sentence_about_others(), static_cast<int>(Error::ExitCode::stall));
  const auto place = std::ranges::count_if(all.processes, [&](const auto& each) { return each.rank < rank; });
  end_this_side(Error::ExitCode::stall, with_chief ? Reach::chiefs_side : Reach::cut_off, static_cast<int>(place));
}

}  // namespace lockstep
