#include "apps/lockstep-report/findings.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>

#include <fmt/format.h>

#include "apps/lockstep-report/json_members.hpp"
#include "core/cluster/counted.hpp"

namespace lockstep::report {
namespace {

using Sentences = std::vector<std::string>;

// Shares of the time that are worth a sentence.
constexpr double notable_lateness = 0.05, notable_part = 0.1, notable_waiting = 0.2, notable_queue = 0.1;

/// For the beginning of a sentence.
char ascii_upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

std::string percent(double share) {
  return share < 0.0995 ? fmt::format("{:.1f}%", 100 * share) : fmt::format("{:.0f}%", 100 * share);
}

/// The line of a failure began with the program's name on stderr.
std::string what_failed(const Event& failure) {
  constexpr std::string_view program = "lockstep: ";
  if (failure.text.empty()) return fmt::format("exit code {}", failure.exit_code);
  return failure.text.substr(failure.text.starts_with(program) ? program.size() : 0);
}

void tell_failures(const Run& run, Sentences& sentences) {
  if (!run.timeline) return;
  std::int64_t failures = 0;
  const Event* last = nullptr;
  for (const Event& event : run.timeline->events) {
    if (event.kind != "failure") continue;
    ++failures;
    last = &event;
  }
  if (last)
    sentences.push_back(fmt::format("{}{}: {}", counted(failures, "failure"), failures > 1 ? ", the last of them" : "",
                                    what_failed(*last)));
  if (run.timeline->starts > 1) sentences.push_back(fmt::format("the run was started {} times", run.timeline->starts));
}

/// A host whose ranks are all late by much the same is to blame, rather than each of them.
std::set<std::string> tell_late_hosts(const Run& run, Sentences& sentences) {
  struct Host {
    int ranks = 0;
    double least = 1, most = 0, sum = 0;
  };
  std::map<std::string, Host> hosts;
  for (const auto& [replica, rank] : run.metrics.parts.ranks()) {
    Host& host = hosts[rank.host];
    ++host.ranks;
    host.least = std::min(host.least, rank.late());
    host.most = std::max(host.most, rank.late());
    host.sum += rank.late();
  }
  std::set<std::string> late;
  for (const auto& [name, host] : hosts)
    if (host.ranks > 1 && host.least >= notable_lateness && 2 * host.least >= host.most) late.insert(name);
  if (late.size() == hosts.size()) return {};
  for (const std::string& name : late)
    sentences.push_back(
        fmt::format("host {}: the others waited {} of the time for its {} ranks, all of which were late", name,
                    percent(hosts[name].sum / hosts[name].ranks), hosts[name].ranks));
  return late;
}

void tell_late_ranks(const Run& run, Sentences& sentences) {
  const std::set<std::string> told = tell_late_hosts(run, sentences);
  std::vector<const PartSums::Rank*> late;
  for (const auto& [replica, rank] : run.metrics.parts.ranks())
    if (rank.late() >= notable_lateness && !told.contains(rank.host)) late.push_back(&rank);
  std::stable_sort(late.begin(), late.end(),
                   [](const auto* one, const auto* other) { return one->late() > other->late(); });
  constexpr std::size_t most = 4;
  for (std::size_t i = 0; i < std::min(most, late.size()); ++i) {
    const PartSums::Rank& rank = *late[i];
    const std::string mostly = rank.mostly();
    sentences.push_back(fmt::format("replica {} ({}, host {}): the others waited {} of the time for it{}", rank.replica,
                                    rank.name, rank.host, percent(rank.late()),
                                    mostly.empty() ? "" : ", mostly in " + mostly));
  }
  if (late.size() > most) sentences.push_back(fmt::format("the others waited for {} more ranks", late.size() - most));
}

/// Whether something else than the ranks has their processors. Ranks that have much less of that than others are left
/// out, and so are those that would wait for a late rank anyway.
bool tell_queues(const PartSums& parts, Sentences& sentences) {
  double least = 1, most = 0;
  bool some_are_late = false;
  for (const auto& [replica, rank] : parts.ranks()) {
    least = std::min(least, rank.queued());
    most = std::max(most, rank.queued());
    some_are_late |= rank.late() >= notable_lateness;
  }
  Sentences each;
  for (const auto& [replica, rank] : parts.ranks())
    if (rank.queued() >= std::max(notable_queue, most / 2) && (!some_are_late || rank.late() >= notable_lateness))
      each.push_back(fmt::format(
          "replica {} ({}, host {}) waited for a processor for {} of the time, because something else had it{}",
          rank.replica, rank.name, rank.host, percent(rank.queued()),
          some_are_late || parts.ranks().size() == 1 ? "" : "; the others waited for this replica in the sums"));
  if (each.size() < 2 || each.size() < parts.ranks().size())
    sentences.insert(sentences.end(), each.begin(), each.end());
  else
    sentences.push_back(fmt::format(
        "every rank waited for a processor for at least {} of the time: the hosts have too few", percent(least)));
  return !each.empty();
}

void tell_parts(const Run& run, Sentences& sentences) {
  const PartSums& parts = run.metrics.parts;
  if (parts.empty()) return;
  const auto tell = [&](const char* part, std::string_view what) {
    if (const double share = parts.least_share_of(part); share >= notable_part)
      sentences.push_back(fmt::format("{} took at least {} of the time on every rank", what, percent(share)));
  };
  tell("checkpoint", "checkpoints");
  tell("evaluation", "evaluations");
  tell("data", "loading data");
  if (tell_queues(parts, sentences)) return;  // ranks wait in the sums for one without a processor
  double blamed = 0;
  for (const auto& [replica, rank] : parts.ranks()) blamed += rank.late();
  if (const double waiting = parts.least_share_of("waiting"); waiting >= notable_waiting && blamed < notable_lateness)
    sentences.push_back(
        fmt::format("the ranks waited {} of the time, and no rank was late: the time goes into the sums between them",
                    percent(waiting)));
}

/// The mean time of a step between two fractions of the run.
double step_seconds(const Curves& train, double from, double to) {
  const auto& points = train.points();
  Curves::Range range;
  for (auto i = static_cast<std::size_t>(from * double(points.size())); i < std::size_t(to * double(points.size()));
       ++i)
    range.add(points[i].columns[train_step_seconds]);
  return range.mean();
}

void tell_speed(const Run& run, Sentences& sentences) {
  constexpr std::size_t least_points = 40;
  if (run.metrics.train.points().size() < least_points) return;
  const double before = step_seconds(run.metrics.train, 0.1, 0.35), after = step_seconds(run.metrics.train, 0.75, 1);
  constexpr double notable = 1.25;
  if (after > notable * before)
    sentences.push_back(fmt::format("steps became slower: {:.3g} ms each at first, {:.3g} ms in the last quarter",
                                    1000 * before, 1000 * after));
}

/// The mean training loss of the steps up to `step`, over as much as a tenth of the run.
double train_loss_until(const Metrics& metrics, std::int64_t step) {
  const std::int64_t window = std::max<std::int64_t>(1, metrics.steps / 10);
  Curves::Range range, first;
  for (const Curves::Point& point : metrics.train.points()) {
    const std::int64_t last = point.last.step;
    if (last <= step && last > step - window) range.add(point.columns[train_loss]);
    if (first.count == 0) first = point.columns[train_loss];
  }
  return range.count > 0 ? range.mean() : first.mean();
}

/// ", while the training loss fell from 0.5 to 0.1: …"; empty if it did not.
std::string told_overfitting(const Metrics& metrics, std::int64_t best_step) {
  const double then = train_loss_until(metrics, best_step), now = train_loss_until(metrics, metrics.steps);
  constexpr double notable = 0.95;
  if (!(now < notable * then)) return {};
  return fmt::format(
      ", while the training loss fell from {:.4g} to {:.4g}: the model overfits, and its weights of step {} are the "
      "best",
      then, now, best_step);
}

void tell_losses(const Run& run, Sentences& sentences) {
  const Metrics& metrics = run.metrics;
  if (metrics.not_finite)
    sentences.push_back(fmt::format("the loss of {} is not finite, first at step {}",
                                    counted(metrics.not_finite->steps, "step"), metrics.not_finite->first_step));
  const auto lowest = metrics.lowest_evaluation_loss;
  if (!lowest || !(lowest->loss > 0)) return;
  // A small rise is one only if it lasts, while the training goes on to learn.
  constexpr double notable = 1.1, notable_if_it_lasts = 1.02;
  constexpr std::int64_t lasts = 3;
  std::int64_t since = 0;
  for (const Curves::Point& point : metrics.evaluations.points())
    if (point.last.step > lowest->step) since += point.steps;
  const double rise = metrics.last_evaluation_loss / lowest->loss;
  const std::string overfitting = told_overfitting(metrics, lowest->step);
  if (rise > notable || (rise > notable_if_it_lasts && since >= lasts && !overfitting.empty()))
    sentences.push_back(fmt::format("the evaluation loss was lowest at step {} ({:.4g}), and is {:.4g} at the end{}",
                                    lowest->step, lowest->loss, metrics.last_evaluation_loss, overfitting));
}

/// The last batch of an epoch is often smaller, which does not matter while it is a rare one.
void tell_batches(const Run& run, Sentences& sentences) {
  const Curves::Range batch = run.metrics.train.total(train_batch);
  constexpr double notable = 0.9;
  if (batch.count > 0 && batch.mean() < notable * batch.greatest)
    sentences.push_back(fmt::format("batches differ: {:.0f} to {:.0f} samples in a step, {:.4g} on average",
                                    batch.least, batch.greatest, batch.mean()));
}

bool says_nothing(const OrderedJson* value) {
  return !value || value->is_null() || value->empty() || *value == "" ||
         (value->is_structured() &&
          std::ranges::all_of(*value, [](const OrderedJson& each) { return says_nothing(&each); }));
}

/// Whether run.json has something in each of its `members`.
bool has_recorded(const Run& run, std::initializer_list<const char*> members) {
  return std::ranges::none_of(members, [&](const char* name) { return says_nothing(member(run.record, name)); });
}

/// "options, versions and data"
std::string listed(const Sentences& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

}  // namespace

Sameness sameness_of(const std::vector<Run>& runs) {
  Sentences known, unknown, without;
  const auto look_at = [&](const char* what, std::initializer_list<const char*> members) {
    bool is_known = true;
    for (const Run& run : runs) {
      if (has_recorded(run, members)) continue;
      is_known = false;
      if (std::ranges::find(without, run.name) == without.end()) without.push_back(run.name);
    }
    (is_known ? known : unknown).emplace_back(what);
  };
  look_at("options", {"options"});
  look_at("versions", {"lockstep", "mpi"});
  look_at("data", {"data"});
  Sameness same;
  if (!known.empty()) same.known = fmt::format("They have the same {}.", listed(known));
  if (!unknown.empty())
    same.unknown = fmt::format("Not known: whether they have the same {}, which {} not record.", listed(unknown),
                               listed(without) + (without.size() == 1 ? " does" : " do"));
  return same;
}

std::vector<std::string> findings_of(const Run& run) {
  Sentences sentences;
  tell_failures(run, sentences);
  tell_losses(run, sentences);
  tell_late_ranks(run, sentences);
  tell_parts(run, sentences);
  tell_speed(run, sentences);
  tell_batches(run, sentences);
  for (std::string& sentence : sentences) sentence.front() = ascii_upper(sentence.front());
  return sentences;
}

}  // namespace lockstep::report
