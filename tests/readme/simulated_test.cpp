// The test of a trainer, the loop of steps, the reduction beside a computation and the requests of a group that
// include/README.md shows, run as a reader would.
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/tf.hpp>

using namespace lockstep;

namespace {

/// The step under test: the replicas count their samples.
int count_samples(Strategy& strategy, int mine) {
  return strategy.run([&](ReplicaContext& context) { return context.all_reduce(ReduceOp::sum, mine); }).local();
}

}  // namespace

TEST_CASE("every replica gets the same count, whatever the schedule") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    sim::run({.ranks = 16, .seed = seed},
             [](Strategy& strategy, int rank) { CHECK(count_samples(strategy, rank) == 120); });
  }
}

TEST_CASE("a replica that dies on the way is named to the others") {
  const auto run = [] {
    sim::run({.ranks = 16, .faults = {{.rank = 3, .point = 2}}},
             [](Strategy& strategy, int rank) { count_samples(strategy, rank); });
  };
  CHECK_THROWS_WITH(run(), Catch::StartsWith("replica 3 (worker:3, host sim) is gone"));
}

TEST_CASE("a reduction goes on beside a computation") {
  sim::run({.ranks = 4}, [](Strategy& strategy, int rank) {
    const std::vector<float> gradient{static_cast<float>(rank), 1};
    const auto prepare_next_batch = [] {};
    strategy.run([&](ReplicaContext& context) {
      ReplicaContext::PendingReduction<std::vector<float>> pending = context.all_reduce_async(ReduceOp::sum, gradient);
      prepare_next_batch();
      const std::vector<float> sum = pending.wait();
      CHECK(sum == std::vector<float>{6, 4});
    });
  });
}

TEST_CASE("a group sums in two halves, and sends a value meanwhile") {
  sim::run({.ranks = 4}, [](Strategy& strategy, int rank) {
    Group all = strategy.ranks();
    std::vector<float> weights(8, static_cast<float>(rank)), mine(2);
    std::vector<int> order{10 * rank};
    const auto update = [](std::vector<float>& values) { values[0] += 1; };
    Group::Request half = all.submit_reduce_scatter(std::span{weights}, std::span{mine}, {.wire = DType::bf16});
    Group::Request sent = all.submit_send(std::span{order}, 1, 3);
    half.wait();
    update(mine);
    all.submit_all_gather(std::span{mine}, std::span{weights}).wait();
    sent.wait();
    CHECK(weights == std::vector<float>{7, 6, 7, 6, 7, 6, 7, 6});
    CHECK(order.front() == (rank == 3 ? 10 : 10 * rank));
  });
}

TEST_CASE("a loop of steps ends with its input") {
  sim::run({.ranks = 4}, [](Strategy& strategy, int) {
    const Scope scope = strategy.scope();
    Tensor samples = Tensor::zeros(DType::f32, {34});
    for (int i = 0; i < 34; ++i) samples.view().elements<float>()[i] = static_cast<float>(i);
    auto iterator = make_dataset_iterator(strategy, samples, {.global_batch_size = 8, .shuffle_seed = {}});
    const auto step = [](ReplicaContext&, const Tensor& batch) {
      double sum = 0;  // of no samples at all, if this rank's batch is empty
      for (const float value : batch.view().elements<float>()) sum += value;
      return sum;
    };

    const auto result = run_steps_on_iterator(
        strategy,
        [&](MultiStepContext& loop, const PerReplica<Tensor>& batch) {
          loop.set_last_step_output("sum", strategy.run(step, args(batch)), ReduceOp::sum);
        },
        iterator, 1000);
    const double sum = result.last_step_outputs.get<Mirrored<double>>("sum").value();

    CHECK(result.steps_run == 5);  // 34 samples are 4 batches of 8, and one of 2, of which two ranks have nothing
    CHECK(sum == 32 + 33);
  });
}
