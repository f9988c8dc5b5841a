// What a runtime costs the program that it is a guest in: mpirun -n 2 bench-guest [ROUNDS]
//
// The ranks exchange halos in a ring, with messages of the program's own: without a runtime, beside one that only
// watches on the same ranks, and beside two, one on each half of the ranks. The three alternate, round after round. The
// result is one JSON object: the median time of an exchange without, and the medians over the rounds of the others'
// times over that of the same round.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include <mpi.h>

#include <lockstep/job/runtime/runtime.hpp>

namespace {

using lockstep::Runtime;

constexpr int batches = 60, exchanges = 50, doubles = 512;

enum Host { without, same_ranks, halves, hosts };

int rank_in(MPI_Comm group) {
  int rank = 0;
  MPI_Comm_rank(group, &rank);
  return rank;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Microseconds of an exchange, on the slowest rank: the median over batches that are short enough to lie between the
/// turns of other processes.
double exchange(int rank, int ranks) {
  std::vector<double> own(doubles, rank), left(doubles), right(doubles), times(batches);
  const int before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
  MPI_Barrier(MPI_COMM_WORLD);
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < exchanges; ++i) {
      MPI_Sendrecv(own.data(), doubles, MPI_DOUBLE, before, 0, right.data(), doubles, MPI_DOUBLE, after, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Sendrecv(own.data(), doubles, MPI_DOUBLE, after, 1, left.data(), doubles, MPI_DOUBLE, before, 1,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    time = std::chrono::duration<double, std::micro>{std::chrono::steady_clock::now() - start}.count() / exchanges;
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), batches, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return median(std::move(times));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 31, rank = rank_in(MPI_COMM_WORLD);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks / 2 ? 0 : 1, 0, &half);
  std::array<std::vector<double>, hosts> times;
  std::chrono::duration<double> watched{0}, used{0};
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < hosts; ++turn) {
      // Each comes first as often as the others.
      const int host = (round + turn) % hosts;
      std::optional<Runtime> runtime;
      if (host != without)
        runtime.emplace(lockstep::RuntimeOptions{.device = "cpu",
                                                 .communicator = MPI_Comm_c2f(host == halves ? half : MPI_COMM_WORLD)});
      const auto start = std::chrono::steady_clock::now();
      const auto used_before = runtime ? runtime->watchdog_cpu_time() : std::chrono::nanoseconds{0};
      times[static_cast<std::size_t>(host)].push_back(exchange(rank, ranks));
      if (!runtime) continue;
      watched += std::chrono::steady_clock::now() - start;
      used += runtime->watchdog_cpu_time() - used_before;
    }
  }
  std::array<double, hosts> ratios{};
  for (int host = 0; host < hosts; ++host) {
    std::vector<double> over;
    for (int round = 0; round < rounds; ++round)
      over.push_back(times[static_cast<std::size_t>(host)][static_cast<std::size_t>(round)] /
                     times[without][static_cast<std::size_t>(round)]);
    ratios[static_cast<std::size_t>(host)] = median(over);
  }
  if (rank == 0)
    std::printf(
        R"({"bench":"guest","ranks":%d,"rounds":%d,"bytes":%d,"exchange_us":%.3f,"same_ranks":%.4f,"halves":%.4f,)"
        R"("cpu":%.3f})"
        "\n",
        ranks, rounds, doubles * static_cast<int>(sizeof(double)), median(times[without]), ratios[same_ranks],
        ratios[halves], 100 * used / watched);
  MPI_Comm_free(&half);
  MPI_Finalize();
}
