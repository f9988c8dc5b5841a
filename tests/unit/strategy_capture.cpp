// Collectives while the stream of this rank is being captured into a graph, on a stream that says it is.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/comm/backends.hpp"
#include "core/control/meeting_point.hpp"
#include "support/captured_stream.hpp"
#include "sync/group/local_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

struct Captured {
  bool capturing = false;
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy;

  Captured() : strategy{strategy_on(on_captured_stream())} {}

 private:
  ReplicaGroup& on_captured_stream() {
    group->add_device_plane(std::make_unique<test::CapturedStream>(capturing), make_local_communicator());
    return *group;
  }
};

}  // namespace

TEST_CASE("a merge_call, and every other collective, is refused while the stream is captured, before any agreement",
          "[B-25]") {
  Captured f;
  const SyncOnReadVariable counter = f.strategy.create_sync_on_read(
      {.name = "c", .aggregation = Variable::Aggregation::sum}, [] { return Tensor::scalar(1.f); });
  f.strategy.seal();
  const PerReplica<int> value{1};
  const auto mapped = StrategyExtended{f.strategy}.map(std::vector{1}, [](int item) { return item; });
  const std::map<std::string, std::function<void()>> collectives{
      {"seal", [&] { f.strategy.seal(); }},
      {"rebroadcast", [&] { f.strategy.rebroadcast(); }},
      {"attest", [&] { f.strategy.attest(); }},
      {"create_variable", [&] { f.strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); }); }},
      {"same_on_all", [&] { (void)f.strategy.same_on_all(1); }},
      {"reduce_to", [&] { (void)StrategyExtended{f.strategy}.reduce_to(ReduceOp::sum, value); }},
      {"reduce_to one",
       [&] { (void)StrategyExtended{f.strategy}.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{0}); }},
      {"reduce_to of what map returns", [&] { (void)StrategyExtended{f.strategy}.reduce_to(ReduceOp::sum, mapped); }},
      {"broadcast_to", [&] { (void)StrategyExtended{f.strategy}.broadcast_to(value); }},
      {"read", [&] { (void)counter.read(); }},
  };
  const auto refused = [&](const std::function<void()>& collective) {
    const auto before = f.group->meeting().meetings();
    CHECK_THROWS_AS(collective(), ContextError);
    CHECK_THROWS_WITH(collective(), Catch::StartsWith("merge_call, or another collective (strategy_capture.cpp:") &&
                                        Catch::Contains("): this rank's stream is being captured into a CUDA graph"));
    CHECK(f.group->meeting().meetings() == before);
  };
  f.capturing = true;
  for (const auto& [name, collective] : collectives) {
    CAPTURE(name);
    refused(collective);
  }
  f.capturing = false;
  for (const auto& [name, collective] : collectives) {
    CAPTURE(name);
    CHECK_NOTHROW(collective());
  }
  const auto run = [&] { f.strategy.run([](ReplicaContext& context) { context.attest_at_end(); }); };
  f.capturing = true;
  CHECK_THROWS_AS(run(), ContextError);
  f.capturing = false;
  CHECK_NOTHROW(run());
  f.strategy.run([&](ReplicaContext& context) {
    f.capturing = true;
    refused([&] { context.merge_call([](Strategy&) {}); });
    refused([&] { (void)context.all_reduce(ReduceOp::sum, 1); });
    refused([&] { inside(context).declared_merge("", [](Reductions&) {}); });
    f.capturing = false;
    CHECK(context.all_reduce(ReduceOp::sum, 1) == 1);  // the refusal was this rank's own, and is over
  });
}

TEST_CASE("the sealing that a run begins with is told with the place of the run") {
  Captured f;
  (void)f.strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  f.capturing = true;
  const auto ignore = [](const auto&...) {};
  const auto place = [](int line) { return Catch::Contains("(strategy_capture.cpp:" + std::to_string(line) + "): "); };
  CHECK_THROWS_WITH(f.strategy.run(ignore), place(__LINE__));
  CHECK_THROWS_WITH(f.strategy.run(ignore, args(1, 2)), place(__LINE__));
}

TEST_CASE("what is this rank's alone goes on while its stream is captured") {
  Captured f;
  const MirroredVariable variable = f.strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  f.strategy.seal();
  f.capturing = true;
  StrategyExtended{f.strategy}.update(variable,
                                      [](const Variable& component) { component.assign(Tensor::scalar(2.f)); });
  CHECK(f.strategy.run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); }).local() == 0);
  f.capturing = false;
  CHECK(variable.local().to_vector<float>() == std::vector<float>{2});
}
