// The evaluation in a loop of one's own that include/README.md shows.
#include <cstdint>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/training.hpp>

using namespace lockstep;

namespace {

/// The mean loss of all test samples, the same on every rank.
double evaluate(Strategy& strategy, std::int64_t after_step, std::span<const double> losses) {
  strategy.set_step(after_step, Strategy::RunKind::evaluation);  // messages say "in the evaluation after step 5"
  const PerReplica<double> sum = strategy.run([&](ReplicaContext& context) {
    const Range mine =
        Range::of_shard(std::ssize(losses), context.num_replicas_in_sync(), context.replica_id_in_sync_group());
    double loss = 0;  // a real evaluation computes these
    for (std::int64_t sample = mine.first; sample < mine.last; ++sample) loss += losses[sample];
    return loss;
  });
  return strategy.reduce(ReduceOp::sum, sum) / static_cast<double>(losses.size());
}

}  // namespace

TEST_CASE("an evaluation divides the sum of all losses by all samples") {
  const std::vector<double> losses{1, 2, 4, 8, 16};  // two ranks have two samples, one has one
  for (const int ranks : {1, 3})
    sim::run({.ranks = ranks}, [&](Strategy& strategy, int) { CHECK(evaluate(strategy, 5, losses) == 31.0 / 5); });
}
