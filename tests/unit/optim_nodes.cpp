// Steps of ranks on several nodes that share an optimizer in slices.
#include <cstdint>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/optim/adamw.hpp>

#include "support/noise.hpp"
#include "support/quiet_log.hpp"

namespace lockstep::test::optim_nodes_cases {
namespace {

enum class Way { ready_gradients, samples, computation };

/// What a rank has after some steps.
struct Ended {
  std::vector<std::vector<float>> values;
  std::vector<double> norms;
  bool operator==(const Ended&) const = default;
};

/// Which variables of one piece of memory are updated. Its ends are two ranges, each of up to 64 KiB.
enum class Updated { all, ends };

Ended train(Strategy& strategy, int rank, Way way, Updated which) {
  std::vector<MirroredVariable> variables;
  for (const Shape& shape : {Shape{79, 201}, {77}, {150, 211}, {9001}})
    variables.push_back(strategy.create_variable({}, [&] { return test::noise(DType::f32, shape, variables.size()); }));
  strategy.seal();
  const std::vector<Variable> updated = which == Updated::all
                                            ? std::vector<Variable>(variables.begin(), variables.end())
                                            : std::vector<Variable>{variables.front(), variables.back()};
  AdamW optimizer{{.learning_rate = 0.1, .weight_decay = 0.1, .clip_norm = 2.0}};
  Ended ended;
  for (int step = 0; step < 3; ++step) {
    std::vector<Optimizer::Gradient> own;
    for (const Variable& each : updated) {
      const std::uint64_t seed = static_cast<std::uint64_t>(100 * step + 10 * rank) + own.size();
      own.push_back({test::noise(DType::f32, each.shape(), seed), each});
    }
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      for (const Optimizer::Gradient& each : own) agreed.ready(each.variable);
      return Optimizer::StepSums{.samples = rank + 1};
    };
    strategy.run([&](ReplicaContext& context) {
      switch (way) {
        case Way::ready_gradients: optimizer.apply_gradients(context, own); break;
        case Way::samples: optimizer.apply_gradients(context, own, rank + 1); break;
        case Way::computation: optimizer.apply_gradients(context, {.gradients = own, .computation = {compute}});
      }
    });
    ended.norms.push_back(optimizer.gradient_norm());
  }
  for (const MirroredVariable& each : variables) ended.values.push_back(each.local().to_vector<float>());
  return ended;
}

/// Of every rank.
std::vector<Ended> trained(sim::Options options, Way way, Updated which) {
  const test::QuietLog quiet;
  std::vector<Ended> all(static_cast<std::size_t>(options.ranks));
  sim::run(std::move(options), [&](Strategy& strategy, int rank) {
    all[static_cast<std::size_t>(rank)] = train(strategy, rank, way, which);
  });
  return all;
}

}  // namespace

TEST_CASE("on several nodes, also of unequal size, an optimizer in slices makes the same values and norms") {
  const ReductionOptions compressed{.gradient_compression = DType::bf16};
  const auto reductions = GENERATE_COPY(ReductionOptions{}, compressed);
  const int ranks_per_node = GENERATE(2, 3);
  const Way way = GENERATE(Way::ready_gradients, Way::samples, Way::computation);
  const Updated which = GENERATE(Updated::all, Updated::ends);
  CAPTURE(ranks_per_node, reductions.gradient_compression.has_value(), static_cast<int>(way), static_cast<int>(which));
  sim::Options whole{.ranks = 4, .ranks_per_node = ranks_per_node, .reductions = reductions};
  if (!reductions.gradient_compression) whole.reductions.kind = ReductionOptions::Kind::hierarchical;
  sim::Options parts = whole;
  parts.reductions.shard_optimizer = true;
  const auto expected = trained(whole, way, which);
  CHECK(expected.back() == expected.front());
  CHECK(trained(parts, way, which) == expected);
}

}  // namespace lockstep::test::optim_nodes_cases
