#include "core/watch/wait_chain.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/control/names.hpp"

namespace lockstep {
namespace {

/// The lowest rank that is known not to have come to where `waiting` waits.
std::optional<int> awaited_by(int waiting, const RowAt& row, int rows) {
  const PhaseTable::Snapshot here = row(waiting);
  if (here.phase != Phase::meeting) return std::nullopt;
  for (int other = 0; other < rows; ++other) {
    const PhaseTable::Snapshot there = row(other);
    if (other != waiting && there.shows(here.group) && *there.met_in(here.group) < here.met_last()) return other;
  }
  return std::nullopt;
}

}  // namespace

WaitChain follow_waits(const RowAt& row, int rows, int waiting, int late) {
  WaitChain chain{{waiting, late}};
  while (const auto next = awaited_by(chain.rows.back(), row, rows)) {
    const auto met = std::ranges::find(chain.rows, *next);
    if (met != chain.rows.end()) {
      WaitChain circle{{met, chain.rows.end()}, true};
      std::ranges::rotate(circle.rows, std::ranges::min_element(circle.rows));
      return circle;
    }
    chain.rows.push_back(*next);
  }
  return chain;
}

std::string circle_sentence(const WaitChain& circle, const RowAt& row, std::span<const std::string> names,
                            double seconds) {
  std::vector<std::string> places;
  for (const int rank : circle.rows)
    places.push_back(fmt::format("{} {}", names[static_cast<std::size_t>(rank)], describe(row(rank))));
  return fmt::format(
      "{} have waited for each other for {:g} s: {}; expected every rank to block in its groups in one order",
      detail::named_by_first(circle.rows, names), seconds, fmt::join(places, "; "));
}

}  // namespace lockstep
