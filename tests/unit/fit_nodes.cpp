// Steps of ranks on several nodes that share an optimizer in slices.
#include <cstdint>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/optim/adamw.hpp>
#include <lockstep/sim/sim.hpp>

#include "base/element_count.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;

namespace {

/// Not exact, and others for other seeds.
Tensor inexact(const Shape& shape, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  std::uint64_t state = 2 * seed + 1;
  for (float& value : values) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = static_cast<float>(state >> 40) / (1 << 24) - 0.5F;
  }
  return Tensor::from(values, shape);
}

enum class Way { ready_gradients, samples, computation };

/// What a rank has after some steps.
struct Ended {
  std::vector<std::vector<float>> values;
  std::vector<double> norms;
  bool operator==(const Ended&) const = default;
};

Ended train(Strategy& strategy, int rank, Way way) {
  std::vector<MirroredVariable> variables;
  for (const Shape& shape : {Shape{150, 211}, {77}, {9001}})
    variables.push_back(strategy.create_variable({}, [&] { return inexact(shape, variables.size()); }));
  strategy.seal();
  AdamW optimizer{{.learning_rate = 0.1, .weight_decay = 0.1, .clip_norm = 2.0}};
  Ended ended;
  for (int step = 0; step < 3; ++step) {
    std::vector<Optimizer::Gradient> own;
    for (const Variable& each : variables)
      own.push_back({inexact(each.shape(), static_cast<std::uint64_t>(100 * step + 10 * rank) + own.size()), each});
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      for (const Optimizer::Gradient& each : own) agreed.ready(each.variable);
      return Optimizer::StepSums{.samples = rank + 1};
    };
    strategy.run([&](ReplicaContext& context) {
      switch (way) {
        case Way::ready_gradients: return optimizer.apply_gradients(context, own);
        case Way::samples: return optimizer.apply_gradients(context, own, std::int64_t{rank + 1});
        case Way::computation: (void)optimizer.apply_gradients(context, own, Optimizer::Computation{compute});
      }
    });
    ended.norms.push_back(optimizer.gradient_norm());
  }
  for (const MirroredVariable& each : variables) ended.values.push_back(each.local().to_vector<float>());
  return ended;
}

/// Of every rank.
std::vector<Ended> trained(sim::Options options, Way way) {
  const test::QuietLog quiet;
  std::vector<Ended> all(static_cast<std::size_t>(options.ranks));
  sim::run(std::move(options),
           [&](Strategy& strategy, int rank) { all[static_cast<std::size_t>(rank)] = train(strategy, rank, way); });
  return all;
}

}  // namespace

TEST_CASE("on several nodes, also of unequal size, an optimizer in slices makes the same values and norms") {
  ReductionOptions compressed{.gradient_compression = DType::bf16};
  for (const ReductionOptions& reductions : {ReductionOptions{}, compressed})
    for (const int ranks_per_node : {2, 3}) {
      for (const Way way : {Way::ready_gradients, Way::samples, Way::computation}) {
        CAPTURE(ranks_per_node, reductions.gradient_compression.has_value(), static_cast<int>(way));
        sim::Options whole{.ranks = 4, .ranks_per_node = ranks_per_node, .reductions = reductions};
        if (!reductions.gradient_compression) whole.reductions.kind = ReductionOptions::Kind::hierarchical;
        sim::Options parts = whole;
        parts.reductions.shard_optimizer = true;
        const auto expected = trained(whole, way);
        CHECK(expected.back() == expected.front());
        CHECK(trained(parts, way) == expected);
      }
    }
}
