// Steps of torch's optimizers on gradients that are not the ranks' mean: found in the first steps.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <string>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

libtorch::Loss own_loss(Plane& net) {
  return libtorch::Loss::sum(net.forward(weights({1.0 + rank(), 2})), 1);
}

/// The words of the DriftError in the first of three steps that has one; empty if there is none.
template <class Body>
std::string drift_of_steps(Strategy& strategy, Body&& body) {
  return strategy
      .same_on_all(message_of<DriftError>([&] {
        for (int step = 1; step <= 3; ++step) {
          strategy.set_step(step);
          strategy.run([&](ReplicaContext& context) { body(context, step); });
        }
      }))
      .value();
}

const char* const unsummed =
    "most likely its gradient was not summed over the ranks, or ranks used different learning "
    "rates";

}  // namespace

TEST_CASE("a gradient that is added beside the bridge, or only accumulated, is found in its step", "[C-36]") {
  if (ranks() == 1) return;
  for (const bool beside : {true, false}) {
    Strategy strategy = runtime().make_strategy();
    auto net = libtorch::DataParallel{strategy, Plane{}};
    torch::optim::SGD sgd{net.parameters(), 1};
    const std::string words = drift_of_steps(strategy, [&](ReplicaContext& context, int) {
      net.zero_grad();
      if (beside) {
        net.backward(context, own_loss(*net));
        net->w.mutable_grad().add_(rank());
      } else {
        net.accumulate(own_loss(*net));
      }
      sgd.step();
    });
    CHECK_THAT(words, Catch::Contains("variable 'w' after step 1") && Catch::EndsWith(unsummed));
  }
}

TEST_CASE("another learning rate on one rank, or an optimizer's step on gradients of its own, is found", "[C-36]") {
  if (ranks() == 1) return;
  {
    Strategy strategy = runtime().make_strategy();
    auto net = libtorch::DataParallel{strategy, Plane{}};
    torch::optim::SGD sgd{net.parameters(), odd_one() ? 0.5 : 0.25};
    const std::string words = drift_of_steps(strategy, [&](ReplicaContext& context, int) {
      net.zero_grad();
      net.backward(context, own_loss(*net));
      sgd.step();
    });
    CHECK_THAT(words, Catch::Contains("variable 'w' after step 1") && Catch::EndsWith(unsummed));
  }
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  auto sgd = net.optimizer(Sgd::Options{.learning_rate = 0.5});
  const std::string words = drift_of_steps(strategy, [&](ReplicaContext& context, int) {
    net.zero_grad();
    net.accumulate(own_loss(*net));
    sgd.step(context);
  });
  CHECK_THAT(words, Catch::Contains("the gradient of variable 'w' in step 1") &&
                        Catch::Contains("it was not summed over the ranks before the step"));
}

TEST_CASE("steps outside of the run are found in the next one, and buffers that differ are none", "[C-36]") {
  if (ranks() == 1) return;
  {
    Strategy strategy = runtime().make_strategy();
    auto net = libtorch::DataParallel{strategy, Plane{}};
    torch::optim::SGD sgd{net.parameters(), odd_one() ? 0.5 : 0.25};
    const std::string words =
        strategy
            .same_on_all(message_of<DriftError>([&] {
              for (int step = 1; step <= 3; ++step) {
                net.zero_grad();
                strategy.set_step(step);
                strategy.run([&](ReplicaContext& context) { net.backward(context, own_loss(*net)); });
                sgd.step();
              }
            }))
            .value();
    CHECK_THAT(words, Catch::Contains("variable 'w' after step 2"));
  }
  Strategy strategy = runtime().make_strategy();
  torch::nn::BatchNorm1d norm{2};
  auto net = libtorch::DataParallel{strategy, norm};
  torch::optim::SGD sgd{net.parameters(), 0.5};
  const auto forward = [&] { return net->forward(torch::ones({3, 2}) * torch::arange(3).view({3, 1}) * (1 + rank())); };
  CHECK(drift_of_steps(strategy, [&](ReplicaContext& context, int) {
          net.zero_grad();
          net.backward(context, libtorch::Loss::sum(forward().sum(), 3));
          sgd.step();
          (void)forward();  // in training, so each rank has running statistics of its own
        }) == "");
}
