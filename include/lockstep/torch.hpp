// LibTorch's modules as replicas. For programs that link lockstep-torch, and LibTorch. The smallest one:
//
//   #include <cstdio>
//   #include <torch/nn.h>
//   #include <torch/optim.h>
//   #include <lockstep/torch.hpp>
//   using namespace lockstep;
//
//   int main(int argc, char** argv) {
//     return run_program(argc, argv, {.device = "cpu"}, [](Runtime& runtime) {
//       auto net = libtorch::DataParallel{runtime.strategy(), torch::nn::Linear{2, 1}};
//       torch::optim::SGD sgd{net.parameters(), 0.1};
//       const auto x = torch::full({4, 2}, double(runtime.rank() + 1));  // this rank's samples
//       for (int i = 0; i < 10; ++i)
//         runtime.strategy().run([&](ReplicaContext& context) {
//           sgd.zero_grad();
//           const auto loss = torch::mse_loss(net->forward(x), torch::ones({4, 1}));
//           const auto mean = net.backward(context, libtorch::Loss::mean(loss, double(x.size(0))));
//           if (i == 9 && runtime.is_chief()) std::printf("%.3f\n", mean.mean);
//           sgd.step();
//         });
//     });
//   }
#pragma once

#include <lockstep/torch/collectives.hpp>
#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/loss.hpp>
#include <lockstep/torch/replicated_optimizer.hpp>
#include <lockstep/torch/sampler.hpp>
#include <lockstep/torch/script.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>
