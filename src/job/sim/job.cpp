#include "job/sim/job.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/exit_code.hpp"
#include "core/base/stream.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/exceptions.hpp"
#include "core/control/tag.hpp"
#include "core/watch/wait_chain.hpp"
#include "job/sim/planes.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::sim {
namespace {

Time later(Time time, Time length) {
  return length < Time::max() - time ? time + length : Time::max();
}

Options checked(Options options) {
  if (options.ranks < 1) throw InvalidArgument{fmt::format("sim: {} ranks: expected one or more", options.ranks)};
  if (options.ranks_per_node < 1)
    throw InvalidArgument{fmt::format("sim: {} ranks a node: expected one or more", options.ranks_per_node)};
  require_valid(options.reductions);
  if (options.stall_timeout <= Time{0}) throw InvalidArgument{"sim: the stall timeout: expected a positive time"};
  if (options.longest_latency < Time{0}) throw InvalidArgument{"sim: the longest latency: expected no negative time"};
  for (const Options::Fault& fault : options.faults)
    if (fault.rank < 0 || fault.rank >= options.ranks)
      throw InvalidArgument{
          fmt::format("sim: a fault on replica {}: expected one of 0 to {}", fault.rank, options.ranks - 1)};
  return options;
}

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string seconds(Time time) {
  return fmt::format("{:g} s", std::chrono::duration<double>{time}.count());
}

template <class E>
E with_words(const E&, const std::string& words) {
  return E{words};
}
PeerError with_words(const PeerError& error, const std::string& words) {
  return {error.rank(), words, error.cause()};
}
DriftError with_words(const DriftError& error, const std::string& words) {
  return {words, error.drift()};
}
AuditError with_words(const AuditError& error, const std::string& words) {
  return {words, error.finding()};
}

/// Throws `failure`, with `job` in its message if its type is E itself; returns if it is not.
template <class E>
void rethrow_if(const std::exception_ptr& failure, const std::string& job) {
  try {
    std::rethrow_exception(failure);
  } catch (const E& error) {
    if (typeid(error) == typeid(E)) throw with_words(error, fmt::format("{} ({})", error.what(), job));
  } catch (...) {
  }
}

/// Throws `failure` so that whoever sees it learns of `job`.
[[noreturn]] void rethrow_with(const std::string& job, const std::exception_ptr& failure, const std::string& text) {
  const auto try_all = [&]<class... E>() { (rethrow_if<E>(failure, job), ...); };
  try_all.template operator()<PeerError, MismatchError, StallError, CommError, DriftError, AuditError, InvalidArgument,
                              ContextError, ConfigError, CheckpointError, DeviceError, Error>();
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    write_to_stderr(fmt::format("{}: {}\n", job, text));
    throw;
  }
}

}  // namespace

Job::Job(Options options, std::function<void(Strategy&, int)> body, Network* network)
    : options_{checked(std::move(options))},
      body_{std::move(body)},
      network_{network},
      tasks_{ClusterSpec::one_task_per_rank(options_.ranks), options_.ranks},
      names_{options_.ranks, [this](int rank) { return tasks_.describe_replica(rank, "sim"); }},
      residences_{options_.ranks,
                  [this](int rank) {
                    return lockstep::Job::Residence{to_string(tasks_.task_of(rank)), "sim"};
                  }},
      ranks_(static_cast<std::size_t>(options_.ranks)),
      scheduler_{options_.ranks, options_.seed, *this},
      control_{*this, "control", all_of(options_.ranks)},
      data_{*this, "data", all_of(options_.ranks)} {
  std::vector<int> nodes;
  for (int rank = 0; rank < options_.ranks; ++rank) nodes.push_back(rank / options_.ranks_per_node);
  nodes_ = std::move(nodes);
}

void Job::run() {
  for (const Options::Fault& fault : options_.faults)
    if (fault.time != Options::Fault::no_time) scheduler_.call(fault.time, [this, &fault] { strike(fault); });
  scheduler_.run([this](int rank) { play(rank); });
  // A fault that no rank was left to notice.
  if (!over_ && !blows_.empty()) notice(blows_.front());

  std::exception_ptr failure;
  std::string text;
  if (over_) {
    failure = over_->exception;
    text = over_->text;
  } else if (agreed_) {
    const auto threw = [](const Rank& rank) { return rank.outcome != nullptr; };
    const Rank& blamed = of(agreed_->rank);
    failure = threw(blamed) ? blamed.outcome : std::ranges::find_if(ranks_, threw)->outcome;
    text = agreed_->line.substr(std::string_view{"lockstep: "}.size());
  }
  if (!failure) return;
  const std::string job =
      fmt::format("sim: seed {}, {} rank{}", options_.seed, options_.ranks, options_.ranks == 1 ? "" : "s");
  if (!options_.report) rethrow_with(job, failure, text);
  options_.report(fmt::format("{}: {}", job, text));
  std::rethrow_exception(failure);
}

/// A rank, from its beginning to its end.
void Job::play(int rank) {
  const Current current{*this, rank};
  try {
    take_part(rank);
  } catch (const Unwind&) {
    throw;
  } catch (...) {
    if (!over_) fail(rank, std::current_exception());
  }
}

/// Does what Runtime and run_program do. Throws if the job is over.
void Job::take_part(int rank) {
  const auto job =
      std::make_shared<lockstep::Job>(make_channel(control_, rank), names_,
                                      [this, rank](const std::exception_ptr& exception) { end_by(rank, exception); });
  job->set_nodes(nodes_);
  job->set_residences(residences_);
  job->set_time({.now = [this] { return BusyClock::Time{now()}; },
                 .sleep = sim::sleep,
                 .run_delay = [] { return std::chrono::nanoseconds{}; }});
  job->forbid_threads();
  job->progress().set_wait_for_news([this, rank] { wait_for_news(rank); });
  struct Shown {
    const lockstep::Job*& job;
    ~Shown() { job = nullptr; }
  } const shown{of(rank).job = job.get()};
  ReplicaGroup group{job, make_communicator(data_, rank)};
  group.set_device_names([this](int each) { return tasks_.device_name(each, DeviceKind::cpu); });
  Strategy strategy = strategy_on(group, options_.reductions);
  const auto succeeds = [&](const auto& part) {
    try {
      part();
      return true;
    } catch (const Unwind&) {
      throw;
    } catch (...) {
      after(rank, std::current_exception());
      return false;
    }
  };
  (void)succeeds([&] { body_(strategy, rank); });
  const auto leave = [&] { job->meeting().leave_job(Here::current(), bool{of(rank).outcome}); };
  while (!succeeds(leave)) continue;
}

/// `exception` left the rank's part of the job. Throws if it ends the job.
void Job::after(int rank, const std::exception_ptr& exception) {
  throw_if_over(rank);
  if (!of(rank).outcome) of(rank).outcome = exception;
  const auto known = of(rank).job->known(exception);
  if (!known) end_by(rank, exception);
  if (!agreed_) agreed_ = *known;
}

void Job::end(End end) {
  over_ = std::move(end);
  trace(fmt::format("the job is over: {}", over_->text));
  scheduler_.wake_all();
}

void Job::fail(int rank, const std::exception_ptr& exception) {
  const std::string text = fmt::format("{} failed: {}", name(rank), message_of(exception));
  end({exception, std::make_exception_ptr(PeerError{rank, text, exit_code_of(exception)}), rank, text});
}

void Job::end_by(int rank, const std::exception_ptr& exception) {
  if (scheduler_.is_unwinding(rank)) throw Unwind{};
  if (!over_) fail(rank, exception);
  throw_end(rank);
}

void Job::throw_if_over(int rank) const {
  if (over_) throw_end(rank);
}

void Job::throw_end(int rank) const {
  std::rethrow_exception(over_->for_others && rank != over_->culprit ? over_->for_others : over_->exception);
}

Time Job::draw_latency() {
  const auto longest = static_cast<std::uint64_t>(options_.longest_latency.count());
  const std::uint64_t factor = scheduler_.draw(64) == 0 ? 100 : 1;
  return Time{static_cast<Time::rep>(scheduler_.draw(longest * factor + 1))};
}

/// The beginning of every scheduling point.
void Job::pass(int rank) {
  if (scheduler_.is_unwinding(rank)) throw Unwind{};
  throw_if_over(rank);
  const std::uint64_t point = of(rank).points++;
  for (const Options::Fault& fault : options_.faults) {
    if (fault.rank != rank || fault.point != point) continue;
    strike(fault);
    scheduler_.pause(rank);  // forever
  }
}

void Job::point(int rank, std::string_view what) {
  pass(rank);
  // Now and then it takes some time to get there, while messages of others travel.
  if (scheduler_.draw(4) == 0) {
    scheduler_.wake(rank, later(now(), draw_latency()));
    scheduler_.wait(rank);
  } else {
    scheduler_.pause(rank);
  }
  trace(rank, what);
  throw_if_over(rank);
}

void Job::wait(int rank, std::string_view what) {
  pass(rank);
  const MeetingPoint* const meeting = meeting_of(rank);
  if (is_meeting(rank) || (meeting && meeting->sum())) of(rank).meets_since = of(rank).met = now();
  scheduler_.wait(rank);
  of(rank).meets_since.reset();
  if (options_.trace) trace(rank, fmt::format("done with {}", what));
  throw_if_over(rank);
}

void Job::sleep(int rank, Time length) {
  pass(rank);
  scheduler_.wake(rank, later(now(), length));
  scheduler_.wait(rank);
  trace(rank, "awake");
  throw_if_over(rank);
}

void Job::wait_for_news(int rank) {
  pass(rank);
  Rank& self = of(rank);
  const MeetingPoint* const meeting = meeting_of(rank);
  if (meeting && (meeting->started() || is_meeting(rank))) {
    if (std::exchange(self.waits_at, meeting->waits_at()) != meeting->waits_at()) self.waits_since = now();
    self.meets_since = self.met = self.waits_since;
  }
  self.waits_for_news = true;
  if (!self.news.empty()) scheduler_.wake(rank, std::ranges::min(self.news));
  scheduler_.wait(rank);
  self.waits_for_news = false;
  self.meets_since.reset();
  std::erase_if(self.news, [this](Time time) { return time <= now(); });
  throw_if_over(rank);
}

void Job::tell_news(int rank, Time at) {
  Rank& self = of(rank);
  const bool is_first = std::ranges::none_of(self.news, [at](Time time) { return time <= at; });
  // One that is overdue stands for all.
  if (std::erase_if(self.news, [this](Time time) { return time <= now(); }) > 0) self.news.push_back(now());
  self.news.push_back(at);
  if (self.waits_for_news && is_first) scheduler_.wake(rank, at);
}

void Job::strike(const Options::Fault& fault) {
  if (over_ || !scheduler_.is_live(fault.rank)) return;
  const bool dies = fault.kind == Options::Fault::Kind::die;
  trace(fault.rank, dies ? "dies" : "stops");
  const Time until_noticed = !dies ? options_.stall_timeout : network_ ? network_->links().notice : draw_latency();
  blows_.push_back({fault, later(now(), until_noticed), describe(snapshot(fault.rank))});
  scheduler_.park(fault.rank);
  scheduler_.call(blows_.back().noticed, [this, blow = blows_.back()] { notice(blow); });
}

/// Ends the job as a watchdog does for a rank that is gone or has stopped.
void Job::notice(const Blow& blow) {
  const int rank = blow.fault.rank;
  std::string text;
  switch (blow.fault.kind) {
    case Options::Fault::Kind::die:
      text = fmt::format("{} is gone: its process ended; it {}", name(rank), blow.was);
      return end_for_all(PeerError{rank, text});
    case Options::Fault::Kind::stop:
      text = fmt::format("{} has stopped: no sign of life for {}; it {}", name(rank), seconds(options_.stall_timeout),
                         blow.was);
      if (const std::string others = who_is_where(); !others.empty()) text += "; " + others;
      return end_for_all(StallError{text});
  }
}

/// Finds a rank that runs, but that others have waited for too long.
void Job::before(Time next) {
  if (over_ || next < options_.stall_timeout) return;
  std::vector<int> by_time;
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (of(rank).meets_since && next >= later(*of(rank).meets_since, options_.stall_timeout)) by_time.push_back(rank);
  std::ranges::stable_sort(by_time, {}, [this](int rank) { return *of(rank).meets_since; });
  for (const int waiting : by_time) {
    const MeetingPoint& here = *meeting_of(waiting);
    for (const int late : here.members().ranks.empty() ? all_of(options_.ranks) : here.members().ranks) {
      const MeetingPoint* const there = of(late).job ? of(late).job->meeting_of(here.members().key) : nullptr;
      if (!scheduler_.is_live(late) || (there && there->came_to() >= here.waits_at())) continue;
      // Who has nothing more to do waits for those that still work with each other.
      if (here.last().kind == TagKind::leave && next < later(of(late).met, options_.stall_timeout)) continue;
      scheduler_.move_to(later(*of(waiting).meets_since, options_.stall_timeout));
      return end_for_all(StallError{why_late(waiting, late)});
    }
  }
}

/// `waiting` has waited for `late` for too long.
std::string Job::why_late(int waiting, int late) const {
  const RowAt row_at = [this](int rank) { return snapshot(rank); };
  const WaitChain chain = follow_waits(row_at, options_.ranks, waiting, late);
  const double timeout = std::chrono::duration<double>{options_.stall_timeout}.count();
  if (chain.is_circle) return circle_sentence(chain, row_at, names_.all(), timeout);
  // What becomes of a rank that has died or stopped is found without this.
  const bool runs = scheduler_.is_live(chain.cause());
  const int cause = runs ? chain.cause() : late, waits = runs ? chain.waits_for_cause() : waiting;
  return late_sentence(name(cause), row_at(waits).last, timeout, row_at(cause));
}

void Job::stuck() {
  if (!blows_.empty()) {
    const Blow first = *std::ranges::min_element(blows_, {}, [](const Blow& blow) { return blow.noticed; });
    scheduler_.move_to(first.noticed);
    return notice(first);
  }
  end_for_all(StallError{who_is_where()});
}

Plane& Job::split(const Plane& from, std::uint64_t key, const std::vector<int>& members) {
  return splits_.try_emplace({&from, key, members}, *this, from.name(), members).first->second;
}

void Job::enter(int rank, const Plane& plane) {
  std::vector<const Plane*>& inside = of(rank).inside;
  if (std::ranges::find(inside, &plane) == inside.end()) inside.insert(inside.begin(), &plane);
}

void Job::exit(int rank, const Plane& plane) {
  std::erase(of(rank).inside, &plane);
}

/// Where the rank waits for others, or else where all meet; null before the job exists, and after.
const MeetingPoint* Job::meeting_of(int rank) const {
  if (!of(rank).job) return nullptr;
  const auto meetings = of(rank).job->meetings();
  const auto waiting = std::ranges::find_if(meetings, &MeetingPoint::is_waiting);
  return waiting == meetings.end() ? meetings.front() : *waiting;
}

/// The collective of that plane, or of one that split off from it, in which the rank is; empty if it is in none.
const std::string& Job::inside(const Plane& plane, int rank) const {
  const auto found = std::ranges::find(of(rank).inside, plane.name(), [](const Plane* each) { return each->name(); });
  return found == of(rank).inside.end() ? plane.inside(rank) : (*found)->inside(rank);
}

PhaseTable::Snapshot Job::snapshot(int rank) const {
  PhaseTable::Snapshot snapshot;
  snapshot.phase = is_meeting(rank) ? Phase::meeting : Phase::computing;
  if (const MeetingPoint* const meeting = meeting_of(rank)) {
    if (meeting->sum() || meeting->started()) snapshot.phase = Phase::meeting;
    snapshot.meeting = of(rank).job->meetings().front()->came_to();
    snapshot.group = meeting->members().key;
    std::size_t shown = 0;
    for (const MeetingPoint* const each : of(rank).job->meetings().subspan(1))
      if (shown < snapshot.groups.size()) snapshot.groups[shown++] = {each->members().key, each->came_to()};
    if (meeting->started()) snapshot.waits_at = meeting->waits_at();
    snapshot.last = meeting->sum() ? *meeting->sum() : meeting->started() ? *meeting->started() : meeting->last();
    snapshot.position = meeting->position();
  }
  return snapshot;
}

/// "replica 2 (worker:2, host sim) is in all_gather of f32[12]; replicas 0, 1, 3 have finished the step": the ranks
/// that wait or have left, with those to blame first, as in a verdict.
std::string Job::who_is_where() const {
  struct Group {
    std::vector<int> ranks;
    Where where;
  };
  std::vector<Group> groups;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (scheduler_.is_parked(rank)) continue;
    Where where = where_is(rank);
    auto group = std::ranges::find(groups, where, &Group::where);
    if (group == groups.end()) group = groups.insert(group, {{}, std::move(where)});
    group->ranks.push_back(rank);
  }
  std::ranges::sort(groups, [](const Group& a, const Group& b) {
    return a.ranks.size() != b.ranks.size() ? a.ranks.size() < b.ranks.size() : a.ranks.front() > b.ranks.front();
  });
  std::vector<std::string> clauses;
  for (const auto& [ranks, where] : groups)
    clauses.push_back(
        ranks.size() == 1
            ? fmt::format("{} {} {}", name(ranks.front()), where.has_done ? "has" : "is", where.what)
            : fmt::format("replicas {} {} {}", fmt::join(ranks, ", "), where.has_done ? "have" : "are", where.what));
  return fmt::format("{}", fmt::join(clauses, "; "));
}

Job::Where Job::where_is(int rank) const {
  const MeetingPoint* const meeting = meeting_of(rank);
  if (!meeting) return {true, "left the job"};
  if (const Tag* const started = meeting->started()) return {false, "at " + describe(*started)};
  const bool has_met = meeting->meetings() > 0;
  const std::string last = has_met ? describe(meeting->last()) : "the start of the job";
  if (!is_meeting(rank)) return {false, fmt::format("in {} after {}", inside(data_, rank), last)};
  if (has_met && meeting->last().kind == TagKind::close) return {true, "finished the step"};
  if (has_met && meeting->last().kind == TagKind::leave) return {true, "finished the job"};
  return {false, "at " + last};
}

void Job::trace(std::string_view line) const {
  if (options_.trace) options_.trace(fmt::format("{} ns: {}", now().count(), line));
}

void Job::trace(int rank, std::string_view what) const {
  if (!options_.trace) return;
  const MeetingPoint* const meeting = meeting_of(rank);
  const bool meets = meeting && meeting->meetings() > 0 && is_meeting(rank);
  trace(fmt::format("replica {}: {}{}", rank, what, meets ? " for " + describe(meeting->last()) : ""));
}

}  // namespace lockstep::sim
