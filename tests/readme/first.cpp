// Fits a plane to 128 points, which the ranks share: mpirun -n 2 first
#include <cstdio>

#include <lockstep/training.hpp>
using namespace lockstep;

void train(Runtime& runtime) {
  std::vector<float> w(3);  // z = w[0] x + w[1] y + w[2], the same on every rank
  for (int step = 0; step < 500; ++step)
    runtime.strategy().run([&](ReplicaContext& context) {
      std::vector<float> gradient(3);  // of this rank's points
      for (int i = context.replica_id_in_sync_group(); i < 128; i += context.num_replicas_in_sync()) {
        const float x[] = {float(i % 17) / 16, float(i % 23) / 22, 1}, z = 3 * x[0] - 2 * x[1] + 1;
        const float error = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] - z;
        for (std::size_t k = 0; k < 3; ++k) gradient[k] += error * x[k] / 128;
      }
      gradient = context.all_reduce(ReduceOp::sum, gradient);  // the sum over all ranks
      for (std::size_t k = 0; k < 3; ++k) w[k] -= gradient[k];
    });
  if (runtime.is_chief()) std::printf("z = %.3f x %+.3f y %+.3f\n", w[0], w[1], w[2]);
}

int main(int argc, char** argv) {
  return run_program(argc, argv, {.device = "cpu"}, train);
}
