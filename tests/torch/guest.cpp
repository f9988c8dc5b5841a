// The bridge in a program that owns MPI: even and odd ranks train a module each, with a runtime of their own:
// mpirun -n 4 torch-jobs guest.
#include <cstdio>

#include <mpi.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "jobs.hpp"

using namespace lockstep;

namespace {

/// The weight after a step of which the mean gradient is the mean of the part's samples.
float weight_after_step(int rank, MPI_Comm part) {
  Runtime runtime{{.device = "cpu", .communicator = MPI_Comm_c2f(part)}};
  Strategy& strategy = runtime.strategy();
  torch::set_num_threads(1);
  auto net = libtorch::DataParallel{strategy, torch::nn::Linear{torch::nn::LinearOptions{1, 1}.bias(false)}};
  torch::nn::init::zeros_(net.parameters()[0]);
  torch::optim::SGD sgd{net.parameters(), 1};
  strategy.run([&](ReplicaContext& context) {
    sgd.zero_grad();
    net.backward(context, libtorch::Loss::sum(net->forward(torch::full({1, 1}, rank + 1.)).sum(), 1));
    sgd.step();
  });
  return net.parameters()[0].item<float>();
}

}  // namespace

int lockstep::test::guest(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part);
  const float weight = weight_after_step(rank, part), expected = rank % 2 == 0 ? -2 : -3;
  if (weight != expected) std::printf("rank %d has weight %g, expected %g of 4 ranks\n", rank, weight, expected);
  int failed = weight != expected || size != 4 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Comm_free(&part);
  MPI_Finalize();
  return failed;
}
