// Steps of ranks on several nodes, whose gradients travel while others are still being computed.
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/optim/adamw.hpp>

#include "core/comm/communicator.hpp"
#include "support/noise.hpp"
#include "support/quiet_log.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::test::optim_overlap_cases {
namespace {

/// What a rank has after some steps.
struct Outcome {
  std::vector<std::vector<float>> values;
  std::vector<std::string> failures;
  Work::Traffic traffic;  ///< of the last step
};

enum class Sent { early, late };

constexpr int failing_rank = 1, failing_step = 1;

/// In one step, one rank fails when half of its gradients are ready.
Outcome train_early_or_late(Strategy& strategy, int rank, Sent sent) {
  // Messages of several pieces, and some that are too short to travel early. Of hierarchical sums on 8 nodes, the first
  // is sent at the end, but not whole.
  std::vector<MirroredVariable> variables;
  for (const Shape& shape : {Shape{79, 201}, {77}, {150, 211}, {9001}, {70'001}, {33}, {4001}})
    variables.push_back(strategy.create_variable({}, [&] { return test::noise(DType::f32, shape, variables.size()); }));
  strategy.seal();
  const std::vector<Variable> trained{variables.begin(), variables.end()};
  const std::vector<Optimizer::Gradient> own = Optimizer::gradients_in_store(strategy.store(), trained);
  AdamW optimizer{{.learning_rate = 0.1, .clip_norm = 2.0}};
  std::optional<DeclaredSums::StartLate> late;
  if (sent == Sent::late) late.emplace();
  Outcome ended;
  for (int step = 0; step < 3; ++step) {
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      for (std::size_t left = own.size(); left > 0; --left) {
        if (rank == failing_rank && step == failing_step && left == own.size() / 2)
          throw std::runtime_error{"on purpose"};
        const Optimizer::Gradient& each = own[left - 1];
        test::fill_noise(each.value.dense().view(), static_cast<std::uint64_t>(100 * step + 10 * rank) + left);
        agreed.ready(each.variable);
      }
      return Optimizer::StepSums{.samples = rank + 1};
    };
    try {
      strategy.run([&](ReplicaContext& context) {
        optimizer.apply_gradients(context, {.gradients = own, .computation = {compute}});
      });
    } catch (const std::exception& error) {
      ended.failures.emplace_back(error.what());
    }
  }
  ended.traffic = DeclaredSums::last_traffic();
  for (const MirroredVariable& each : variables) ended.values.push_back(each.local().to_vector<float>());
  return ended;
}

/// Of every rank.
std::vector<Outcome> outcomes(sim::Options options, Sent sent) {
  const test::QuietLog quiet;
  std::vector<Outcome> all(static_cast<std::size_t>(options.ranks));
  options.report = [](std::string_view) {};
  options.reductions.packing = ReductionOptions::unpacked();
  try {
    sim::run(options, [&](Strategy& strategy, int rank) {
      all[static_cast<std::size_t>(rank)] = train_early_or_late(strategy, rank, sent);
    });
  } catch (const std::exception&) {  // one of those that each rank has caught
  }
  return all;
}

struct Nodes {
  int ranks, ranks_per_node;
  ReductionOptions::Kind kind = ReductionOptions::Kind::automatic;
};

}  // namespace

TEST_CASE("gradients that travel between nodes while others are computed have the same sums, also after a failure") {
  const Nodes layout =
      GENERATE(Nodes{2, 1}, Nodes{3, 1}, Nodes{4, 1}, Nodes{4, 2}, Nodes{8, 1, ReductionOptions::Kind::hierarchical});
  const bool shards = GENERATE(false, true), compresses = GENERATE(false, true);
  CAPTURE(layout.ranks, layout.ranks_per_node, shards, compresses);
  sim::Options options{.ranks = layout.ranks, .ranks_per_node = layout.ranks_per_node};
  options.reductions.kind = layout.kind;
  options.reductions.shard_optimizer = shards;
  if (compresses) options.reductions.gradient_compression = DType::bf16;
  sim::Options one_node = options;
  one_node.ranks_per_node = layout.ranks;
  const std::vector<Outcome> expected = outcomes(compresses ? options : one_node, Sent::late);
  for (options.seed = 0; options.seed < 2; ++options.seed) {
    const std::vector<Outcome> early = outcomes(options, Sent::early);
    for (int rank = 0; rank < layout.ranks; ++rank) {
      CAPTURE(options.seed, rank);
      const Outcome& own = early[static_cast<std::size_t>(rank)];
      const bool same_values = own.values == expected.front().values;
      CHECK(same_values);
      REQUIRE(own.failures.size() == 1);
      CHECK_THAT(own.failures.front(), Catch::Contains("on purpose"));
      CHECK(own.traffic.all > 0);
      // Ranks that share a node without sharing memory meet at the end.
      CHECK((own.traffic.begun > 0) == (layout.ranks_per_node == 1));
      CHECK(own.traffic.begun < own.traffic.all);
    }
  }
  CHECK(outcomes(one_node, Sent::early).front().traffic.all == 0);
  CHECK(outcomes(options, Sent::late).front().traffic.begun == 0);
}

}  // namespace lockstep::test::optim_overlap_cases
