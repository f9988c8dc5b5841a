// Fits a plane to 128 points, which the ranks share: mpirun -n 2 gentle
#include <algorithm>
#include <cstdio>

#include <lockstep/training.hpp>

using namespace lockstep;

void train(Runtime& runtime) {
  Strategy& strategy = runtime.strategy();
  const auto plane = strategy.create_variable({.name = "plane"}, [] { return Tensor::zeros(DType::f32, {3}); });
  strategy.seal();  // gives the variable its memory, and replica 0's initial values on every rank
  const auto w = plane.local().elements<float>();
  const Tensor gradient = Tensor::zeros(DType::f32, {3});
  const auto sum = gradient.view().elements<float>();
  Sgd sgd{{.learning_rate = 0.5, .momentum = 0.9}};

  for (int step = 0; step < 150; ++step)
    strategy.run([&](ReplicaContext& context) {
      std::ranges::fill(sum, 0.0F);
      std::int64_t samples = 0;
      for (int i = context.replica_id_in_sync_group(); i < 128; i += context.num_replicas_in_sync(), ++samples) {
        const float x[] = {float(i % 17) / 16, float(i % 23) / 22, 1}, z = 3 * x[0] - 2 * x[1] + 1;
        const float error = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] - z;
        for (std::size_t k = 0; k < 3; ++k) sum[k] += error * x[k];
      }
      sgd.apply_gradients(context, {{gradient, plane}}, samples);  // the sum over the ranks, divided by all samples
    });
  if (runtime.is_chief()) std::printf("z = %.3f x %+.3f y %+.3f\n", w[0], w[1], w[2]);
}

int main(int argc, char** argv) {
  return run_program(argc, argv, {.device = "cpu"}, train);
}
