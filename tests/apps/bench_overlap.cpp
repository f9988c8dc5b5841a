// How much of the sums between nodes a backward pass hides, in cases that can be computed by hand.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-bench/overlap.hpp"

using namespace lockstep::bench;

namespace {

using Looks = std::vector<Look>;

constexpr double mebibyte = 1 << 20;

}  // namespace

TEST_CASE("a message begins when its gradients and all before them are ready, and each gradient is a look") {
  const std::vector<double> ready{0.25, 0.75, 0.5, 0.875};
  const std::vector<GradientMessage> messages{{100, 1}, {200, 3}, {50, 4}};
  CHECK(looks_of(ready, messages) ==
        Looks{{0.25, 0}, {0.25, 100}, {0.5, 0}, {0.75, 0}, {0.75, 200}, {0.875, 0}, {0.875, 50}, {1, 0}});
}

TEST_CASE("a message that begins at the end of the pass is exposed, there and back") {
  CHECK(exposed_time(Looks{{0.5, 0}, {1, 1000}}, 100, 0.25) == Approx(2 * 1000 * 0.25));
}

TEST_CASE("on a fast wire all is hidden but the last message, and the return of the one before") {
  const Looks looks{{0.25, 1000}, {0.5, 1000}, {0.75, 1000}, {1, 1000}};
  CHECK(exposed_time(looks, 100, 0.001) == Approx(2 + 1));
}

TEST_CASE("a wire that is never idle is exposed but for the time since the first message") {
  const Looks looks{{0.25, 100'000}, {0.5, 0}, {0.75, 100'000}, {1, 100'000}};
  CHECK(exposed_time(looks, 100, 0.01) == Approx(2 * 300'000 * 0.01 - 75));
}

TEST_CASE("sums return only after another look") {
  CHECK(exposed_time(Looks{{0, 1000}, {1, 0}}, 100, 0.001) == Approx(1));
  CHECK(exposed_time(Looks{{0, 1000}, {0.5, 0}, {1, 0}}, 100, 0.001) == 0);
}

TEST_CASE("between two looks, at most 4 MiB go each way") {
  const std::int64_t bytes = 6 << 20;
  CHECK(exposed_time(Looks{{0, bytes}, {1, 0}}, 1e9, 1) == Approx((2 * 2 + 4) * mebibyte));
  CHECK(exposed_time(Looks{{0, bytes}, {0.5, 0}, {1, 0}}, 1e9, 1) == Approx(2 * mebibyte));
  CHECK(exposed_time(Looks{{0, bytes}, {0.25, 0}, {0.5, 0}, {1, 0}}, 1e9, 1) == 0);
}

TEST_CASE("a longer pass exposes less, a slower wire more, and neither more than all or less than what does not fit") {
  std::mt19937 random{1};
  const auto number = [&](double most) { return std::uniform_real_distribution<double>{0, most}(random); };
  for (int pass = 0; pass < 200; ++pass) {
    Looks looks{{1, 0}};
    double bytes = 0;
    for (int i = 0; i < 20; ++i) {
      looks.push_back({number(1), number(1) < 0.5 ? 0 : static_cast<std::int64_t>(number(3e6))});
      bytes += static_cast<double>(looks.back().bytes);
    }
    std::ranges::sort(looks, {}, &Look::moment);
    const double first = std::ranges::find_if(looks, [](const Look& look) { return look.bytes > 0; })->moment;
    double longer = 0;
    for (const double length : {1000.0, 300.0, 100.0, 30.0, 10.0, 0.0}) {
      double slower = 1e12;
      for (const double one_way : {1e-3, 1e-4, 3e-5, 1e-5, 1e-6}) {
        const double exposed = exposed_time(looks, length, one_way), all = 2 * bytes * one_way;
        CHECK(exposed <= all * (1 + 1e-12));
        CHECK(exposed >= all - (1 - first) * length - all * 1e-12);
        CHECK(exposed <= slower);
        slower = exposed;
        if (one_way == 1e-5) {
          CHECK(exposed >= longer);
          longer = exposed;
        }
      }
    }
  }
}
