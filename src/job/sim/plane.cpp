#include "job/sim/plane.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "job/sim/job.hpp"

namespace lockstep::sim {

Plane::Plane(Job& job, std::string name, std::vector<int> members)
    : job_{job},
      name_{std::move(name)},
      members_{std::move(members)},
      next_(members_.size(), 0),
      inside_(members_.size()),
      letters_(members_.size()) {
  for (const int rank : members_) places_.emplace_back(rank, static_cast<int>(places_.size()));
  std::ranges::sort(places_);
}

int Plane::place_of(int rank) const {
  return std::ranges::lower_bound(places_, rank, {}, &std::pair<int, int>::first)->second;
}

std::vector<int> Plane::ranks_at(std::span<const int> places) const {
  std::vector<int> ranks;
  for (const int place : places) ranks.push_back(rank_at(place));
  return ranks;
}

bool Plane::have_all_come(const Collective& collective) const {
  return collective.arrived == static_cast<int>(members_.size());
}

void Plane::enter(int rank, std::string what) {
  inside_[index_of(rank)] = std::move(what);
  job_.enter(rank, *this);
}

void Plane::exit(int rank) {
  inside_[index_of(rank)].clear();
  job_.exit(rank, *this);
}

std::uint64_t Plane::start(int rank, std::string what, Bytes bytes, const Route& route) {
  enter(rank, what);
  return start_beside(rank, std::move(what), std::move(bytes), route);
}

std::uint64_t Plane::start_beside(int rank, std::string what, Bytes bytes, const Route& route) {
  job_.point(rank, what);
  const std::uint64_t number = next_[index_of(rank)]++;
  if (number == first_ + under_way_.size())
    under_way_.push_back({what, rank, decltype(Collective::arrivals)(members_.size())});
  Collective& collective = at(number);
  if (collective.what != what)
    job_.end(CommError{
        fmt::format("{} is in {}; {} is in {}: expected the same of every rank (collective #{} of the {} plane)",
                    job_.name(rank), what, job_.name(collective.first), collective.what, number + 1, name_)});
  const Time here = send(rank, collective, route);
  collective.arrivals[index_of(rank)] = Arrival{std::move(bytes), here};
  collective.last = std::max(collective.last, here);
  ++collective.arrived;
  // Who has started it and goes on may look for it.
  if (have_all_come(collective))
    for (const int member : members_) job_.tell_news(member, reaches(collective, member));
  std::erase_if(collective.waiters, [&](const Waiter& waiter) {
    const auto time = complete_at(collective, waiter);
    if (time) job_.wake(waiter.rank, *time);
    return time.has_value();
  });
  return number;
}

/// Returns when it has reached all others, but for messages to single ones.
Time Plane::send(int rank, Collective& collective, const Route& route) const {
  Network* const network = job_.network();
  if (!network) return job_.now() + job_.draw_latency();
  Traffic& traffic = network->of(rank);
  traffic.collectives += route.sent;
  if (!route.bytes_to) return job_.now() + route.length;
  const int ranks = static_cast<int>(members_.size()), own = place_of(rank);
  collective.reached.resize(members_.size());
  // Each rank begins with another one.
  for (int step = 1; step < ranks; ++step) {
    const int place = (own + step) % ranks;
    Time& reached = collective.reached[static_cast<std::size_t>(place)];
    for (std::int64_t left = route.bytes_to(place); left > 0; left -= route.longest_message)
      reached = std::max(reached, network->send(rank, rank_at(place), std::min(left, route.longest_message), job_.now(),
                                                route.is_of_mpi ? traffic.collectives : traffic.own));
  }
  return job_.now();
}

/// When what all ranks have brought has reached this one.
Time Plane::reaches(const Collective& collective, int rank) const {
  return collective.reached.empty() ? collective.last : std::max(collective.last, collective.reached[index_of(rank)]);
}

/// The time when the waiter has all that it needs; empty while some of it has not been sent.
std::optional<Time> Plane::complete_at(const Collective& collective, const Waiter& waiter) {
  switch (waiter.needs.from) {
    case Needs::From::nobody: return job_.now();
    case Needs::From::one: {
      const auto& arrival = collective.arrivals[index_of(waiter.needs.rank)];
      return arrival ? std::optional{arrival->here + job_.draw_latency()} : std::nullopt;
    }
    case Needs::From::everyone: break;
  }
  if (!have_all_come(collective)) return std::nullopt;
  // The last message of a collective reaches the ranks one after another.
  return reaches(collective, waiter.rank) + job_.draw_latency();
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

bool Plane::is_here(int rank, std::uint64_t number) const {
  return have_all_come(at(number)) && reaches(at(number), rank) <= job_.now();
}

const Bytes& Plane::brought(std::uint64_t collective, int from) const {
  return at(collective).arrivals[index_of(from)]->bytes;
}

void Plane::leave(int rank, std::uint64_t collective) {
  exit(rank);
  ++at(collective).left;
  while (!under_way_.empty() && under_way_.front().left == static_cast<int>(members_.size())) {
    under_way_.pop_front();
    ++first_;
  }
}

void Plane::tell(int rank, int to, std::uint64_t agreement, int round, const Rounds::Words& words) {
  Network& network = *job_.network();
  const int receiver = rank_at(to);
  const Time here = network.send(rank, receiver, sizeof words, job_.now(), network.of(rank).agreements);
  letters_[static_cast<std::size_t>(to)][{agreement, round}] = {words, here};
  job_.tell_news(receiver, here);
}

std::optional<Rounds::Words> Plane::hear(int rank, std::uint64_t agreement, int round) {
  auto& letters = letters_[index_of(rank)];
  const auto found = letters.find({agreement, round});
  if (found == letters.end() || found->second.here > job_.now()) return {};
  const Rounds::Words words = found->second.words;
  letters.erase(found);
  return words;
}

}  // namespace lockstep::sim
