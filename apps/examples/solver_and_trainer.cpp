// A solver and a trainer in one job, which goes on where it was killed: mpirun -n 4 example-solver-and-trainer FOLDER
// [STEPS]
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <mpi.h>

#include <lockstep/training.hpp>

using namespace lockstep;

namespace {

constexpr int cells = 256, shards = 16;

/// The job's ranks: the first half solves, the rest trains.
struct Job {
  int rank = 0, size = 0;
  bool trains = false;
  int first_trainer = 0;             ///< in MPI_COMM_WORLD
  MPI_Comm group = MPI_COMM_NULL;    ///< the solver's ranks, or the trainer's
  MPI_Comm between = MPI_COMM_NULL;  ///< the solver's first rank, which is its rank 0, and all of the trainer's

  Job() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    first_trainer = size / 2;
    trains = rank >= first_trainer;
    MPI_Comm_split(MPI_COMM_WORLD, trains ? 1 : 0, 0, &group);
    MPI_Comm_split(MPI_COMM_WORLD, trains || rank == 0 ? 0 : MPI_UNDEFINED, 0, &between);
  }
  Job(const Job&) = delete;
  ~Job() {
    MPI_Comm_free(&group);
    if (between != MPI_COMM_NULL) MPI_Comm_free(&between);
  }

  /// The trainer's checkpoint says where both continue.
  void share_start(int& step, float* temperatures) const {
    MPI_Bcast(&step, 1, MPI_INT, first_trainer, MPI_COMM_WORLD);
    MPI_Bcast(temperatures, cells, MPI_FLOAT, first_trainer, MPI_COMM_WORLD);
  }
};

/// Heat in a ring of cells: u[i] becomes 0.2 u[i-1] + 0.6 u[i] + 0.2 u[i+1]. In each step one cell is heated.
void solve(const Job& job, int steps) {
  int first_step = 0, place = 0, ranks = 0;
  std::vector<float> all(cells);
  job.share_start(first_step, all.data());
  MPI_Comm_rank(job.group, &place);
  MPI_Comm_size(job.group, &ranks);
  const int mine = cells / ranks, first = place * mine, left = (place + ranks - 1) % ranks, right = (place + 1) % ranks;
  // This rank's cells, between one cell of each neighbour.
  std::vector<float> u(mine + 2), next(mine + 2), both(2 * cells);
  std::copy_n(&all[first], mine, &u[1]);
  for (int step = first_step; step < steps; ++step) {
    if (const int heated = step * 37 % cells; heated / mine == place) u[heated - first + 1] += 1;
    MPI_Sendrecv(&u[1], 1, MPI_FLOAT, left, 0, &u[mine + 1], 1, MPI_FLOAT, right, 0, job.group, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u[mine], 1, MPI_FLOAT, right, 1, &u[0], 1, MPI_FLOAT, left, 1, job.group, MPI_STATUS_IGNORE);
    for (int i = 1; i <= mine; ++i) next[i] = 0.2F * u[i - 1] + 0.6F * u[i] + 0.2F * u[i + 1];
    MPI_Gather(&u[1], mine, MPI_FLOAT, both.data(), mine, MPI_FLOAT, 0, job.group);
    MPI_Gather(&next[1], mine, MPI_FLOAT, &both[cells], mine, MPI_FLOAT, 0, job.group);
    if (place == 0) MPI_Bcast(both.data(), 2 * cells, MPI_FLOAT, 0, job.between);
    std::swap(u, next);
  }
}

/// Learns the rule of the solver from what it sends: the temperatures before and after each step.
void train(const Job& job, int steps, const std::filesystem::path& folder) {
  Runtime runtime{{.device = "cpu", .communicator = MPI_Comm_c2f(job.group)}};
  Strategy& strategy = runtime.strategy();
  const auto rule = strategy.create_variable({.name = "rule"}, [] { return Tensor::zeros(DType::f32, {3}); });
  // In the checkpoint too, so that the solver continues from the same step.
  const auto heat = strategy.create_variable({.name = "heat", .trainable = false}, [] {
    return Tensor::zeros(DType::f32, {2, cells});
  });
  strategy.seal();
  AdamW adamw{{.learning_rate = LearningRate{0.02}}};
  adamw.prepare(strategy, {rule});
  CheckpointManager checkpoints{strategy, {.folder = folder, .every = 50}};
  const auto resumed = checkpoints.resume_latest();
  int first_step = resumed ? static_cast<int>(resumed->step) : 0;
  const auto w = rule.local().elements<float>(), both = heat.local().elements<float>();
  const auto before = both.first(cells), after = both.last(cells);
  job.share_start(first_step, after.data());

  const std::vector<Optimizer::Gradient> gradients = Optimizer::gradients_in_store(strategy.store(), {rule});
  FixedOrderAccumulator sum{DType::f32, 3};
  const Range own = Range::of_rank(shards, runtime.size(), runtime.rank());
  const char* const kill = std::getenv("KILL_IN_STEP");  // to see what becomes of the job
  for (int step = first_step; step < steps; ++step) {
    MPI_Bcast(both.data(), 2 * cells, MPI_FLOAT, 0, job.between);
    strategy.set_step(step + 1);
    strategy.run([&](ReplicaContext& context) {
      if (kill && step + 1 == std::atoi(kill) && runtime.is_chief()) (void)std::raise(SIGKILL);
      Optimizer::StepSums mine;
      for (auto shard = own.first; shard < own.last; ++shard) {
        const auto gradient = sum.next().elements<float>();
        std::ranges::fill(gradient, 0.F);
        const Range part = Range::of_shard(cells, shards, shard);
        for (auto i = part.first; i < part.last; ++i) {
          const float x[] = {before[(i + cells - 1) % cells], before[i], before[(i + 1) % cells]};
          const float error = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] - after[i];
          for (int k = 0; k < 3; ++k) gradient[k] += error * x[k];
        }
        mine.samples += part.last - part.first;
        sum.push();
      }
      sum.finish(gradients[0].value.view());
      return adamw.apply_gradients(context, gradients, mine);
    });
    checkpoints.after_step(step + 1);
  }
  checkpoints.finish();
  if (runtime.is_chief())
    std::printf("from step %d: u[i] becomes %.3f u[i-1] %+.3f u[i] %+.3f u[i+1], weights %s\n", first_step, w[0], w[1],
                w[2], to_hex(weights_digest({rule})).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const Job job;
    if (job.size % 2 != 0 || shards % (job.size / 2) != 0) {
      std::fprintf(stderr, "%d ranks: expected 2, 4, 8, 16 or 32\n", job.size);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int steps = argc > 2 ? std::atoi(argv[2]) : 400;
    if (job.trains) {
      train(job, steps, argc > 1 ? argv[1] : "checkpoints");
    } else {
      solve(job, steps);
    }
  }
  MPI_Finalize();
}
