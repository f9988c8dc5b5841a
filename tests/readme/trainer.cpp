// Fits a plane to points, on any number of ranks: mpirun -n 2 trainer
#include <algorithm>
#include <cstdio>

#include <lockstep/lockstep.hpp>

using namespace lockstep;

struct Point {
  float x, y, z;
};

// Your data: any rank can load any sample. A sample is known by its index in the whole, never by a rank.
Point load_point(std::int64_t index) {
  const float x = static_cast<float>(index % 17) / 16, y = static_cast<float>(index % 23) / 22;
  return {x, y, 3 * x - 2 * y + 1};
}

void train(Runtime& runtime) {
  Strategy& strategy = runtime.strategy();
  const Scope scope = strategy.scope();
  const auto plane = strategy.create_variable({.name = "plane"}, [] { return Tensor::zeros(DType::f32, {3}); });
  strategy.seal();  // memory for variables and gradients, and replica 0's values on every rank

  constexpr std::int64_t steps = 150, global_batch = 100;
  const int ranks = strategy.num_replicas_in_sync(), shards = resolve_shards({}, ranks).shards;
  const std::vector<Gradient> gradients = gradients_in_store(strategy.store(), {plane});
  const std::span<const float> weights = plane.local().elements<float>();
  FixedOrderAccumulator shard_sums{DType::f32, 3};
  Sgd sgd{{.learning_rate = 0.5, .momentum = 0.9}};

  for (std::int64_t step = 0; step < steps; ++step) {
    const PerReplica<double> loss = strategy.run([&](ReplicaContext& context) {
      const Range mine = shards_of_rank(shards, ranks, context.replica_id_in_sync_group());
      double my_loss = 0;
      std::int64_t my_samples = 0;
      for (auto shard = mine.first; shard < mine.last; ++shard) {
        const std::span<float> gradient = shard_sums.next().elements<float>();
        std::ranges::fill(gradient, 0.0F);
        const Range slice = shard_range(global_batch, shards, static_cast<int>(shard));
        for (auto i = slice.first; i < slice.last; ++i, ++my_samples) {
          const Point point = load_point(step * global_batch + i);
          const float error = weights[0] * point.x + weights[1] * point.y + weights[2] - point.z;
          gradient[0] += error * point.x;
          gradient[1] += error * point.y;
          gradient[2] += error;
          my_loss += error * error / 2;
        }
        shard_sums.push();
      }
      shard_sums.finish(gradients[0].value.view());
      sgd.apply_gradients(context, gradients, my_samples);  // on every rank the same update, from all samples
      return context.all_reduce(ReduceOp::sum, my_loss) / global_batch;
    });
    if (runtime.is_chief() && step % 50 == 0) std::printf("step %d: loss %.6f\n", static_cast<int>(step), loss.local());
  }
  if (runtime.is_chief())
    std::printf("z = %.3f x %+.3f y %+.3f, weights %s\n", weights[0], weights[1], weights[2],
                to_hex(weights_digest({plane})).c_str());
}

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; }, train);
}
