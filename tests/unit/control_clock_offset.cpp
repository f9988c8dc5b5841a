// The offset of a host's clock, from exchanges with made-up times.
#include <vector>

#include <catch2/catch.hpp>

#include "core/control/channel.hpp"
#include "core/control/clock_offset.hpp"

using namespace lockstep;
using namespace std::chrono_literals;

TEST_CASE("the offset of a clock lies between what all exchanges allow") {
  // By the first clock, which is 1,000 ahead: an exchange that the first rank begins and the second ends, then the
  // opposite. Both take 40, of which a message takes 10.
  const std::vector<Exchange> first{{5000ns, 5040ns}, {6010ns, 6040ns}};
  const std::vector<Exchange> second{{4030ns, 4040ns}, {5000ns, 5040ns}};
  const ClockOffset found = clock_offset(first, second);
  CHECK(found.offset - found.error <= 1000ns);
  CHECK(found.offset + found.error >= 1000ns);
  CHECK(found.offset == 990ns);  // between 5000 - 4040 or 6010 - 5040, and 5040 - 4030 or 6040 - 5000
  CHECK(found.error == 20ns);
  // The narrower of several exchanges decide, in whatever order.
  CHECK(clock_offset(std::vector<Exchange>{{0ns, 9000ns}, first[1], first[0]},
                     std::vector<Exchange>{{0ns, 9000ns}, second[1], second[0]})
            .error == 20ns);
}

TEST_CASE("the first rank's clock is the measure") {
  const auto alone = make_local_channel();
  const ClockOffset found = find_clock_offset(*alone);
  CHECK(found.offset == 0ns);
  CHECK(found.error == 0ns);
}
