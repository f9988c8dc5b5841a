// Values whose memory LibTorch has replaced after wrapping, as torch::load and `to` do.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <sstream>
#include <string>

#include <torch/serialize.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// With each kind of value that is replaced in its own way.
struct Measured : torch::nn::Module {
  explicit Measured(double first = 1) : w{register_parameter("w", weights({first, 2}))} {}
  at::Tensor w;
  at::Tensor mean = register_buffer("mean", weights({0.1}));
  at::Tensor seen = register_buffer("seen", torch::tensor({false}));
  at::Tensor forward(double x) {
    seen.fill_(true);
    return (w * x).sum();
  }
};

std::string saved(std::shared_ptr<Measured> module) {
  std::ostringstream stream;
  torch::save(module, stream);
  return stream.str();
}

void load(std::shared_ptr<Measured> module, const std::string& bytes) {
  std::istringstream stream{bytes};
  torch::load(module, stream);
}

void train(Strategy& strategy, libtorch::DataParallel<Measured>& net, torch::optim::Optimizer& optimizer) {
  strategy.run([&](ReplicaContext& context) {
    optimizer.zero_grad();
    net.backward(context, libtorch::Loss::sum(net->forward(rank() + 1), 1));
    optimizer.step();
  });
}

}  // namespace

TEST_CASE("early stopping: the best weights, loaded again by torch, are those that are attested and saved") {
  const SharedFolder folder;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Measured{}};
  torch::optim::SGD sgd{net.parameters(), 1};
  train(strategy, net, sgd);
  const std::string best = saved(net.module());
  const Values of_best = values_of(net->w);
  net->to(at::kCPU);
  train(strategy, net, sgd);
  CHECK(values_of(net->w) != of_best);

  load(net.module(), best);
  CHECK(net.variables()[0].local().to_vector<double>() == of_best);
  load(net.module(), best);
  CHECK_NOTHROW(strategy.attest());
  CHECK(net->w.data_ptr() == static_cast<void*>(net.variables()[0].local().data()));
  for (const bool in_checkpoint : {false, true}) {
    net->w.set_data(net->w.clone());
    net->mean.set_data(weights({0.7}));
    if (in_checkpoint) {
      save_checkpoint(strategy, folder / "file");
    } else {
      save_weights(strategy, folder / "file");
    }
    Strategy other = runtime().make_strategy();
    auto again = libtorch::DataParallel{other, Measured{5}};
    load(again.module(), saved(again.module()));  // what is restored is seen through new memory, too
    if (in_checkpoint) {
      restore_checkpoint(other, folder / "file");
    } else {
      CHECK(load_weights(other, folder / "file").rest.empty());
    }
    CHECK(values_of(again->w) == of_best);
    CHECK(values_of(again->mean) == Values{0.7});
    CHECK(again->seen.item<bool>());
  }

  load(net.module(), best);
  train(strategy, net, sgd);
  CHECK_NOTHROW(strategy.attest());
  const double step = 1.0 * triangle() / ranks();
  CHECK(values_of(net->w) == Values{of_best[0] - step, of_best[1] - step});
  folder.remove();
}

TEST_CASE("weights that one rank alone has loaded are found, and spread by rebroadcast from replica 0") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Measured{}};
  const std::string other = saved(std::make_shared<Measured>(9));
  if (runtime().is_chief()) load(net.module(), other);
  if (ranks() > 1) CHECK_THROWS_AS(strategy.attest(), DriftError);
  if (runtime().is_chief()) load(net.module(), other);
  strategy.rebroadcast();
  CHECK(values_of(net->w) == Values{9, 2});
  if (odd_one()) load(net.module(), saved(std::make_shared<Measured>(8)));
  if (ranks() > 1) CHECK_THROWS_AS(strategy.run([](ReplicaContext& context) { context.attest_at_end(); }), DriftError);
}

TEST_CASE("a module that was of another type for a while trains on, and one that still is on one rank fails on all") {
  const SharedFolder folder;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Measured{}};
  torch::optim::SGD sgd{net.parameters(), 1};
  const auto convert = [&](at::ScalarType type) { net->w.set_data(net->w.detach().to(type)); };
  convert(at::kFloat);
  const at::Tensor early = net->forward(1);
  convert(at::kDouble);
  CHECK_THAT(message_of<InvalidArgument>([&] { net.accumulate(libtorch::Loss::sum(early, 1)); }),
             Catch::StartsWith("the loss was computed while parameter 'w' of"));
  train(strategy, net, sgd);
  const double step = 1.0 * triangle() / ranks();
  CHECK(values_of(net->w.grad())[0] == step);
  auto own = net.optimizer(Sgd::Options{.learning_rate = 1});
  strategy.run([&](ReplicaContext& context) {
    own.zero_grad();
    net.backward(context, libtorch::Loss::sum(net->forward(rank() + 1), 1));
    net->w.set_data(net->w.clone());
    own.step(context);
  });
  CHECK(values_of(net->w) == Values{1 - 2 * step, 2 - 2 * step});

  const auto expect_refused = [&](const auto& call) {
    CAPTURE(rank());
    if (odd_one()) {
      CHECK_THAT(message_of<InvalidArgument>(call),
                 Catch::StartsWith("parameter 'w' of") && Catch::Contains("has become f32[2]; expected f64[2]"));
    } else {
      CHECK_THAT(message_of<PeerError>(call), Catch::Contains("has become f32[2]"));
    }
  };
  if (odd_one()) convert(at::kFloat);
  expect_refused([&] { strategy.attest(); });
  expect_refused([&] { strategy.rebroadcast(); });
  expect_refused([&] { save_weights(strategy, folder / "file"); });
  expect_refused([&] { (void)load_weights(strategy, folder / "file"); });
  expect_refused([&] { strategy.run([](ReplicaContext& context) { context.attest_at_end(); }); });
  expect_refused([&] { train(strategy, net, sgd); });
  convert(at::kDouble);
  CHECK_NOTHROW(strategy.attest());
  net->w.set_data(weights({1, 2, 3}));
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)net.variables()[0].local(); }),
             Catch::Contains("has become f64[3]; expected f64[2]"));
  folder.remove();
}

TEST_CASE("weights that a program puts aside stay what they were, and tensors that it ties then are refused") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  at::Tensor a = net->of("a"), b = net->of("b");
  const auto values = [&](std::size_t i) { return net.variables()[i].local().to_vector<double>(); };
  const at::Tensor live = a.detach();
  a.set_data(weights({5, 6}));
  CHECK(values(0) == Values{5, 6});
  a.set_data(live);
  CHECK(values(0) == Values{1, 1});
  b.set_data(weights({7, 8}));
  CHECK_NOTHROW(strategy.attest());
  const at::Tensor before = a.detach();
  a.set_data(b.detach());
  b.set_data(before);
  CHECK(values(0) == Values{7, 8});
  CHECK(values(1) == Values{1, 1});
  CHECK(values_of(b) == Values{1, 1});
  CHECK(a.data_ptr() == static_cast<void*>(net.variables()[0].local().data()));

  b.set_data(a.detach().view({1, 2}).view({2}));
  CHECK_THAT(message_of<InvalidArgument>([&] { values(1); }),
             Catch::StartsWith("parameters 'a' and 'b' are two tensors in the same memory"));
  b.set_data(a.detach().clone());
  CHECK(values(1) == Values{7, 8});
}

TEST_CASE("a step on gradients that were only accumulated makes replicas differ, as the next attestation says") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Measured{}};
  torch::optim::SGD sgd{net.parameters(), 1};
  net.accumulate(libtorch::Loss::sum(net->forward(rank() + 1), 1));
  sgd.step();
  if (ranks() > 1) CHECK_THAT(message_of<DriftError>([&] { strategy.attest(); }), Catch::Contains("variable 'w'"));
}
