// Fits a plane to points, on any number of ranks: mpirun -n 2 trainer
#include <cstdio>

#include <lockstep/training.hpp>

using namespace lockstep;

void train(Runtime& runtime) {
  Strategy& strategy = runtime.strategy();
  const auto plane = strategy.create_variable({.name = "plane"}, [] { return Tensor::zeros(DType::f32, {3}); });
  strategy.seal();  // allocates variables and gradients, and copies replica 0's values to every rank
  const std::vector<Optimizer::Gradient> gradients = Optimizer::gradients_in_store(strategy.store(), {plane});
  const std::span<const float> w = plane.local().elements<float>();
  FixedOrderAccumulator sum{DType::f32, 3};
  Sgd sgd{{.learning_rate = 0.5, .momentum = 0.9}};

  for (int step = 0; step < 150; ++step) {
    const PerReplica<Optimizer::StepSums> sums = strategy.run([&](ReplicaContext& context) {
      const Range points = Range::of_rank(128, context.num_replicas_in_sync(), context.replica_id_in_sync_group());
      Optimizer::StepSums mine{.samples = points.last - points.first};
      for (auto i = step * 128 + points.first; i < step * 128 + points.last; ++i) {
        const float x[] = {float(i % 17) / 16, float(i % 23) / 22, 1}, z = 3 * x[0] - 2 * x[1] + 1;
        const float error = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] - z;
        for (std::size_t k = 0; k < 3; ++k) sum.next().elements<float>()[k] = error * x[k];
        sum.push();  // each of the 128 points is a shard: its gradient is a leaf of the tree that is summed
        mine.loss += error * error / 2;
      }
      sum.finish(gradients[0].value.view());
      // One merge_call, which goes on with the tree over the ranks: every rank makes the same update.
      return sgd.apply_gradients(context, {.gradients = gradients, .own = mine, .shards = 128});
    });
    if (runtime.is_chief() && step % 50 == 0) std::printf("step %d: loss %.6f\n", step, sums.local().loss / 128);
  }
  if (runtime.is_chief())
    std::printf("z = %.3f x %+.3f y %+.3f, weights %s\n", w[0], w[1], w[2], to_hex(weights_digest({plane})).c_str());
}

int main(int argc, char** argv) {
  return run_program(argc, argv, {.device = "cpu"}, train);
}
