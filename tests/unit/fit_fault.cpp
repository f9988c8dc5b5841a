// Which faults there are, and which weight a flip hits.
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/fit/injected_fault.hpp"
#include "support/quiet_log.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

constexpr int culprit = 2;

/// Variables with the weights that a test wants.
class Weights {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    variables_.push_back(strategy_.create_variable({.name = "w" + std::to_string(variables_.size())},
                                                   [&] { return Tensor::from(values, shape); }));
  }

  /// Carries out a flip in `step`.
  void flip(std::int64_t step) {
    if (inside(strategy_.store()).has_unsealed()) strategy_.seal();
    const InjectedFault fault{InjectedFault::Kind::flips, culprit, step};
    fault.strike(culprit, step, variables_);
  }

  template <class T>
  std::vector<T> of(std::size_t variable) const {
    return variables_[variable].local().to_vector<T>();
  }
  std::size_t size() const { return variables_.size(); }

 private:
  test::QuietLog quiet_;
  std::unique_ptr<ReplicaGroup> group_ = make_local_group();
  Strategy strategy_ = strategy_on(*group_);
  std::vector<Variable> variables_;
};

/// Where a flip of `step` hits among three variables of 1, 5 and 40 weights that are all `weight`.
struct Hit {
  std::size_t variable, element;
  bool operator==(const Hit&) const = default;
  auto operator<=>(const Hit&) const = default;
};

/// Which bit a flip changes, of f32 and of f64.
template <class T>
Hit hit_by(std::int64_t step, T weight) {
  Weights weights;
  for (const std::size_t count : {1, 5, 40}) weights.add(std::vector<T>(count, weight));
  weights.flip(step);
  std::vector<Hit> hits;
  for (std::size_t variable = 0; variable < weights.size(); ++variable) {
    const std::vector<T> values = weights.of<T>(variable);
    for (std::size_t element = 0; element < values.size(); ++element) {
      if (values[element] == weight) continue;
      hits.push_back({variable, element});
      if constexpr (sizeof(T) == sizeof(float)) {
        CHECK((std::bit_cast<std::uint32_t>(values[element]) ^ std::bit_cast<std::uint32_t>(weight)) == 1u << 22);
      } else {
        CHECK((std::bit_cast<std::uint64_t>(values[element]) ^ std::bit_cast<std::uint64_t>(weight)) == 1ull << 51);
      }
    }
  }
  REQUIRE(hits.size() == 1);
  return hits.front();
}

}  // namespace

TEST_CASE("a fault is KIND:RANK:STEP") {
  const InjectedFault fault = InjectedFault::parse("flip:3:17", 4);
  CHECK(fault.kind == InjectedFault::Kind::flips);
  CHECK(fault.rank == 3);
  CHECK(fault.step == 17);
  for (const char* name :
       {"throw", "exit", "kill", "stop", "hang", "skip-merge", "flip", "usr1", "miscompute", "misread"})
    CHECK(name_of(InjectedFault::parse(std::string{name} + ":0:1", 1).kind) == name);
  CHECK_THROWS_WITH(
      InjectedFault::parse("flop:0:1", 2),
      "LOCKSTEP_FAULT 'flop:0:1': there is no such kind; expected KIND:RANK:STEP with KIND one of throw, "
      "exit, kill, stop, hang, skip-merge, flip, usr1, miscompute, misread, RANK below 2 and STEP from 0, or "
      "slow:RANK:FACTOR, or miscompute:RANK:STEP:always");
  for (const char* text : {"",
                           "kill",
                           "kill:0",
                           "kill:0:",
                           "kill:x:1",
                           "kill:2:1",
                           "kill:-1:1",
                           "kill:0:-1",
                           "kill:0:99999999999999999999",
                           "kill:0:1:2",
                           "burn:0:1",
                           "Kill:0:1",
                           "flip",
                           "flip:2:0",
                           "flip:0:-1",
                           "flip:0:1:3",
                           "flip:0:1:always",
                           "miscompute:0:1:",
                           "miscompute:0:1:twice",
                           "miscompute:0:1:always:2"}) {
    INFO(text);
    CHECK_THROWS_AS(InjectedFault::parse(text, 2), ConfigError);
    CHECK_THROWS_WITH(
        InjectedFault::parse(text, 2),
        Catch::StartsWith(std::string{"LOCKSTEP_FAULT '"} + text + "': ") &&
            Catch::EndsWith("; expected KIND:RANK:STEP with KIND one of throw, exit, kill, stop, "
                            "hang, skip-merge, flip, usr1, miscompute, misread, RANK below 2 and STEP from "
                            "0, or slow:RANK:FACTOR, or miscompute:RANK:STEP:always"));
  }
  CHECK_FALSE(InjectedFault::parse("miscompute:0:1", 1).always);
  CHECK_FALSE(InjectedFault::parse("miscompute:0:1:once", 1).always);
  CHECK(InjectedFault::parse("miscompute:0:1:always", 1).always);
  CHECK(InjectedFault::parse("miscompute:0:1:always", 1).announcement() ==
        "replica 0 will fail (miscompute) in step 2 and after it");
}

TEST_CASE("a fault is slow:RANK:FACTOR, or slow:RANK:FACTOR:PART") {
  const InjectedFault both = InjectedFault::parse("slow:3:1.5", 4), one = InjectedFault::parse("slow:0:2:data", 4);
  CHECK((both.kind == InjectedFault::Kind::slows && both.rank == 3 && both.factor == 1.5 && !both.part));
  CHECK((one.rank == 0 && one.factor == 2 && one.part == BusyClock::Part::data));
  CHECK(both.announcement() == "replica 3 takes 1.5 times as long for forward and backward");
  CHECK(one.announcement() == "replica 0 takes 2 times as long for data");
  for (const char* text :
       {"slow", "slow:1", "slow:2:2", "slow:1:", "slow:1:0.5", "slow:1:nan", "slow:1:1001", "slow:1:2x",
        "slow:1:2:", "slow:1:2:Data", "slow:1:2:waiting", "slow:1:2:data:1", "slow:-1:2", "slow:1:inf"}) {
    INFO(text);
    CHECK_THROWS_AS(InjectedFault::parse(text, 2), ConfigError);
    CHECK_THROWS_WITH(
        InjectedFault::parse(text, 2),
        Catch::StartsWith(std::string{"LOCKSTEP_FAULT '"} + text + "': ") &&
            Catch::EndsWith("; expected slow:RANK:FACTOR or slow:RANK:FACTOR:PART with RANK below 2, FACTOR "
                            "from 1 to 1000 and PART one of data, forward, backward, optimizer, "
                            "checkpoint, evaluation, other"));
  }
}

TEST_CASE("a fault strikes on its rank, in its step") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const std::vector<Variable> weights{strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0F); })};
  strategy.seal();
  const auto after = [&](InjectedFault::Kind kind, int rank, std::int64_t step) {
    const InjectedFault fault{kind, culprit, 3};
    CHECK(fault.skips_merge(rank, step) == (kind == InjectedFault::Kind::skips_merge && rank == culprit && step == 3));
    fault.strike(rank, step, weights);
    return weights.front().local().to_vector<float>().front();
  };
  CHECK(after(InjectedFault::Kind::flips, 1, 3) == 1);
  CHECK(after(InjectedFault::Kind::flips, culprit, 2) == 1);
  CHECK(after(InjectedFault::Kind::skips_merge, culprit, 3) == 1);
  CHECK(after(InjectedFault::Kind::skips_merge, 1, 3) == 1);
  CHECK(after(InjectedFault::Kind::flips, culprit, 3) == 1.5F);
}

TEST_CASE("a flip changes one bit of one weight, drawn from the step: any variable, any element") {
  std::set<std::size_t> variables;
  std::set<Hit> hits;
  std::vector<int> counts(3);
  for (std::int64_t step = 0; step < 60; ++step) {
    const Hit hit = hit_by(step, 0.75F);
    ++counts[hit.variable];
    hits.insert(hit);
    if (step < 8) CHECK(hit_by(step, -3e-4) == hit);  // of f64 too
  }
  for (const int count : counts) CHECK(count >= 10);  // of 60 draws, however many elements each variable has
  CHECK(hits.size() > 15);
}

TEST_CASE("a weight of 0, or as good as that, is passed by: the next step would absorb what becomes of it") {
  constexpr float denormal = std::numeric_limits<float>::denorm_min(),
                  infinite = std::numeric_limits<float>::infinity();
  for (std::int64_t step = 0; step < 20; ++step) {
    Weights weights;
    weights.add<float>({0, -0.0F, denormal, 0});
    weights.add<float>({});
    weights.add<float>({0, 0, infinite, 0, 0, 2, 0});
    weights.add<double>({0, std::nan("")});
    weights.flip(step);
    CHECK(weights.of<float>(0) == std::vector<float>{0, -0.0F, denormal, 0});
    CHECK(weights.of<float>(2) == std::vector<float>{0, 0, infinite, 0, 0, 3, 0});
  }
  Weights none;
  none.add<float>({0, 0});
  CHECK_THROWS_WITH(none.flip(4), Catch::Contains("in step 5 all weights are 0"));
}

TEST_CASE("the flip looks on from the drawn weight, and around") {
  for (std::int64_t step = 0; step < 30; ++step) {
    const Hit drawn = hit_by(step, 1.0F);
    if (drawn.variable != 1) continue;
    Weights weights;
    weights.add<float>({1});
    std::vector<float> five(5, 1);
    five[drawn.element] = 0;
    weights.add(five);
    weights.add(std::vector<float>(40, 1));
    weights.flip(step);
    five[(drawn.element + 1) % 5] = 1.5F;
    CHECK(weights.of<float>(1) == five);
  }
}
