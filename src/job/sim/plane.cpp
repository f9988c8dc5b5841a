#include "job/sim/plane.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "job/sim/job.hpp"

namespace lockstep::sim {
namespace {

/// When what the ranks have brought by now has reached all others.
template <class Arrivals>
Time last_of(const Arrivals& arrivals) {
  Time last{0};
  for (const auto& arrival : arrivals)
    if (arrival) last = std::max(last, arrival->here);
  return last;
}

}  // namespace

Plane::Plane(Job& job, std::string name, std::vector<int> members)
    : job_{job},
      name_{std::move(name)},
      members_{std::move(members)},
      next_(static_cast<std::size_t>(std::ranges::max(members_)) + 1, 0),
      inside_(next_.size()) {}

int Plane::place_of(int rank) const {
  return static_cast<int>(std::ranges::find(members_, rank) - members_.begin());
}

std::vector<int> Plane::ranks_at(std::span<const int> places) const {
  std::vector<int> ranks;
  for (const int place : places) ranks.push_back(rank_at(place));
  return ranks;
}

bool Plane::have_all_come(const Collective& collective) const {
  return collective.arrived == static_cast<int>(members_.size());
}

std::uint64_t Plane::start(int rank, std::string what, Bytes bytes) {
  inside_[static_cast<std::size_t>(rank)] = what;
  return start_beside(rank, std::move(what), std::move(bytes));
}

std::uint64_t Plane::start_beside(int rank, std::string what, Bytes bytes) {
  job_.point(rank, what);
  const std::uint64_t number = next_[static_cast<std::size_t>(rank)]++;
  if (number == first_ + under_way_.size())
    under_way_.push_back({what, rank, decltype(Collective::arrivals)(next_.size())});
  Collective& collective = at(number);
  if (collective.what != what)
    job_.end(CommError{
        fmt::format("{} is in {}; {} is in {}: expected the same of every rank (collective #{} of the {} plane)",
                    job_.name(rank), what, job_.name(collective.first), collective.what, number + 1, name_)});
  collective.arrivals[static_cast<std::size_t>(rank)] = Arrival{std::move(bytes), job_.now() + job_.draw_latency()};
  ++collective.arrived;
  // Who has started it and goes on may look for it.
  if (have_all_come(collective))
    for (const int member : members_) job_.tell_news(member, last_of(collective.arrivals));
  std::erase_if(collective.waiters, [&](const Waiter& waiter) {
    const auto time = complete_at(collective, waiter);
    if (time) job_.wake(waiter.rank, *time);
    return time.has_value();
  });
  return number;
}

/// The time when the waiter has all that it needs; empty while some of it has not been sent.
std::optional<Time> Plane::complete_at(const Collective& collective, const Waiter& waiter) {
  switch (waiter.needs.from) {
    case Needs::From::nobody: return job_.now();
    case Needs::From::one: {
      const auto& arrival = collective.arrivals[static_cast<std::size_t>(waiter.needs.rank)];
      return arrival ? std::optional{arrival->here + job_.draw_latency()} : std::nullopt;
    }
    case Needs::From::everyone: break;
  }
  if (!have_all_come(collective)) return std::nullopt;
  // The last message of a collective reaches the ranks one after another.
  return last_of(collective.arrivals) + job_.draw_latency();
}

void Plane::finish(int rank, std::uint64_t number, Needs needs) {
  Collective& collective = at(number);
  const Waiter waiter{rank, needs};
  const auto time = complete_at(collective, waiter);
  if (time && *time <= job_.now()) return;
  if (time) {
    job_.wake(rank, *time);
  } else {
    collective.waiters.push_back(waiter);
  }
  job_.wait(rank, collective.what);
}

bool Plane::is_here(std::uint64_t number) const {
  return have_all_come(at(number)) && last_of(at(number).arrivals) <= job_.now();
}

const Bytes& Plane::brought(std::uint64_t collective, int from) const {
  return at(collective).arrivals[static_cast<std::size_t>(from)]->bytes;
}

void Plane::leave(int rank, std::uint64_t collective) {
  inside_[static_cast<std::size_t>(rank)].clear();
  ++at(collective).left;
  while (!under_way_.empty() && under_way_.front().left == static_cast<int>(members_.size())) {
    under_way_.pop_front();
    ++first_;
  }
}

}  // namespace lockstep::sim
