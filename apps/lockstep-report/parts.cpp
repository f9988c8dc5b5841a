#include "apps/lockstep-report/parts.hpp"

#include <algorithm>

#include "apps/lockstep-report/json_members.hpp"

namespace lockstep::report {
namespace {

constexpr std::size_t most_stretches = 256;

/// Halves their number.
void merge_neighbours(std::vector<PartSums::Stretch>& stretches) {
  for (std::size_t i = 0; i < stretches.size() / 2; ++i) {
    PartSums::Stretch merged = stretches[2 * i];
    const PartSums::Stretch& next = stretches[2 * i + 1];
    merged.last_step = next.last_step;
    merged.elapsed += next.elapsed;
    for (const auto& [replica, seconds] : next.late_seconds) merged.late_seconds[replica] += seconds;
    stretches[i] = std::move(merged);
  }
  stretches.resize(stretches.size() / 2);
}

}  // namespace

std::string PartSums::Rank::mostly() const {
  const auto most = std::max_element(late_by_part.begin(), late_by_part.end(),
                                     [](const auto& one, const auto& other) { return one.second < other.second; });
  return most == late_by_part.end() ? "" : most->first;
}

void PartSums::add(const OrderedJson& line) {
  const double elapsed = seconds_at(line, "seconds");
  const OrderedJson* const ranks = member(line, "ranks");
  if (!(elapsed > 0) || !ranks || !ranks->is_array()) return;
  Stretch stretch{integer_at(line, "step").value_or(0), elapsed, {}};
  for (const OrderedJson& entry : *ranks) {
    const auto replica = integer_at(entry, "replica");
    if (!replica) continue;
    Rank& rank = ranks_[*replica];
    rank.replica = *replica;
    rank.name = text_at(entry, "name");
    rank.host = text_at(entry, "host");
    rank.elapsed += elapsed;
    rank.steps += std::max(std::int64_t{0}, integer_at(line, "steps").value_or(0));
    for (std::size_t part = 0; part < names.size(); ++part) rank.seconds[part] += seconds_at(entry, names[part]);
    rank.queued_seconds += seconds_at(entry, "queued");
    const double late = std::min(1.0, seconds_at(entry, "late")) * elapsed;
    if (late == 0) continue;
    rank.late_seconds += late;
    if (const std::string mostly = text_at(entry, "mostly"); !mostly.empty()) rank.late_by_part[mostly] += late;
    stretch.late_seconds[*replica] = late;
  }
  if (stretches_.size() == most_stretches) merge_neighbours(stretches_);
  stretches_.push_back(std::move(stretch));
}

double PartSums::least_share_of(std::string_view part) const {
  const auto index = static_cast<std::size_t>(std::find(names.begin(), names.end(), part) - names.begin());
  double least = ranks_.empty() ? 0 : 1;
  for (const auto& [replica, rank] : ranks_) least = std::min(least, rank.seconds[index] / rank.elapsed);
  return least;
}

}  // namespace lockstep::report
