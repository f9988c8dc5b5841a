// Losses that depend on more than one module, and modules that are not what they were when they were wrapped.
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;
using libtorch::Loss;

namespace {

/// The refusal of a backward pass of `net`, on every rank.
template <class M>
std::string refusal_of(Strategy& strategy, libtorch::DataParallel<M>& net, const Loss& loss) {
  const std::string message =
      message_of<InvalidArgument>([&] { strategy.run([&](ReplicaContext& context) { net.backward(context, loss); }); });
  expect_in_step();
  return message;
}

}  // namespace

TEST_CASE("a loss over two modules trains both with one agreement, and counts its samples once") {
  Strategy strategy = runtime().make_strategy();
  auto first = libtorch::DataParallel{strategy, Parts{{"a", "unused"}}, {.name = "encoder"}};
  auto second = libtorch::DataParallel{strategy, Parts{{"b", "frozen"}}, {.name = "decoder"}};
  second->of("frozen").requires_grad_(false);
  const auto loss = [&](double x) { return (first->of("a") * second->of("b")).sum() * x; };
  strategy.run([&](ReplicaContext& context) {
    libtorch::accumulate({&first, &second}, Loss::mean(loss(3), 2));
    const auto meetings = inside(strategy).group().meeting().meetings();
    const libtorch::ReplicatedModule::MeanLoss mean =
        libtorch::backward(context, {&first, &second}, Loss::sum(loss(6.0 * (rank() + 1)), rank()));
    CHECK(inside(strategy).group().meeting().meetings() == meetings + 1);
    const double samples = 2 * ranks() + triangle() - ranks();
    double sum = 0;
    for (int other = 0; other < ranks(); ++other) sum += 6 + (other > 0 ? 6 * (other + 1) : 0);
    CHECK(mean.samples == samples);
    CHECK(mean.mean == 2 * sum / samples);
    CHECK(values_of(first->gradient("a")) == Values{sum / samples, sum / samples});
    CHECK(values_of(second->gradient("b")) == Values{sum / samples, sum / samples});
    CHECK_FALSE(first->gradient("unused").defined());
    CHECK_FALSE(second->gradient("frozen").defined());
  });
}

TEST_CASE("two losses on one graph add up") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor shared = net->forward(weights({1, 2}) * (rank() + 1)).square();
    net.backward(context, Loss::sum(shared, 1).retain_graph());
    net.backward(context, Loss::sum(shared * 3, 1));
  });
  // w is (1, 2) everywhere, and the gradient of 4 y^2 is 8 y x.
  double sum = 0;
  for (int other = 1; other <= ranks(); ++other) sum += 8.0 * 5 * other * other;
  CHECK(values_of(net->w.grad()) == Values{sum / ranks(), 2 * sum / ranks()});
}

TEST_CASE("shards of a loss over two modules end in the mean over all of them") {
  Strategy strategy = runtime().make_strategy();
  auto first = libtorch::DataParallel{strategy, Plane{}}, second = libtorch::DataParallel{strategy, Plane{}};
  strategy.run([&](ReplicaContext& context) {
    const libtorch::ReplicatedModule::MeanLoss mean = libtorch::backward_shards(
        context, {&first, &second}, 24, [&](int shard) { return Loss::mean((first->w * second->w).sum() * shard, 1); });
    CHECK(mean.mean == 5 * 11.5);
  });
  CHECK(values_of(first->w.grad()) == Values{11.5, 23});
  CHECK(values_of(second->w.grad()) == Values{11.5, 23});
}

TEST_CASE("a loss that goes through another module trains it, or says that it does not") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  auto critic = libtorch::DataParallel{strategy, Plane{}, {.name = "critic"}};
  const at::Tensor x = torch::ones({2}, at::kDouble) * (rank() + 1);
  CHECK_THAT(refusal_of(strategy, net, Loss::sum(critic->forward(x * net->w), 1)),
             Catch::StartsWith("the loss depends on parameter 'critic.w' of another DataParallel, critic "
                               "(lockstep::test::Plane), which this backward pass would not train"));
  strategy.run([&](ReplicaContext& context) {
    critic.backward(context, Loss::sum(critic->forward(x), 1));
    net.backward(context, Loss::sum(critic->forward(x * net->w), 1).ignoring({critic->w, critic->w}));
  });
  const double mean = 1.0 * triangle() / ranks();
  CHECK(values_of(net->w.grad()) == Values{mean, 2 * mean});
  CHECK(values_of(critic->w.grad()) == Values{mean, mean});  // not those of the other loss
  critic->w.requires_grad_(false);
  net.zero_grad();
  strategy.run([&](ReplicaContext& context) { net.backward(context, Loss::sum(critic->forward(x * net->w), 1)); });
  CHECK(values_of(net->w.grad()) == Values{mean, 2 * mean});
}

TEST_CASE("whatever needs a gradient and would not be trained is refused by name") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  const at::Tensor outside = torch::ones({2, 1}, at::TensorOptions{at::kDouble}.requires_grad(true));
  const auto loss = [&] { return Loss::sum(net->forward(weights({1, 2})) * outside.sum(), 1); };
  CHECK_THAT(
      refusal_of(strategy, net, loss()),
      Catch::StartsWith("the loss depends on a tensor of shape [2, 1] that needs a gradient and is no parameter"));
  strategy.run([&](ReplicaContext& context) { net.backward(context, loss().ignoring({outside})); });
  CHECK_FALSE(outside.grad().defined());
  CHECK(values_of(net->w.grad()) == Values{2, 4});
  CHECK_THAT(refusal_of(strategy, net, loss().ignoring({outside, net->w})),
             Catch::StartsWith("Loss::ignoring of parameter 'w', which this backward pass trains"));
  const Loss before = loss();
  outside.requires_grad_(false);
  CHECK_NOTHROW(strategy.run([&](ReplicaContext& context) { net.backward(context, before); }));
  outside.requires_grad_(true);
  CHECK_THAT(refusal_of(strategy, net, Loss::sum(torch::ones({}, at::kDouble), 1)),
             Catch::StartsWith("a loss that depends on no parameter"));
  const at::Tensor half = net->forward(weights({1, 2})).to(at::kBFloat16);
  CHECK_THAT(refusal_of(strategy, net, Loss::mean(half, 1001)),
             Catch::StartsWith("a mean of 1001 samples in BFloat16, which cannot hold that number"));

  net->register_buffer("late", weights({1}));
  CHECK_THAT(refusal_of(strategy, net, loss()),
             Catch::StartsWith("buffer 'late' of lockstep::test::Plane was registered after DataParallel"));
  net->register_parameter("later", weights({1}));
  CHECK_THAT(refusal_of(strategy, net, loss()),
             Catch::StartsWith("parameter 'later' of lockstep::test::Plane was registered after DataParallel"));
}

TEST_CASE("a parameter belongs to one DataParallel at a time") {
  Strategy strategy = runtime().make_strategy();
  const auto module = std::make_shared<Plane>();
  {
    const auto net = libtorch::DataParallel{strategy, module};
    Parts sharing{{"a"}};
    sharing.register_parameter("shared", module->w);
    const auto refusal = [&](auto wrapped) {
      return message_of<InvalidArgument>([&] { libtorch::DataParallel{strategy, wrapped}; });
    };
    CHECK_THAT(refusal(module), Catch::StartsWith("parameter 'w' is parameter 'w' of another DataParallel, "
                                                  "lockstep::test::Plane"));
    CHECK_THAT(refusal(std::make_shared<Parts>(sharing)), Catch::StartsWith("parameter 'shared' is parameter 'w'"));
    expect_in_step();
  }
  CHECK_NOTHROW(libtorch::DataParallel{strategy, module});
}

namespace {

/// Its buffers follow each rank's own samples.
struct Norms : torch::nn::Module {
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d{2});
  at::Tensor w = register_parameter("w", torch::ones({2}));
  at::Tensor forward(const at::Tensor& x) { return (norm(x) * w).pow(3).sum(); }
};

at::Tensor samples_of_rank() {
  return torch::arange(8).to(at::kFloat).view({4, 2}).square() * (rank() + 1);
}

}  // namespace

TEST_CASE("buffers of modules that a loss goes through without training them are equal after the step") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Norms{}};
  auto critic = libtorch::DataParallel{strategy, Norms{}, {.name = "critic"}};
  critic->norm->weight.requires_grad_(false);
  critic->norm->bias.requires_grad_(false);
  critic->w.requires_grad_(false);
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor x = samples_of_rank();
    net.backward(context, Loss::sum(net->forward(x) + critic->forward(x), 4));
  });
  const at::Tensor mean = samples_of_rank().mean(0) / (rank() + 1) * triangle() / ranks() * 0.1;
  CHECK(torch::allclose(critic->norm->running_mean, mean));
  CHECK(torch::allclose(net->norm->running_mean, mean));
  CHECK_NOTHROW(strategy.attest());
  const auto sharing = std::make_shared<Plane>();
  sharing->register_buffer("shared", net->norm->running_mean);
  CHECK_THAT(message_of<InvalidArgument>([&] {
               libtorch::DataParallel{strategy, sharing};
             }),
             Catch::StartsWith("buffer 'shared' is buffer 'norm.running_mean' of another DataParallel"));
}

TEST_CASE("a graph with a batch norm can be computed backwards twice, but not after the weights have changed") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Norms{}};
  auto sgd = net.optimizer(Sgd::Options{.learning_rate = 0.5});
  at::Tensor loss;
  strategy.run([&](ReplicaContext& context) {
    loss = net->forward(samples_of_rank());
    net.backward(context, Loss::sum(loss, 4).retain_graph());
    const at::Tensor once = net->w.grad().clone();
    net.backward(context, Loss::sum(loss, 4).retain_graph());
    CHECK(torch::allclose(net->w.grad(), 2 * once));
    sgd.step(context);
  });
  CHECK_THAT(message_of<std::exception>(
                 [&] { strategy.run([&](ReplicaContext& context) { net.backward(context, Loss::sum(loss, 4)); }); }),
             Catch::Contains("modified by an inplace operation"));
  expect_in_step();
}

TEST_CASE("a graph through a buffer that a module of its own writes cannot be computed backwards twice") {
  struct Own : torch::nn::Module {
    at::Tensor running_var = register_buffer("running_var", torch::ones({2}));
    at::Tensor seen = register_buffer("seen", torch::zeros({2}));
    at::Tensor w = register_parameter("w", torch::ones({2}));
  };
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Own{}};
  const auto twice = [&](const std::function<at::Tensor()>& forward) {
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      const at::Tensor loss = forward().pow(2).sum();
      net.backward(context, Loss::sum(loss, 1).retain_graph());
      net.backward(context, Loss::sum(loss, 1));
    });
  };
  CHECK_THROWS_WITH(twice([&] {
                      net->running_var.add_(rank() + 1);
                      return net->w / net->running_var;
                    }),
                    Catch::Contains("modified by an inplace operation"));
  twice([&] {  // whatever a batch norm writes
    return torch::batch_norm(samples_of_rank() * net->w, {}, {}, net->seen, net->running_var, true, 0.1, 1e-5, false);
  });
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a step of two modules that fails on one rank leaves neither's gradients anywhere") {
  Strategy strategy = runtime().make_strategy();
  auto first = libtorch::DataParallel{strategy, Plane{}}, second = libtorch::DataParallel{strategy, Plane{}};
  const auto step = [&](bool fails) {
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor sum = first->w + second->w;
      if (fails) sum.register_hook([](const at::Tensor&) { throw std::runtime_error{"bang"}; });
      libtorch::backward(context, {&first, &second}, Loss::sum(sum.sum(), 1));
    });
  };
  step(false);
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>([&] { step(true); }) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>([&] { step(false); }), Catch::Contains("bang"));
  }
  CHECK_FALSE(first->w.grad().defined());
  CHECK_FALSE(second->w.grad().defined());
  if (ranks() == 1) return;
  std::vector<libtorch::ReplicatedModule*> order{&first, &second};
  if (odd_one()) std::ranges::reverse(order);
  second->w.requires_grad_(false);
  CHECK_THAT(mismatch_of([&] {
               strategy.run([&](ReplicaContext& context) {
                 libtorch::backward(context, order, Loss::sum((first->w + second->w).sum(), 1));
               });
             }),
             Catch::Contains("0 of 1 parameters train"));
}

TEST_CASE("a pass that was accumulated in one of two modules counts for both") {
  Strategy strategy = runtime().make_strategy();
  auto first = libtorch::DataParallel{strategy, Plane{}}, second = libtorch::DataParallel{strategy, Plane{}};
  strategy.run([&](ReplicaContext& context) {
    first.accumulate(Loss::sum(first->w.sum() * 5, 2));
    const libtorch::ReplicatedModule::MeanLoss mean =
        libtorch::backward(context, {&first, &second}, Loss::sum((first->w + second->w).sum(), 1));
    CHECK(mean.samples == 3 * ranks());
  });
  CHECK(values_of(first->w.grad()) == Values{2, 2});
  CHECK(values_of(second->w.grad()) == Values{1.0 / 3, 1.0 / 3});
}

TEST_CASE("a pass of several modules counts in those whose gradients were not zeroed") {
  Strategy strategy = runtime().make_strategy();
  auto first = libtorch::DataParallel{strategy, Plane{}}, second = libtorch::DataParallel{strategy, Plane{}},
       frozen = libtorch::DataParallel{strategy, Plane{}};
  frozen->w.requires_grad_(false);
  const auto loss = [&](double factor) {
    return Loss::sum(factor * (first->w + second->w + 0 * frozen->w).sum(), factor == 1 ? 1 : 3);
  };
  for (const bool both : {false, true})
    strategy.run([&](ReplicaContext& context) {
      first.zero_grad();
      second.zero_grad();
      libtorch::accumulate({&first, &second, &frozen}, loss(7));
      first.zero_grad();
      if (both) second->zero_grad();
      const libtorch::ReplicatedModule::MeanLoss mean =
          libtorch::backward(context, {&first, &second, &frozen}, loss(1));
      CHECK(mean.samples == (both ? 1 : 4) * ranks());
      CHECK(values_of(first->w.grad()) == Values{1, 1});
      CHECK(values_of(second->w.grad()) == (both ? Values{1, 1} : Values{2, 2}));
    });
  // The second has zeros everywhere: what was done to the first was done to it.
  for (const bool zeroes : {true, false})
    strategy.run([&](ReplicaContext& context) {
      first.zero_grad();
      second.zero_grad();
      libtorch::accumulate({&first, &second, &frozen}, Loss::sum(first->w.sum(), 3));
      for (const at::Tensor& each : {first->w, second->w}) each.mutable_grad().mul_(zeroes ? 0 : 1);
      const double samples = zeroes ? 1 : 4;
      CHECK(libtorch::backward(context, {&first, &second, &frozen}, loss(1)).samples == samples * ranks());
      CHECK(values_of(second->w.grad()) == Values{1 / samples, 1 / samples});
    });
  strategy.run([&](ReplicaContext& context) {
    first.zero_grad();
    second.zero_grad();
    libtorch::accumulate({&first, &second, &frozen}, loss(7));
    second.backward(context, Loss::sum(second->w.sum(), 1));
    libtorch::backward(context, {&first, &second, &frozen}, loss(1));
    CHECK(values_of(first->w.grad()) == Values{2, 2});
    CHECK(values_of(second->w.grad()) == Values{3, 3});  // in its first step, the pass has counted for it
    second->w.requires_grad_(false);
    libtorch::accumulate({&first, &second}, Loss::sum(first->w.sum(), 1));
    CHECK(values_of(second->w.grad()) == Values{3, 3});  // frozen, it keeps what an earlier step has left
    second->w.requires_grad_(true);
    second.backward(context, Loss::sum(second->w.sum(), 1));
    CHECK(values_of(second->w.grad()) == Values{4, 4});
  });
}

TEST_CASE("a backward pass within another is refused, and a parameter that is unfrozen within one") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  net->of("b").requires_grad_(false);
  const auto shards = [&](const std::function<Loss(int)>& compute) {
    strategy.run([&](ReplicaContext& context) { net.backward_shards(context, 2 * ranks(), compute); });
  };
  CHECK_THAT(message_of<ContextError>([&] {
               shards([&](int) {
                 net.accumulate(Loss::sum(net->forward("a", 1), 1));
                 return Loss::sum(net->forward("a", 1), 1);
               });
             }),
             Catch::StartsWith("a backward pass of lockstep::test::Parts within another one"));
  expect_in_step();
  CHECK_THAT(message_of<InvalidArgument>([&] {
               shards([&](int) {
                 net->of("b").requires_grad_(true);
                 return Loss::sum(net->forward("ab", 1), 1);
               });
             }),
             Catch::StartsWith("parameter 'b' of lockstep::test::Parts was frozen when the step began"));
  expect_in_step();
  net->of("b").requires_grad_(false);
  net->of("b").requires_grad_(true);
  CHECK_THAT(message_of<ContextError>([&] { net->forward("b", 1).backward(); }),
             Catch::Contains("was computed by a backward pass of this rank alone"));
}

TEST_CASE("a backward pass names each of its modules once") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  const auto refusal = [&](const std::vector<libtorch::ReplicatedModule*>& modules) {
    return message_of<InvalidArgument>([&] {
      libtorch::accumulate(modules, Loss::sum(net->forward(weights({1, 2})), 1));
    });
  };
  CHECK(refusal({}) == "a backward pass of no module");
  CHECK(refusal({nullptr}) == "a backward pass of a null module");
  CHECK(refusal({&net, &net}) == "a backward pass that names lockstep::test::Plane twice");
}
