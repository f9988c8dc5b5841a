// The names of devices, on one replica. Across ranks: tests/mpi.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

using Names = std::vector<std::string>;

struct OnDevice {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy;

  explicit OnDevice(const std::string& name)
      : strategy{strategy_on((group->set_device_names([name](int) { return name; }), *group))} {}

  MirroredVariable make(const std::string& variable) {
    return strategy.create_variable({.name = variable}, [] { return Tensor::scalar(1.f); });
  }
};

}  // namespace

TEST_CASE("a group of one has one device, which is the CPU unless it was told another", "[A-72]") {
  const auto plain = make_local_group();
  Strategy alone = strategy_on(*plain);
  CHECK(StrategyExtended{alone}.worker_devices() == Names{"/device:CPU:0"});
  OnDevice f{"/device:GPU:1"};
  CHECK(StrategyExtended{f.strategy}.worker_devices() == Names{"/device:GPU:1"});
  CHECK(f.strategy.run([](ReplicaContext& context) { return context.devices(); }).local() == Names{"/device:GPU:1"});
  CHECK(ReplicaContext::current()->devices() == Names{"/device:CPU:0"});
}

TEST_CASE("the devices and the id of a replica are asked for in its context", "[A-71]") {
  OnDevice f{"/device:GPU:1"};
  f.strategy.run([](ReplicaContext& context) {
    CHECK_NOTHROW(context.devices());
    CHECK(context.replica_id_in_sync_group() == 0);
    context.merge_call([&](Strategy& merged) {
      CHECK_THROWS_AS(context.devices(), ContextError);
      CHECK_THROWS_AS(context.replica_id_in_sync_group(), ContextError);
      CHECK_THROWS_WITH(context.replica_id_in_sync_group(), Catch::Contains("): Need to be inside `Strategy::run()`"));
      CHECK_THROWS_WITH(context.devices(), Catch::Contains("): Need to be inside `Strategy::run()`"));
      merged.run([&](ReplicaContext&) {
        CHECK_THROWS_WITH(context.devices(), Catch::Contains("): Mismatching ReplicaContext: "));
      });
    });
  });
}

TEST_CASE("the default strategy knows no devices of workers and parameters", "[H-23]") {
  const StrategyExtended extended{Strategy::current()};
  CHECK_THROWS_AS(extended.worker_devices(), ContextError);
  CHECK_THROWS_WITH(extended.worker_devices(), "worker_devices() method unsupported by the default strategy");
  CHECK_THROWS_WITH(extended.worker_devices_by_replica(),
                    "worker_devices_by_replica() method unsupported by the default strategy");
  CHECK_THROWS_WITH(extended.parameter_devices(), "parameter_devices() method unsupported by the default strategy");
}

TEST_CASE("state that is no slot lives on this rank's device, whatever variables it belongs to", "[H-7]") {
  OnDevice f{"/device:GPU:1"};
  OnDevice other{"/device:GPU:2"};
  const std::vector<Variable> variables{other.make("a"), f.make("b")};
  CHECK(StrategyExtended{f.strategy}.non_slot_devices(variables) == Names{"/device:GPU:1"});
  CHECK(StrategyExtended{f.strategy}.non_slot_devices({}) == Names{"/device:GPU:1"});
}

TEST_CASE("under the default strategy it lives where the variable with the smallest name does", "[H-21]") {
  OnDevice one{"/device:GPU:1"};
  OnDevice two{"/device:GPU:2"};
  const MirroredVariable c = one.make("c"), a = two.make("a"), b = one.make("b");
  const StrategyExtended extended{Strategy::current()};
  CHECK(extended.non_slot_devices(std::vector<Variable>{c, a, b}) == Names{"/device:GPU:2"});
  CHECK(extended.non_slot_devices(std::vector<Variable>{b, a, c}) == Names{"/device:GPU:2"});
  CHECK(extended.non_slot_devices(std::vector<Variable>{c, b}) == Names{"/device:GPU:1"});
  CHECK_THROWS_AS(extended.non_slot_devices({}), InvalidArgument);
}
