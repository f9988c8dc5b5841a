#include "core/watch/watch_rounds.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// How often rows are read that nobody has wished for. They come once at the start, and with the chief's news.
constexpr std::uint64_t looks_until_all = 16;

std::vector<Observation::Row> rows_of(const PhaseTable& table) {
  std::vector<Observation::Row> rows(static_cast<std::size_t>(table.rows()));
  const PhaseTable::Snapshot own = table.read(table.row());
  for (int row = 0; row < table.rows(); ++row) rows[static_cast<std::size_t>(row)].look(table.read(row), own);
  return rows;
}

}  // namespace

WatchRounds::WatchRounds(PhaseTable& table, WatchedJob job, Heartbeats* heartbeats)
    : table_{table}, job_{std::move(job)}, heartbeats_{heartbeats}, seen_{.rows = rows_of(table)}, state_{seen_.rows} {
  const int here = job_.nodes.node_of(job_.row);
  for (int row = 0; row < table.rows(); ++row)
    if (const int node = job_.nodes.node_of(row); node == here || job_.nodes.are_near(node, here)) near_.push_back(row);
  near_.shrink_to_fit();
  seen_.read = [this](int row) { return row == table_.row() ? seen_.own : table_.read(row); };
  seen_.host_answers = [this](int row) { return heartbeats_->host_answers(row); };
  seen_.fresh.reserve(seen_.rows.size());
  if (heartbeats_) heartbeats_->ask_after(3 * job_.ticks_a_heartbeat(), 3 * job_.ticks_a_round() + job_.ticks_to_all());
}

void WatchRounds::beat(Heartbeat heartbeat, bool told) {
  ++ticks_;
  if (std::exchange(was_told_, told) != told) looks_ = 0;
  if (std::exchange(speaker_, table_.speaker()) != speaker_) speaker_changed_ = ticks_;
  table_.beat();
  if (!heartbeats_) return;
  if (heartbeat != Heartbeat::when_due || ticks_ % job_.ticks_a_heartbeat() == 0) heartbeats_->send(table_);
  send_around(heartbeat, told);
  heartbeats_->expect_all(is_passing());
  heartbeats_->receive(table_);
}

/// Once at the start, as long as somebody wishes for the rows of all, and when the chief's line of progress begins or
/// ends.
void WatchRounds::send_around(Heartbeat heartbeat, bool told) {
  if (job_.nodes.are_all_near()) return;
  // A rank that was told to end has less than a second.
  const std::uint64_t round = told ? std::max<std::uint64_t>(2, job_.ticks_a_round() / 4) : job_.ticks_a_round();
  const bool is_round = is_passing() && (heartbeat == Heartbeat::last || ticks_ - sent_around_at_ >= round);
  const std::uint32_t line = table_.open_line();
  const bool is_news = sent_around_at_ == 0 || (job_.row == 0 && line != line_sent_around_);
  if (!is_round && !is_news) return;
  sent_around_at_ = ticks_;
  line_sent_around_ = line;
  heartbeats_->send_around(table_);
}

void WatchRounds::look_around(const LookAt& look_at) {
  // This rank's row before those that it may wait for.
  seen_.own = table_.read(table_.row());
  const std::uint64_t group = seen_.own.group;
  seen_.members = group == 0 ? std::vector<int>{} : table_.members_of(group);
  // The group has gone meanwhile.
  if (group != 0 && seen_.members.empty()) seen_.members = {table_.row()};
  seen_.wishes = table_.wishes();
  seen_.lost = table_.lost();
  seen_.fresh.resize(looks_at_all() ? seen_.rows.size() : near_.size());
  if (seen_.fresh.size() == near_.size())
    std::ranges::copy(near_, seen_.fresh.begin());
  else
    std::iota(seen_.fresh.begin(), seen_.fresh.end(), 0);
  for (const int row : seen_.fresh) this->look_at(row, row == table_.row() ? seen_.own : table_.read(row), look_at);
  seen_.took = job_.tick;
  seen_.reported = table_.reported();
  seen_.warned = table_.warned();
}

/// Rows of all come as long as somebody wishes for them, and matter if one that is not near is gone.
bool WatchRounds::looks_at_all() {
  return looks_++ % looks_until_all == 0 || is_passing() || seen_.wishes != state_.wishes || seen_.lost;
}

void WatchRounds::look_at(int row, PhaseTable::Snapshot now, const LookAt& look_at) {
  Observation::Row& sight = seen_.rows[static_cast<std::size_t>(row)];
  look_at(row, now, sight);
  sight.look(now, seen_.own);
  sight.stall_told = table_.is_observed(row);
  if (!heartbeats_ || job_.nodes.same_node(row, table_.row())) return;
  sight.refused = heartbeats_->was_refused(row);
  const auto missed = heartbeats_->missed_datagrams(row);
  sight.is_heard_here = missed.has_value();
  sight.missed_datagrams = missed.value_or(0);
}

Judgement WatchRounds::judge() {
  const Judgement judged = judge_look(job_, seen_, state_);
  if (judged.wishes) table_.wish(state_.wishes);
  return judged;
}

WatchRounds::Turn WatchRounds::turn_to_report(const Finding& finding) {
  if (table_.reported()) return Turn::is_over;
  const std::uint64_t tick = ticks_since_found_++;
  if (tick < finding.turn_ticks) return Turn::waits;
  if (finding.code != Error::ExitCode::stall || may_speak(tick - finding.turn_ticks)) return Turn::reports;
  return Turn::waits;
}

/// Ranks begin to wait for another at different times, so two nodes may have to speak at once. Each says that it is
/// about to, long enough for the others to hear it, and the lower one does. `since` says how long this node has known.
bool WatchRounds::may_speak(std::uint64_t since) {
  if (!job_.between_nodes()) return true;
  const std::uint64_t heard = job_.ticks_to_all() + job_.ticks_a_heartbeat(), patience = 4 * heard;
  const auto here = static_cast<std::uint16_t>(job_.nodes.node_of(job_.row) + 1);
  const PhaseTable::Speaker now = table_.speaker();
  // Who spoke then has spoken.
  const bool is_over = since == 0 && now == speaker_ && ticks_ - speaker_changed_ > patience;
  table_.note_speaker({static_cast<std::uint16_t>(now.round + (is_over ? 1 : 0)), here});
  return since >= heard && (table_.speaker().node == here || since >= patience);
}

bool WatchRounds::tells_of(const Finding& stall) {
  if (!may_speak(to_tell_.in(ticks_, stall.rows.front()))) return false;
  std::vector<int> rows = stall.rows;
  std::ranges::sort(rows);  // so that two ranks that speak at once do not silence each other
  if (!std::ranges::all_of(rows, [this](int row) { return table_.observe(row); })) return false;
  table_.show_observed(stall.rows.front());
  return true;
}

bool WatchRounds::warns() {
  return may_speak(to_warn_.in(ticks_, 0)) && table_.claim_warning();
}

}  // namespace lockstep
