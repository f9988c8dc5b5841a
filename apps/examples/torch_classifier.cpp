// Trains a residual network of LibTorch on IDX images: mpirun -n 2 torch-classifier DIRECTORY
#include <cstdio>

#include <torch/nn.h>
#include <torch/optim.h>

#include <lockstep/models.hpp>
#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sampler.hpp>

using namespace lockstep;

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t classes) : out{16 * 7 * 7, classes} {
    register_module("stem", stem);
    register_module("block", block);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(stem(x));
    x = torch::relu(x + block->forward(x));
    return out(torch::max_pool2d(x, 2).flatten(1));
  }
  using Conv = torch::nn::Conv2dOptions;
  torch::nn::Conv2d stem{Conv{1, 16, 3}.stride(2).padding(1)};
  torch::nn::Sequential block{torch::nn::Conv2d{Conv{16, 16, 3}.padding(1).bias(false)}, torch::nn::BatchNorm2d{16},
                              torch::nn::ReLU{}, torch::nn::Conv2d{Conv{16, 16, 3}.padding(1)}};
  torch::nn::Linear out;
};
TORCH_MODULE(Net);

struct Images {
  explicit Images(const ImageData::Set& set)
      : pixels{torch::tensor(set.pixels).view({set.count(), 1, set.rows, set.columns}).to(torch::kFloat).div_(255)},
        labels{torch::tensor(set.labels).to(torch::kLong)} {}
  torch::Tensor pixels, labels;
};

void run(Runtime& runtime, const char* directory) {
  constexpr std::int64_t classes = 10, batch_size = 100, epochs = 2;
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const ImageData data = ImageData::load(directory, classes);
  const Images train{data.train}, test{data.test};
  auto net = libtorch::DataParallel{runtime.strategy(), Net{classes}};  // replica 0's parameters on every rank
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{2e-3}};

  const auto mine = [&](const torch::Tensor& all) {
    const Range rows = Range::of_shard(all.size(0), runtime.size(), runtime.rank());
    return all.slice(0, rows.first, rows.last);
  };
  libtorch::ReplicatedModule::MeanLoss loss;
  libtorch::Sampler sampler{runtime.strategy(), data.train.count(), {.seed = 1}};
  for (; sampler.epoch() < epochs; sampler.reset())
    while (const auto rows = sampler.next(batch_size))  // this rank's part of the batch
      runtime.strategy().run([&](ReplicaContext& context) {
        const auto samples = torch::tensor(std::vector<std::int64_t>(rows->begin(), rows->end()), torch::kLong);
        adamw.zero_grad();
        const auto scores = net->forward(train.pixels.index({samples}));
        const auto mean = torch::cross_entropy_loss(scores, train.labels.index({samples}));
        loss = net.backward(context, libtorch::Loss::mean(mean, double(samples.size(0))));
        adamw.step();
      });
  net->eval();
  const torch::NoGradGuard no_gradients;
  const auto hits = net->forward(mine(test.pixels)).argmax(1).eq(mine(test.labels)).sum().item<std::int64_t>();
  const double right = double(runtime.strategy().reduce(ReduceOp::sum, PerReplica{hits}));
  const double accuracy = right / double(data.test.count());
  if (runtime.is_chief()) std::printf("train loss %.3f, test accuracy %.3f\n", loss.mean, accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { run(runtime, argc > 1 ? argv[1] : "apps/data/fashion-mnist-small"); });
}
