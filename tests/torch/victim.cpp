// Trains until a fault, which strikes the last rank in its fourth step: mpirun -n 3 torch-jobs victim FAULT.
// rank_ends.py says what must come of it.
#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>

#include <torch/nn.h>
#include <torch/optim.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "jobs.hpp"

using namespace lockstep;

namespace {

/// At a place of the step, if the fault is to strike there.
struct Victim : torch::nn::Module {
  Victim() { register_module("layer", layer); }

  torch::Tensor forward(const torch::Tensor& x) {
    if (armed) strike("forward");
    torch::Tensor y = layer(x);
    y.register_hook([this](const torch::Tensor&) {
      if (armed) strike("backward");
    });
    return y;
  }

  void strike(const std::string& place) const {
    if (fault == "kill-" + place) std::raise(SIGKILL);
    if (fault == "stop-" + place) std::raise(SIGSTOP);
    if (fault == "throw-" + place) throw std::runtime_error{"bang"};
    while (fault == "hang-" + place) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  torch::nn::Linear layer{4, 2};
  std::string fault;
  bool armed = false;
};

void train_until(Runtime& runtime, const std::string& fault) {
  torch::set_num_threads(1);
  auto net = libtorch::DataParallel{runtime.strategy(), Victim{}};
  torch::optim::SGD sgd{net.parameters(), 1e-3};
  net->fault = fault;
  for (int step = 1;; ++step) {
    net->armed = step == 4 && runtime.rank() == runtime.size() - 1;
    runtime.strategy().run([&](ReplicaContext& context) {
      sgd.zero_grad();
      net.backward(context,
                   libtorch::Loss::sum(net->forward(torch::ones({3, 4}) * (runtime.rank() + 1)).square().sum(), 3));
      sgd.step();
    });
  }
}

}  // namespace

int lockstep::test::victim(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu", .stall_timeout = std::chrono::seconds{2}}; },
      [&](Runtime& runtime) { train_until(runtime, argc > 2 ? argv[2] : ""); });
}
