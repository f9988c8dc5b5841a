// Modules on the strategy's device, against one process of torch's on the CPU. Also for real GPUs.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

torch::nn::Sequential layers() {
  torch::manual_seed(5);
  // A bias before a batch norm has a gradient of rounding errors alone, which AdamW makes as large as any.
  torch::nn::Sequential layers{torch::nn::Conv2d{torch::nn::Conv2dOptions{1, 3, 2}.bias(false)},
                               torch::nn::BatchNorm2d{3}, torch::nn::ReLU{}, torch::nn::Flatten{},
                               torch::nn::Linear{27, 2}};
  layers->to(at::kDouble);
  return layers;
}

at::Tensor loss_of(torch::nn::SequentialImpl& net, const at::Tensor& x) {
  return net.forward(x).square().sum();
}

void check_equal(const torch::nn::Module& net, const torch::nn::Module& expected) {
  const auto parameters = expected.named_parameters(), buffers = expected.named_buffers();
  for (const auto& each : net.named_parameters()) {
    CAPTURE(each.key());
    CHECK(torch::allclose(each.value().cpu(), parameters[each.key()], 1e-9, 1e-11));
  }
  for (const auto& each : net.named_buffers()) {
    CAPTURE(each.key());
    CHECK(torch::allclose(each.value().cpu(), buffers[each.key()], 1e-9, 1e-11));
  }
}

}  // namespace

TEST_CASE("steps on the strategy's device are those of one process on the CPU", "[device]") {
  Strategy strategy = runtime().make_strategy();
  torch::nn::Sequential whole = layers();
  torch::nn::Sequential synchronous = layers();
  libtorch::SyncBatchNorm::convert(*synchronous);
  auto net = libtorch::DataParallel{strategy, synchronous};
  CHECK(net->parameters()[0].device() == net.device());
  auto adamw = net.optimizer(AdamW::Options{.learning_rate = 0.05});
  torch::optim::AdamW expected{whole->parameters(), torch::optim::AdamWOptions{0.05}.weight_decay(0)};
  for (int step = 0; step < 4; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const at::Tensor x = torch::rand({triangle(), 1, 4, 4}, at::kDouble);
    strategy.run([&](ReplicaContext& context) {
      // Rank r has r + 1 samples.
      const at::Tensor mine = x.slice(0, rank() * (rank() + 1) / 2, (rank() + 1) * (rank() + 2) / 2).to(net.device());
      adamw.zero_grad();
      const libtorch::ReplicatedModule::MeanLoss loss =
          net.backward(context, libtorch::Loss::sum(loss_of(*net, mine), mine.size(0)));
      CHECK(loss.samples == triangle());
      net.clip_norm(0.5);
      adamw.step(context);
    });
    expected.zero_grad();
    (loss_of(*whole, x) / x.size(0)).backward();
    // Without the 1e-6 that torch's clip_grad_norm_ adds to the norm.
    at::Tensor squares = torch::zeros({}, at::kDouble);
    for (const at::Tensor& each : whole->parameters()) squares += each.grad().square().sum();
    for (const at::Tensor& each : whole->parameters()) each.grad().mul_(0.5 / squares.sqrt().clamp_min(0.5));
    expected.step();
    check_equal(*net, *whole);
  }
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("shards on the strategy's device are those of one process on the CPU", "[device]") {
  Strategy strategy = runtime().make_strategy();
  const int shards = 4 * ranks();
  torch::nn::Sequential whole = layers();
  auto net = libtorch::DataParallel{strategy, layers()};
  const auto samples_of = [](int shard) {
    torch::manual_seed(static_cast<std::uint64_t>(shard));
    return torch::rand({3, 1, 4, 4}, at::kDouble);
  };
  strategy.run([&](ReplicaContext& context) {
    const libtorch::ReplicatedModule::MeanLoss loss =
        net.backward_shards(context, shards, [&](int shard) -> libtorch::Loss {
          return libtorch::Loss::sum(loss_of(*net, samples_of(shard).to(net.device())), 3);
        });
    CHECK(loss.samples == 3 * shards);
  });

  const at::Tensor running_mean = whole->named_buffers()["1.running_mean"];
  at::Tensor sum_of_means = torch::zeros({3}, at::kDouble);
  for (int shard = 0; shard < shards; ++shard) {
    running_mean.zero_();
    loss_of(*whole, samples_of(shard)).backward();
    sum_of_means += running_mean;
  }
  CHECK(torch::allclose(net->named_buffers()["1.running_mean"].cpu(), sum_of_means / shards, 1e-9, 1e-11));
  const auto expected = whole->named_parameters();
  for (const auto& each : net->named_parameters()) {
    CAPTURE(each.key());
    CHECK(torch::allclose(each.value().grad().cpu(), expected[each.key()].grad() / (3 * shards), 1e-9, 1e-11));
  }
}
