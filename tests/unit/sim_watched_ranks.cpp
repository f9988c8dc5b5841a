// Watchdogs of many nodes in virtual time: one rank says who failed, in time, on any number of nodes.
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "job/sim/watched_ranks.hpp"

using lockstep::sim::WatchedRanks;
using Fault = WatchedRanks::Fault;
using Seconds = WatchedRanks::Seconds;

namespace {

struct Expected {
  Fault fault;
  double at_least;  ///< seconds after the fault
  double at_most;
  const char* words;
};

}  // namespace

TEST_CASE("of many nodes, one rank names the one that fails, within the stall timeout and 5 s, whatever the network") {
  const auto [nodes, ranks_a_node, loss] =
      GENERATE(table<int, int, double>({{2, 2, 0.0}, {9, 1, 0.1}, {33, 1, 0.05}, {24, 3, 0.0}}));
  const auto expected = GENERATE(Expected{Fault::dies, 0, 5, " is gone: "},
                                 Expected{Fault::stops, 1.9, 7, " has stopped: no sign of life for 2 s"},
                                 Expected{Fault::is_late, 1.9, 7, " is late: "},
                                 Expected{Fault::cut_off, 1.9, 7, " cannot be reached: "});
  const std::uint64_t seed = static_cast<std::uint64_t>(nodes) * 7 + static_cast<std::uint64_t>(expected.fault);
  WatchedRanks job{
      {.nodes = nodes, .ranks_a_node = ranks_a_node, .stall_timeout = Seconds{2}, .loss = loss, .seed = seed}};
  job.run_for(Seconds{1});
  REQUIRE(job.lines().empty());
  const int node = static_cast<int>(seed * 5 % static_cast<std::uint64_t>(nodes - 1)) + 1;
  const int rank = node * ranks_a_node;  // of its node, the one that is named if that is cut off
  job.strike(rank, expected.fault);
  job.run_until_said(Seconds{30});
  CAPTURE(nodes, loss, rank, expected.words);
  // Who is cut off cannot hear that somebody has spoken, nor be heard.
  std::vector<WatchedRanks::Line> lines = job.lines();
  if (expected.fault == Fault::cut_off)
    std::erase_if(lines, [&](const WatchedRanks::Line& each) { return each.rank / ranks_a_node == node; });
  REQUIRE(lines.size() == 1);
  const WatchedRanks::Line& line = lines.front();
  CAPTURE(line.rank, line.at, line.text);
  CHECK(line.text.find("replica " + std::to_string(rank) + expected.words) == 0);
  CHECK(line.at > 1 + expected.at_least);
  CHECK(line.at < 1 + expected.at_most);
}
