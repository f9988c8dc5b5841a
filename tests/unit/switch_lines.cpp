// When frames leave the switch of scripts/nodes, and which are lost.
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <catch2/catch.hpp>

#include "support/switch/lines.hpp"

using namespace lockstep::test;
using std::chrono::milliseconds;

TEST_CASE("frames take turns on a line, and those that would wait behind a full queue are dropped") {
  Line line{8'000'000, 3000};
  for (const int end : {1, 2, 3, 4}) CHECK(line.through(Time{0}, 1000) == milliseconds{end});
  CHECK_FALSE(line.through(Time{0}, 1000));
  CHECK(line.through(milliseconds{1}, 1000) == milliseconds{5});
  CHECK(line.through(milliseconds{10}, 500) == Time{10'500'000});
  CHECK(Line(0, 3000).through(milliseconds{7}, 1'000'000) == milliseconds{7});
}

TEST_CASE("a share of the frames is lost, others for another seed") {
  const auto lost = [](double share, std::uint64_t seed) {
    Loss loss{share, seed};
    std::vector<int> lost;
    for (int frame = 0; frame < 10'000; ++frame)
      if (loss.next()) lost.push_back(frame);
    return lost;
  };
  CHECK(lost(0, 1).empty());
  CHECK(lost(0.05, 1).size() > 400);
  CHECK(lost(0.05, 1).size() < 600);
  CHECK(lost(0.05, 1) == lost(0.05, 1));
  CHECK(lost(0.05, 1) != lost(0.05, 2));
}
