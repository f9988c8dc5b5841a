// What hooks see, gradients that come from other threads, and what a step refuses.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <exception>
#include <string>
#include <thread>

#include <lockstep/torch/data_parallel.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Weights : torch::nn::Module {
  explicit Weights(at::ScalarType type = at::kDouble)
      : near{register_parameter("near", torch::ones({2}, type))},
        far{register_parameter("far", torch::ones({2}, type))} {}
  at::Tensor near, far;
};

/// Multiplies by the sum of `far`. Its backward pass computes the gradient of `far` on a thread of its own.
struct Elsewhere : torch::autograd::Function<Elsewhere> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& far,
                            bool fails) {
    context->saved_data["far"] = far;
    context->saved_data["x"] = x;
    context->saved_data["fails"] = fails;
    return x * far.sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor far = context->saved_data["far"].toTensor(), x = context->saved_data["x"].toTensor();
    std::exception_ptr failure;
    std::thread{[&] {
      try {
        const at::AutoGradMode with_gradients{true};
        (x.detach() * far.sum() * gradients[0]).sum().backward({}, {}, false, at::TensorList{far});
        if (context->saved_data["fails"].toBool()) throw std::runtime_error{"bang"};
      } catch (...) {
        failure = std::current_exception();
      }
    }}.join();
    if (failure) std::rethrow_exception(failure);
    return {gradients[0] * far.sum().detach(), {}, {}};
  }
};

at::Tensor both(Weights& weights, double x, bool fails = false) {
  return Elsewhere::apply((weights.near * x).sum(), weights.far, fails);
}

}  // namespace

TEST_CASE("gradients that autograd completes on another thread are reduced like the others") {
  Strategy strategy = runtime().make_strategy({.packing = ReductionOptions::unpacked()});
  auto net = libtorch::DataParallel{strategy, Weights{}};
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      net.backward(context, libtorch::Loss::sum(both(*net, rank() + 1), 1));
      const double mean = 2.0 * triangle() / ranks();
      CHECK(net->near.grad().equal(torch::full({2}, mean, at::kDouble)));
      CHECK(net->far.grad().equal(torch::full({2}, mean, at::kDouble)));
    });
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a throw on a thread of autograd is a PeerError on the other ranks") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Weights{}};
  const auto step = [&](bool fails) {
    strategy.run([&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(both(*net, 1, fails), 1)); });
  };
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>([&] { step(true); }) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>([&] { step(false); }), Catch::Contains("bang"));
  }
  CHECK_FALSE(net->far.grad().defined());
  expect_in_step();
  net.zero_grad();
  CHECK_NOTHROW(step(false));
}

TEST_CASE("a gradient that one backward pass completes twice is the sum of both, once sending waits for it") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Weights{}};
  const auto step = [&](bool twice) {
    net.zero_grad();
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor loss = both(*net, rank() + 1);
      net.backward(context, libtorch::Loss::sum(twice ? loss + net->far.sum() : loss, 1));
    });
  };
  const double once = 2.0 * triangle() / ranks();
  if (strategy.stream().kind() != DeviceKind::cpu) {
    step(false);
    CHECK_THAT(message_of<InvalidArgument>([&] { step(true); }),
               Catch::StartsWith("the gradient of parameter 'far'") &&
                   Catch::Contains(" was completed twice in one backward pass"));
    CHECK_FALSE(net->far.grad().defined());
    expect_in_step();
  }
  step(true);
  CHECK(net->near.grad().equal(torch::full({2}, once, at::kDouble)));
  CHECK(net->far.grad().equal(torch::full({2}, once + 1, at::kDouble)));
  step(false);
  CHECK(net->far.grad().equal(torch::full({2}, once, at::kDouble)));
}

TEST_CASE("hooks see the sum over this rank's samples, and may keep its memory") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Weights{}};
  at::Tensor kept;
  net->near.register_hook([&](const at::Tensor& gradient) { kept = gradient.detach(); });
  strategy.run([&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum((net->near * 6).sum(), 3)); });
  CHECK(kept.equal(torch::full({2}, 6, at::kDouble)));
  CHECK(net->near.grad().equal(torch::full({2}, 2, at::kDouble)));
}

TEST_CASE("shards of half precision, and a step in another strategy's context, are refused on every rank") {
  Strategy strategy = runtime().make_strategy(), other = runtime().make_strategy();
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    auto net = libtorch::DataParallel{strategy, Weights{type}};
    const std::string message = message_of<InvalidArgument>([&] {
      strategy.run([&](ReplicaContext& context) {
        net.backward_shards(context, ranks(), [&](int) { return libtorch::Loss::sum(net->near.sum(), 1); });
      });
    });
    CHECK_THAT(message, Catch::StartsWith("parameter 'near"));
    CHECK_THAT(message,
               Catch::Contains(type == at::kHalf ? " is f16, and partial sums" : " is bf16, and partial sums"));
  }
  auto net = libtorch::DataParallel{strategy, Weights{}};
  CHECK(message_of<InvalidArgument>([&] {
          other.run([&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(net->near.sum(), 1)); });
        }) == "a step of a DataParallel in the context of another strategy than its own");
  strategy.run([&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(net->near.sum(), 1)); });
  CHECK(net->near.grad().equal(torch::ones({2}, at::kDouble)));
}
