// What a training keeps from step to step: buffers, the state of optimizers, checkpoints.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <cstdlib>
#include <limits>
#include <string>

#include <malloc.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A running sum, a counter and constants, beside parameters of which one has no elements.
struct Running : torch::nn::Module {
  at::Tensor w = register_parameter("w", weights({1}));
  at::Tensor none = register_parameter("none", weights({}));
  at::Tensor scale = register_buffer("scale", weights({3}));
  at::Tensor sum = register_buffer("sum", weights({1, 1}));
  at::Tensor count = register_buffer("count", torch::tensor({7}, at::kLong));
  at::Tensor mask = register_buffer("mask", torch::tensor({true, false}));
  at::Tensor forward(double x) {
    sum.add_(x);
    count.add_(1);
    return w.sum() * x;
  }
};

int allocations = 0;

}  // namespace

// The library's, for the memory of every tensor on the host. Torch has another one.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  return ::memalign(alignment, bytes);
}

TEST_CASE("real buffers become the mean by samples, and others those of the first rank that has some") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Running{}};
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](ReplicaContext& context) {
      // Rank 0 has no samples if there are others, but counts, and has the mean of none.
      const std::int64_t samples = ranks() == 1 ? 1 : rank();
      if (rank() == 0 && ranks() > 1) {
        net->count.add_(100);
        net->sum.fill_(std::numeric_limits<double>::quiet_NaN());
      }
      net.backward(context, libtorch::Loss::sum(samples > 0 ? net->forward(3.0 * samples) : at::Tensor{}, samples));
    });
    CHECK_NOTHROW(strategy.attest());
  }
  const double mean = ranks() == 1 ? 3 : 3.0 * sum_to(last(), 2) / sum_to(last(), 1);
  CHECK(values_of(net->sum)[0] == Approx(1 + 2 * mean).epsilon(1e-15));  // each mean is rounded
  CHECK(values_of(net->count) == Values{9});
  CHECK(values_of(net->mask) == Values{1, 0});
  CHECK(values_of(net->scale) == Values{3});
}

TEST_CASE("the norm is clipped alike, and an optimizer of lockstep leaves alone what nobody used") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  auto sgd = net.optimizer(Sgd::Options{.learning_rate = 1, .momentum = 0.5});
  const auto step = [&](const std::string& used) {
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      net.backward(context, libtorch::Loss::sum(net->forward(used, 2.0 * (rank() + 1)), rank() + 1));
      if (used == "ab") {
        CHECK(net.clip_norm(2) == 4);  // four elements of 2
        CHECK(net.clip_norm(2) == 2);
        CHECK(values_of(net->gradient("a")) == Values{1, 1});
      }
      sgd.step(context);
    });
  };
  step("ab");
  CHECK(values_of(net->of("a")) == Values{0, 0});
  step("a");
  CHECK(values_of(net->of("a")) == Values{-2.5, -2.5});
  CHECK(values_of(net->of("b")) == Values{0, 0});  // its momentum waits
  CHECK(values_of(net->of("c")) == Values{1, 1});
  CHECK(sgd.rules().steps(strategy) == 2);
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a gradient of zeros is kept through clip_norm, and one that was zeroed before it is not") {
  for (const bool zeroed : {false, true})
    for (const double largest : {0.5, 1000.0}) {
      CAPTURE(zeroed, largest);
      Strategy strategy = runtime().make_strategy();
      auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
      strategy.run([&](ReplicaContext& context) {
        const double factor = zeroed ? 1 : 0;
        net.backward(context, libtorch::Loss::sum(net->forward("a", 2) + factor * net->forward("b", 2), 1));
        if (zeroed) net->gradient("b").zero_();
        CHECK((net.clip_norm(largest) > largest) == (largest < 1));
        net->of("b").requires_grad_(false);
        net.backward(context, libtorch::Loss::sum(net->forward("a", 2), 1));
      });
      CHECK(net->gradient("b").defined() == !zeroed);
    }
}

TEST_CASE("the optimizers of two modules count their own steps, and a module has one with the same slots") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Running{}};
  auto critic = libtorch::DataParallel{strategy, Running{}, {.name = "critic"}};
  const AdamW::Options options{.learning_rate = LearningRate{{.peak = 1, .warmup_steps = 3}}};
  auto of_critic = critic.optimizer(options);
  auto of_net = net.optimizer(options);
  CHECK_THROWS_WITH(net.optimizer(options), Catch::StartsWith("prepare (training_state.cpp:") &&
                                                Catch::Contains("belongs to optimizer 'optimizer_1', first used at"));
  strategy.run([&](ReplicaContext& context) {
    critic.backward(context, libtorch::Loss::sum(critic->forward(1), 1));
    of_critic.step(context);
    net.backward(context, libtorch::Loss::sum(net->forward(1), 1));
    of_net.step(context);
  });
  CHECK(of_net.rules().learning_rate() == 0.25);
  CHECK(strategy.store().counted("optimizer@steps") == 1);
  CHECK(strategy.store().counted("optimizer_1@steps") == 1);
}

TEST_CASE("steps allocate no memory for tensors") {
  const int at_first = allocations;
  Strategy strategy = runtime().make_strategy();
  strategy.attest_first(0);  // on a GPU, what is compared is copied to the host
  auto net = libtorch::DataParallel{strategy, Running{}};
  auto adamw = net.optimizer(AdamW::Options{.learning_rate = 1});
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      net.accumulate(libtorch::Loss::sum(net->forward(rank()), 1));
      net.backward(context, libtorch::Loss::sum(net->forward(rank() + 1), 1));
      net.clip_norm(1);
      adamw.step(context);
    });
  };
  const int prepared = allocations;
  CHECK(prepared > at_first);
  for (int i = 0; i < 3; ++i) step();
  CHECK(allocations == prepared);
}

TEST_CASE("checkpoints and weights have torch's names, and restore parameters, buffers and optimizer state in place") {
  const SharedFolder folder;
  const auto train = [&](Strategy& strategy, auto& net, auto& adamw) {
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      net.backward(context, libtorch::Loss::sum(net->forward(rank() + 1), 1));
      adamw.step(context);
    });
  };
  const AdamW::Options options{.learning_rate = 0.5};
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Running{}};
  auto adamw = net.optimizer(options);
  train(strategy, net, adamw);
  save_checkpoint(strategy, folder / "checkpoint");
  save_weights(strategy, folder / "weights");
  train(strategy, net, adamw);

  Strategy other = runtime().make_strategy();
  auto again = libtorch::DataParallel{other, Running{}};
  auto resumed = again.optimizer(options);
  load_weights(other, folder / "weights");
  CHECK(values_of(again->count) == Values{8});
  restore_checkpoint(other, folder / "checkpoint");
  train(other, again, resumed);
  CHECK(values_of(again->w) == values_of(net->w));
  CHECK(values_of(again->sum) == values_of(net->sum));

  if (!runtime().is_chief()) again->w.data().fill_(5);
  if (ranks() > 1) CHECK_THROWS_AS(other.attest(), DriftError);
  other.rebroadcast();
  CHECK(values_of(again->w) == values_of(net->w));
  folder.remove();
}
