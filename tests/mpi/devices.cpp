// Where things are: the names of devices, and variables beside others.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/tensor/dlpack_abi.hpp"
#include "support/ranks.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Names = std::vector<std::string>;

bool on_gpu() {
  return runtime().strategy().stream().kind() == DeviceKind::cuda;
}

/// Without a cluster spec every rank is a task of its own.
std::string device_of(int rank) {
  return "/job:worker/task:" + std::to_string(rank) + (on_gpu() ? "/device:GPU:0" : "/device:CPU:0");
}

}  // namespace

TEST_CASE("every rank knows the devices of all replicas, and may do as it likes with its copy", "[H-11][H-12]") {
  const StrategyExtended extended{runtime().strategy()};
  Names expected;
  std::vector<Names> by_replica;
  for (int rank = 0; rank < ranks(); ++rank) {
    expected.push_back(device_of(rank));
    by_replica.push_back({device_of(rank)});
  }
  CHECK(extended.worker_devices() == expected);
  CHECK(extended.parameter_devices() == expected);
  CHECK(extended.worker_devices_by_replica() == by_replica);
  extended.worker_devices().clear();
  CHECK(extended.worker_devices() == expected);
  Strategy another = runtime().make_strategy();
  CHECK(StrategyExtended{another}.worker_devices() == expected);
}

TEST_CASE("a strategy that is told nothing has the reductions for the devices of its ranks", "[E-15]") {
  CHECK(inside(runtime().strategy()).reductions().name() ==
        (on_gpu() ? "sum in the backend's order" : "fixed-order sum"));
}

TEST_CASE("the devices of a replica are its own, and so are those of what is no slot", "[A-73][H-7]") {
  Strategy& strategy = runtime().strategy();
  const Names own{device_of(rank())};
  strategy.run([&](ReplicaContext& context) {
    CHECK(context.devices() == own);
    CHECK(context.devices() == StrategyExtended{strategy}.worker_devices_by_replica().at(
                                   static_cast<std::size_t>(context.replica_id_in_sync_group())));
  });
  CHECK(StrategyExtended{strategy}.non_slot_devices({}) == own);
}

TEST_CASE("asking for devices is one rank's own business", "[A-71]") {
  Strategy& strategy = runtime().strategy();
  strategy.run([&](ReplicaContext& context) {
    if (runtime().is_chief()) CHECK(context.devices().size() == 1);
    context.merge_call([&](Strategy& merged) {
      if (runtime().is_chief()) CHECK_THROWS_AS(context.devices(), ContextError);
      if (runtime().is_chief()) CHECK(StrategyExtended{merged}.worker_devices().size() > 0);
    });
  });
}

TEST_CASE("a variable created beside another has its device and its stream", "[C-15]") {
  Strategy& strategy = runtime().strategy();
  const float mine = static_cast<float>(rank() + 1);
  const MirroredVariable variable = strategy.create_variable({.name = "w"}, [&] { return Tensor::scalar(mine); });
  const Scope scope = strategy.scope();
  const auto beside = StrategyExtended{strategy}.colocate_vars_with(variable);
  const MirroredVariable slot = strategy.create_variable({.name = "slot"}, [&] { return Tensor::scalar(mine); });
  const SyncOnReadVariable counter =
      strategy.create_sync_on_read({.name = "counter"}, [&] { return Tensor::scalar(mine); });
  strategy.seal();
  CHECK(variable.local().device() == (on_gpu() ? DeviceKind::cuda : DeviceKind::cpu));
  for (const Variable& each : {Variable{slot}, Variable{counter}}) {
    CHECK(each.local().device() == variable.local().device());
    CHECK(inside(each).state().segment->stream == inside(variable).state().segment->stream);
    CHECK(each.local().to_vector<float>() == std::vector<float>{1});
  }
}

TEST_CASE("ranks whose tensors are on the host here and on a GPU there are told so before they reduce anything") {
  if (ranks() == 1 || !on_gpu()) return;
  Strategy& strategy = runtime().strategy();
  const Tensor host = Tensor::from({1.f, 2.f}, {2});
  const PerReplica<Tensor> mine{odd_one() ? Tensor::copy_of(host.view(), strategy.stream()) : host};
  CHECK_THAT(mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, mine); }),
             Catch::Contains("f32[2] on a GPU") && Catch::Contains("f32[2]"));
  expect_in_step();
}

TEST_CASE("a tensor on the rank's device goes to another library and comes back, and not to another GPU") {
  const Tensor tensor = Tensor::copy_of(Tensor::from({1.F, 2.F, 3.F}, {3}).view(), runtime().strategy().stream());
  DLManagedTensor* const managed = tensor.to_dlpack();
  CHECK(managed->tensor.device.type == (on_gpu() ? dlpack::cuda : dlpack::cpu));
  if (on_gpu()) {
    const int own = managed->tensor.device.index++;
    CHECK(message_of<InvalidArgument>([&] { Tensor::from_dlpack(managed); }) ==
          "DLPack: memory of cuda:" + std::to_string(own + 1) + "; this process has cuda:" + std::to_string(own));
    managed->tensor.device.index = own;
  }
  const Tensor returned = Tensor::from_dlpack(managed);
  CHECK(returned.view().data() == tensor.view().data());
  CHECK(returned.device() == tensor.device());
  CHECK(returned.to_vector<float>() == std::vector<float>{1, 2, 3});
}
