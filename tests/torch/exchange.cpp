// What train_like_python.py compares with Python: mpirun -n 2 torch-jobs exchange FOLDER. Loads the weights of Python,
// and then a script, trains both on the samples that Python has made, prints the losses, and saves them for Python.
#include <cstdio>
#include <string>

#include <torch/nn.h>
#include <torch/optim.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/script.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "arrays.hpp"
#include "jobs.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t batch = 6, steps = 20;

struct Net : torch::nn::Module {
  Net() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("hidden", hidden);
    register_module("layer_norm", layer_norm);
    register_module("out", out);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto features = torch::relu(norm(conv(x))).flatten(1);
    return out(layer_norm(torch::gelu(hidden(features))));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions{1, 4, 3}.bias(false)};
  libtorch::SyncBatchNorm norm{4};
  torch::nn::Linear hidden{4 * 4 * 4, 16}, out{16, 5};
  torch::nn::LayerNorm layer_norm{torch::nn::LayerNormOptions{{16}}};
};

/// This rank's part of Python's samples.
struct Samples {
  torch::Tensor images, labels;

  Samples(const Runtime& runtime, const std::string& folder)
      : images{test::read_doubles(folder + "/images", {steps, batch, 1, 6, 6})},
        labels{test::read_doubles(folder + "/labels", {steps, batch}).to(torch::kLong)} {
    // Uneven, so that a mean of means would be wrong.
    const std::int64_t cut = runtime.size() == 1 ? batch : 2;
    const std::int64_t first = runtime.rank() == 0 ? 0 : cut, last = runtime.rank() == 0 ? cut : batch;
    images = images.slice(1, first, last);
    labels = labels.slice(1, first, last);
  }
};

template <class Net, class Forward>
void train(Runtime& runtime, Strategy& strategy, Net& net, const Samples& samples, const Forward& forward) {
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{1e-2}};
  for (std::int64_t step = 0; step < steps; ++step)
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      const auto labels = samples.labels[step];
      const auto loss =
          torch::nll_loss(forward(samples.images[step]).log_softmax(1), labels, {}, torch::Reduction::Sum);
      const libtorch::ReplicatedModule::MeanLoss mean =
          net.backward(context, libtorch::Loss::sum(loss, labels.size(0)));
      if (runtime.is_chief()) std::printf("%.17g\n", mean.mean);
      adamw.step();
    });
}

void train_both(Runtime& runtime, const std::string& folder) {
  torch::set_num_threads(1);
  const Samples samples{runtime, folder};
  auto net = libtorch::DataParallel{runtime.strategy(), Net{}};
  load_weights(runtime.strategy(), folder + "/of-python.safetensors");
  train(runtime, runtime.strategy(), net, samples, [&](const torch::Tensor& x) { return net->forward(x); });
  save_weights(runtime.strategy(), folder + "/of-lockstep.safetensors");

  Strategy strategy = runtime.make_strategy();
  libtorch::DataParallel script{strategy, torch::jit::load(folder + "/of-python.pt")};
  train(runtime, strategy, script, samples, [&](const torch::Tensor& x) { return script->forward({x}).toTensor(); });
  save_weights(strategy, folder + "/script-of-lockstep.safetensors");
  if (runtime.is_chief()) script->save(folder + "/of-lockstep.pt");
}

}  // namespace

int lockstep::test::exchange(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { train_both(runtime, argc > 2 ? argv[2] : "."); });
}
