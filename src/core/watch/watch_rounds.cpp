#include "core/watch/watch_rounds.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::vector<PhaseTable::Snapshot> rows_of(const PhaseTable& table) {
  std::vector<PhaseTable::Snapshot> rows;
  for (int row = 0; row < table.rows(); ++row) rows.push_back(table.read(row));
  return rows;
}

}  // namespace

WatchRounds::WatchRounds(PhaseTable& table, WatchedJob job, Heartbeats* heartbeats)
    : table_{table}, job_{std::move(job)}, heartbeats_{heartbeats}, state_{job_, rows_of(table)} {
  if (heartbeats_) heartbeats_->ask_after(3 * job_.ticks_a_heartbeat(), 3 * job_.ticks_a_round() + job_.ticks_to_all());
}

void WatchRounds::beat(Heartbeat heartbeat, bool told) {
  ++ticks_;
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

void WatchRounds::look_around(Observation& seen, const LookAt& look_at) const {
  seen.rows.resize(static_cast<std::size_t>(table_.rows()));
  const auto at = [&seen](int row) -> Observation::Row& { return seen.rows[static_cast<std::size_t>(row)]; };
  // This rank's row before those that it may wait for.
  this->look_at(table_.row(), at(table_.row()), look_at);
  const std::uint64_t group = at(table_.row()).seen.group;
  seen.members = group == 0 ? std::vector<int>{} : table_.members_of(group);
  // The group has gone meanwhile.
  if (group != 0 && seen.members.empty()) seen.members = {table_.row()};
  for (int row = 0; row < table_.rows(); ++row)
    if (row != table_.row()) this->look_at(row, at(row), look_at);
  seen.took = job_.tick;
  seen.reported = table_.reported();
  seen.warned = table_.warned();
  seen.wishes = table_.wishes();
  seen.lost = table_.lost();
  seen.host_answers.clear();
}

void WatchRounds::look_at(int row, Observation::Row& sight, const LookAt& look_at) const {
  sight.seen = table_.read(row);
  sight.stall_told = table_.is_observed(row);
  look_at(row, sight);
  if (!heartbeats_ || job_.nodes.same_node(row, table_.row())) return;
  sight.refused = heartbeats_->was_refused(row);
  sight.missed_datagrams = heartbeats_->missed_datagrams(row);
}

Judgement WatchRounds::judge(Observation& seen) const {
  while (true) {
    Judgement judged = judge_look(job_, seen, state_);
    if (!judged.unknown_host) return judged;
    const int row = *judged.unknown_host;
    seen.host_answers[job_.nodes.node_of(row)] = heartbeats_->host_answers(row);
  }
}

void WatchRounds::keep(Judgement& judged) {
  state_ = std::move(judged.state);
  if (judged.wishes) table_.wish(state_.wishes);
}

/// Ranks begin to wait for another at different times, so two nodes may find a stall when it is their turn. Each says
/// that it is about to speak, long enough for the others to hear it, and the lower one does.
WatchRounds::Turn WatchRounds::turn_to_report(const Finding& finding) {
  if (table_.reported()) return Turn::is_over;
  const std::uint64_t tick = ticks_since_found_++;
  if (tick < finding.turn_ticks) return Turn::waits;
  if (!job_.between_nodes() || finding.code != Error::ExitCode::stall) return Turn::reports;
  const int here = job_.nodes.node_of(job_.row);
  table_.note_speaker(here);
  const std::uint64_t since = tick - finding.turn_ticks, heard = job_.ticks_to_all() + job_.ticks_a_heartbeat();
  if (since < heard || (table_.speaker() != here && since < 4 * heard)) return Turn::waits;
  return Turn::reports;
}

bool WatchRounds::is_first_to_tell(const Finding& stall) {
  std::vector<int> rows = stall.rows;
  std::ranges::sort(rows);  // so that two ranks that speak at once do not silence each other
  if (!std::ranges::all_of(rows, [this](int row) { return table_.observe(row); })) return false;
  table_.show_observed(stall.rows.front());
  return true;
}

}  // namespace lockstep
