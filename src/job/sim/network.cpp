#include "job/sim/network.hpp"

#include <algorithm>

namespace lockstep::sim {
namespace {

Time time_of(std::int64_t bytes, const Links::Link& link) {
  return Time{static_cast<Time::rep>(1e9 * static_cast<double>(bytes) / link.bytes_per_second)};
}

Time& at(std::vector<Time>& times, int number) {
  return times[static_cast<std::size_t>(number)];
}

}  // namespace

Network::Network(int ranks, int ranks_per_node, const Links& links)
    : links_{links},
      ranks_per_node_{ranks_per_node},
      traffic_(static_cast<std::size_t>(ranks)),
      rank_free_(traffic_.size()),
      wire_out_free_(traffic_.size()),
      wire_in_free_(traffic_.size()) {}

Time Network::send(int from, int to, std::int64_t bytes, Time now, Sent& sent) {
  sent += {1, bytes};
  Time& rank_free = at(rank_free_, from);
  rank_free = std::max(rank_free, now) + links_.overhead;
  if (node_of(from) == node_of(to)) {
    rank_free += time_of(bytes, links_.within);
    return rank_free + links_.within.latency;
  }
  const Time length = time_of(bytes, links_.between);
  Time& out_free = at(wire_out_free_, node_of(from));
  Time& in_free = at(wire_in_free_, node_of(to));
  out_free = std::max(out_free, rank_free) + length;
  in_free = std::max(in_free + length, out_free + links_.between.latency);
  return in_free;
}

Time Network::chain(const std::vector<int>& ranks, int messages, std::int64_t bytes) const {
  const auto [lowest, highest] = std::ranges::minmax(ranks);
  const Links::Link& link = node_of(lowest) == node_of(highest) ? links_.within : links_.between;
  return messages * (link.latency + links_.overhead) + time_of(bytes, link);
}

}  // namespace lockstep::sim
