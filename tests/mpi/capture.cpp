// Collectives while one rank's stream is being captured into a graph, on a simulated GPU.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "support/ranks.hpp"
#include "support/simulated_gpu.hpp"

using namespace lockstep;
using lockstep::test::Capture;
using lockstep::test::runtime;

namespace {

bool last() {
  return runtime().rank() == runtime().size() - 1;
}

}  // namespace

TEST_CASE("a rank whose stream is captured keeps its merge_call to itself where it catches the error", "[B-25]") {
  Strategy& strategy = runtime().strategy();
  strategy.run([&](ReplicaContext& context) {
    if (last()) {
      const Capture capture{strategy.stream()};
      CHECK_THROWS_AS(context.merge_call([](Strategy&) {}), ContextError);
      CHECK_THROWS_AS(context.all_reduce(ReduceOp::sum, 1), ContextError);
    }
    CHECK(context.all_reduce(ReduceOp::sum, 1) == runtime().size());
  });
}

TEST_CASE("where it does not, the rank has failed, and the others hear why", "[B-25]") {
  if (runtime().size() == 1) return;
  Strategy& strategy = runtime().strategy();
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      if (last()) {
        const Capture capture{strategy.stream()};
        context.merge_call([](Strategy&) {});
      }
      context.merge_call([](Strategy&) {});
    });
  };
  if (last()) {
    CHECK_THROWS_AS(step(), ContextError);
  } else {
    CHECK_THROWS_WITH(step(), Catch::Contains("is being captured into a CUDA graph"));
  }
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}) == runtime().size());
}
