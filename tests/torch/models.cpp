// What train_like_ddp.py compares with Python: mpirun -n 2 torch-jobs models MODEL FOLDER. Loads the weights of
// Python, trains one of the models of bench-torch in f64 on the samples that Python has made for each rank, and prints
// the losses.
#include "apps/bench-torch/models.hpp"

#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <torch/optim.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "arrays.hpp"
#include "jobs.hpp"

using namespace lockstep;

namespace {

void train_model(Runtime& runtime, const std::string& name, const std::string& folder) {
  constexpr std::int64_t steps = 5;
  torch::set_num_threads(1);
  const std::shared_ptr<bench_torch::Model> model = bench_torch::make_model(name);
  model->to(torch::kDouble);
  auto net = libtorch::DataParallel{runtime.strategy(), model};
  load_weights(runtime.strategy(), folder + "/weights.safetensors");
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (name == "gpt")
    optimizer =
        std::make_unique<torch::optim::AdamW>(net.parameters(), torch::optim::AdamWOptions{1e-3}.weight_decay(0));
  else
    optimizer = std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions{1e-3}.momentum(0.9));

  const bool text = name == "gpt";
  const std::string own = fmt::format("{}/rank-{}-", folder, runtime.rank());
  const torch::Tensor inputs =
      text ? test::read_doubles(own + "inputs", {steps, -1, bench_torch::context}).to(torch::kLong)
           : test::read_doubles(own + "inputs", {steps, -1, 1, bench_torch::side, bench_torch::side});
  const torch::Tensor labels = test::read_doubles(own + "labels", {steps, -1}).to(torch::kLong);
  for (std::int64_t step = 0; step < steps; ++step)
    runtime.strategy().run([&](ReplicaContext& context) {
      optimizer->zero_grad();
      const torch::Tensor scores = net->forward(inputs[step]).flatten(0, -2).log_softmax(1);
      const auto loss = torch::nll_loss(scores, labels[step], {}, torch::Reduction::Sum);
      const libtorch::ReplicatedModule::MeanLoss mean =
          net.backward(context, libtorch::Loss::sum(loss, labels[step].size(0)));
      if (runtime.is_chief()) std::printf("%.17g\n", mean.mean);
      optimizer->step();
    });
}

}  // namespace

int lockstep::test::models(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { train_model(runtime, argc > 2 ? argv[2] : "mlp", argc > 3 ? argv[3] : "."); });
}
