#include "core/watch/watch_view.hpp"

namespace lockstep {
namespace {

// How long each node with lower ranks alive has to report first.
constexpr WatchView::Seconds turn{0.5};

// How many times longer than planned a tick may count for.
constexpr double longest_tick = 4;

}  // namespace

WatchView::WatchView(const WatchedJob& job, const Observation& seen, WatchState& state)
    : job_{job},
      seen_{seen},
      state_{state},
      stall_ticks_{job.stall_ticks()},
      // mpirun does not wait for a busy machine's looks. But a process that was stopped has seen nothing meanwhile.
      took_{std::min(seen.took, longest_tick * job.tick)} {}

bool WatchView::runs_on(int node) const {
  if (shows_life(node)) return true;
  return std::ranges::any_of(job_.nodes.ranks_on(node),
                             [this](int row) { return is_counted(row) && peer(row).life.is_mute(); });
}

bool WatchView::shows_life(int node) const {
  if (node == job_.nodes.node_of(job_.row)) return true;
  return std::ranges::any_of(job_.nodes.ranks_on(node), [this](int row) { return is_counted(row) && !is_silent(row); });
}

/// Whether what is heard of that rank says anything about its node.
bool WatchView::is_counted(int row) const {
  const Row& seen = this->row(row);
  return seen.phase != Phase::absent && !seen.terminated && peer(row).refused == 0;
}

/// Once this rank was told to end, mpirun leaves it no time to wait for those that it has not heard since.
bool WatchView::may_report(int node) const {
  const auto has_beaten = [this](int row) { return peer(row).has_beaten_since_told; };
  return runs_on(node) && (!is_told() || std::ranges::any_of(job_.nodes.ranks_on(node), has_beaten));
}

/// Of the nodes that find something about a rank, those near it come first, and then the others; each in their order.
template <class Finds>
std::uint64_t WatchView::turn_about(int row, Finds finds) const {
  const int here = job_.nodes.node_of(job_.row), there = job_.nodes.node_of(row);
  const auto is_first = [&](int node) { return node == there || job_.nodes.are_near(node, there); };
  std::uint64_t before = 0;
  for (int node = 0; node < job_.nodes.nodes(); ++node) {
    const bool is_before = is_first(node) == is_first(here) ? node < here : is_first(node);
    before += is_before && may_report(node) && finds(node) ? 1 : 0;
  }
  return before * ticks_in(turn);
}

std::uint64_t WatchView::ticks_until_turn() const {
  std::uint64_t before = 0;
  for (int node = 0; node < job_.nodes.node_of(job_.row); ++node) before += may_report(node) ? 1 : 0;
  return before * ticks_in(turn);
}

std::uint64_t WatchView::ticks_until_turn_for(int row) const {
  return turn_about(row, [](int) { return true; });
}

std::uint64_t WatchView::ticks_until_turn_of_waiting_for(int row) const {
  const auto waits = [this](int each) { return this->row(each).phase == Phase::meeting; };
  return turn_about(row, [&](int node) { return std::ranges::any_of(job_.nodes.ranks_on(node), waits); });
}

}  // namespace lockstep
