// Batches in shards through SyncBatchNorms, which add up over all shards of all ranks.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

torch::nn::Conv2d same_size(int from, int to) {
  return torch::nn::Conv2d{torch::nn::Conv2dOptions{from, to, 3}.padding(1)};
}

/// Two norms over the whole batch, between them one over a shard's part, and dropout before and after.
struct Normalised : torch::nn::Module {
  Normalised() {
    torch::manual_seed(1);
    first = register_module("first", same_size(1, 4));
    norm = register_module("norm", libtorch::SyncBatchNorm{torch::nn::BatchNormOptions{4}.momentum(c10::nullopt)});
    branch = register_module("branch", same_size(4, 4));
    own_norm = register_module("own_norm", torch::nn::BatchNorm2d{4});
    last_norm = register_module("last_norm", libtorch::SyncBatchNorm{4});
    last = register_module("last", torch::nn::Linear{4, 3});
  }
  at::Tensor forward(const at::Tensor& images) {
    at::Tensor x = torch::relu(norm(torch::dropout(first(images), 0.1, is_training())));
    if (images.size(0) > 0) x = x + torch::relu(own_norm(branch(torch::dropout(x, 0.25, is_training()))));
    return last(torch::dropout(last_norm(x).mean({2, 3}), 0.25, is_training()));
  }
  torch::nn::Conv2d first{nullptr}, branch{nullptr};
  torch::nn::BatchNorm2d own_norm{nullptr};
  libtorch::SyncBatchNorm norm{nullptr}, last_norm{nullptr};
  torch::nn::Linear last{nullptr};
};

/// What three steps of seven images in eight shards end in, one of which is empty.
std::string train_together(Strategy& strategy, bool seeds) {
  torch::set_num_threads(1);
  auto net = libtorch::DataParallel{strategy, Normalised{}};
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{0.05}};
  std::string result;
  torch::manual_seed(5);
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      const libtorch::ReplicatedModule::MeanLoss loss = net.backward_shards(context, 8, [&](int shard) {
        if (seeds) torch::manual_seed(static_cast<std::uint64_t>(100 * step + shard));
        const Range rows = Range::of_shard(15, 8, shard);
        const at::Tensor images = torch::rand({shard == 2 ? 0 : rows.size(), 1, 5, 5}),
                         labels = torch::randint(3, {images.size(0)});
        return libtorch::Loss::sum(
            torch::nll_loss(torch::log_softmax(net->forward(images), 1), labels, {}, at::Reduction::Sum),
            images.size(0));
      });
      CHECK(loss.samples == 13);
      result += std::to_string(loss.mean) + " ";
      adamw.step();
    });
  std::vector<Variable> all;
  for (const auto& state : inside(strategy.store()).variables()) all.push_back(handle_of<MirroredVariable>(state));
  return result + to_hex(weights_digest(all)) + " " + std::to_string(torch::rand({1}).item<float>());
}

}  // namespace

TEST_CASE("a step in shards through SyncBatchNorms ends in the same bytes on one rank and on this many") {
  Strategy strategy = runtime().make_strategy();
  const bool seeds = GENERATE(true, false);
  std::string alone;
  sim::run({.ranks = 1}, [&](Strategy& one, int) { alone = train_together(one, seeds); });
  CHECK(train_together(strategy, seeds) == alone);
  CHECK_NOTHROW(strategy.attest());
}

namespace {

/// A norm, in whose forward pass a shard can do something else.
struct Watched : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return second(first(x) * w); }
  libtorch::SyncBatchNorm first = register_module("first", libtorch::SyncBatchNorm{2});
  libtorch::SyncBatchNorm second = register_module("second", libtorch::SyncBatchNorm{2});
  at::Tensor w = register_parameter("w", torch::ones({2}));
  at::Tensor count = register_buffer("count", torch::tensor({7}, at::kLong));
};

/// In f64, but for the counter.
std::shared_ptr<Watched> watched_in_f64() {
  auto module = std::make_shared<Watched>();
  module->to(at::kDouble);
  module->count.set_data(module->count.to(at::kLong));
  return module;
}

at::Tensor rows_of(int shard) {
  torch::manual_seed(static_cast<std::uint64_t>(shard));
  return torch::rand({shard % 3, 2}, at::kDouble) + shard;
}

using Compute = std::function<libtorch::Loss(int)>;

}  // namespace

TEST_CASE("shards through SyncBatchNorms have the gradients of the whole batch, and buffers of their own") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, watched_in_f64()};
  const int shards = 4 * ranks();
  std::vector<at::Tensor> all;
  for (int shard = 0; shard < shards; ++shard) all.push_back(rows_of(shard));
  const at::Tensor x = torch::cat(all);
  torch::nn::BatchNorm1d first{2}, second{2};
  first->to(at::kDouble);
  second->to(at::kDouble);
  const at::Tensor w = torch::ones({2}, at::kDouble).requires_grad_();
  const at::Tensor held = torch::ones({}, at::kDouble).requires_grad_();
  held.mutable_grad() = torch::full({}, 3.0, at::kDouble);
  strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, shards, [&](int shard) {
      const at::Tensor mine = rows_of(shard);
      net->count.add_(shard + 1);
      const at::Tensor y = net->forward(mine);
      CHECK(net->count.item<int>() == 8 + shard);
      return libtorch::Loss::sum(held * y.pow(3).sum(), mine.size(0)).ignoring({held});
    });
  });
  CHECK(held.grad().item<double>() == 3);
  if (x.size(0) > 1) {
    second(first(x) * w).pow(3).sum().div(x.size(0)).backward();
    CHECK(torch::allclose(net->w.grad(), w.grad(), 1e-7, 1e-9));
    CHECK(torch::allclose(net->first->weight.grad(), first->weight.grad(), 1e-7, 1e-9));
    CHECK(torch::allclose(net->first->running_var, first->running_var));
    CHECK(torch::allclose(net->second->running_mean, second->running_mean));
  }
  CHECK(net->count.item<int>() == 9);  // of shard 1: shard 0 has no samples
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a shard through SyncBatchNorms computes on as many threads as its caller") {
  // Of OpenMP, since torch's own function sets what it returns.
  const auto threads = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  if (!threads) return;
  const int before = torch::get_num_threads();
  torch::set_num_threads(5);
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Watched{}};
  strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, ranks(), [&](int) {
      CHECK(threads() == 5);
      return libtorch::Loss::sum(net->forward(torch::rand({3, 2})).sum(), 3);
    });
  });
  torch::set_num_threads(before);
}

TEST_CASE("shards that part at a SyncBatchNorm, or fail, are one line on every rank") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Watched{}};
  libtorch::SyncBatchNorm other{2};
  const at::Tensor x = torch::rand({3, 2});
  // On the host, the last rank has a subtree more than the others.
  const int shards = 4 * ranks() + (strategy.stream().kind() == DeviceKind::cpu ? 1 : 0);
  const auto step = [&](const Compute& compute) {
    strategy.run([&](ReplicaContext& context) { net.backward_shards(context, shards, compute); });
  };
  const auto passes = [&](const at::Tensor& y) { return libtorch::Loss::sum(y.pow(3).sum(), 3); };
  const auto is_odd = [&](int shard) { return shard == 4 * last() + 1; };  // the last rank's second
  const auto fails = [&](const std::string& words, const Compute& compute) {
    CAPTURE(words);
    std::string told;
    try {
      step(compute);
    } catch (const std::exception& error) {
      told = error.what();
    }
    CHECK_THAT(told, Catch::Contains(words));
    CHECK(net->first->running_mean.equal(torch::zeros({2})));
    CHECK_FALSE(net->w.grad().defined());
    expect_in_step();
  };
  fails("bang", [&](int shard) {
    const at::Tensor y = net->first(x);
    if (is_odd(shard)) throw std::runtime_error{"bang"};
    return passes(net->second(y));
  });
  fails("clang", [&](int shard) {
    const at::Tensor y = net->first(x);
    y.register_hook([odd = is_odd(shard)](const at::Tensor&) {
      if (odd) throw std::runtime_error{"clang"};
    });
    return passes(net->second(y));
  });
  const std::string apart = "shard " + std::to_string(4 * last()) +
                            " is at sum 3, of SyncBatchNorm 'second' of 2 features, and shard " +
                            std::to_string(4 * last() + 1) + " ";
  fails(apart + "has ended its forward pass: expected every shard", [&](int shard) {
    const at::Tensor y = net->first(x);
    return passes(is_odd(shard) ? y : net->second(y));
  });
  fails(apart + "is at sum 3, of SyncBatchNorm 'first'", [&](int shard) {
    const at::Tensor y = net->first(x);
    return passes(is_odd(shard) ? net->first(y) : net->second(y));
  });
  fails("to evaluation mode", [&](int shard) {
    const at::Tensor y = net->forward(x);
    if (is_odd(shard)) net->eval();
    return passes(y);
  });
  net->train();
  fails("a SyncBatchNorm in training that is no part of the modules",
        [&](int) { return passes(net->forward(other(x))); });
  fails("expected nothing that the ranks do together", [&](int) {
    (void)ReplicaContext::current()->all_reduce(ReduceOp::sum, 1);
    return passes(x);
  });
  if (ranks() > 1)
    fails("merge_call #5 (joint_shards.cpp", [&](int shard) {
      const at::Tensor y = net->forward(x);
      return passes(shard >= 4 * last() ? net->first(y) : y);
    });
  if (ranks() > 1)
    fails("shards through SyncBatchNorm 'first' of 2 features (digest ",
          [&](int shard) {  // as many sums on every rank, of other norms
            const bool through_first = shard >= 4 * last();
            at::Tensor y = x * net->w, z;
            {
              const at::AutoGradMode mode{through_first};
              y = net->first(y);
            }
            {
              const at::AutoGradMode mode{!through_first};
              z = net->second(y * net->w);
            }
            return passes(through_first ? y : z);
          });
  const Compute whole = [&](int) { return passes(net->forward(x)); };
  if (odd_one()) net->count.fill_(3);
  if (ranks() > 1) fails("shards after a change of buffer 'count' (digest", whole);
  net->count.fill_(3);
  step(whole);
  CHECK(net->count.item<int>() == 3);
}

TEST_CASE("what a shard or a rank adds to the statistics of others has gradients, whatever its own loss leaves out") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, watched_in_f64()};
  const int shards = 4 * ranks();
  torch::manual_seed(8);
  const at::Tensor x = torch::rand({2 * shards, 2}, at::kDouble);
  torch::nn::BatchNorm1d first{2}, second{2};
  first->to(at::kDouble);
  second->to(at::kDouble);
  const at::Tensor w = torch::ones({2}, at::kDouble).requires_grad_();
  const auto compare = [&] {
    CHECK(torch::allclose(net->w.grad(), w.grad(), 1e-7, 1e-9));
    CHECK(torch::allclose(net->first->weight.grad(), first->weight.grad(), 1e-7, 1e-9));
    CHECK(torch::allclose(net->second->bias.grad(), second->bias.grad(), 1e-7, 1e-9));
    CHECK_NOTHROW(strategy.attest());
  };
  strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, shards, [&](int shard) -> libtorch::Loss {
      const at::Tensor y = net->first(x.slice(0, 2 * shard, 2 * shard + 2)), z = net->second(y * net->w);
      if (shard % 4 == 0) return {};
      return libtorch::Loss::sum((shard % 4 == 1 ? y : z).pow(3).sum(), 2);
    });
  });
  const at::Tensor y = first(x), z = second(y * w);
  const at::Tensor kinds = torch::arange(shards).remainder(4).repeat_interleave(2).unsqueeze(1);
  (y.pow(3) * kinds.eq(1) + z.pow(3) * kinds.gt(1)).sum().div(1.5 * shards).backward();
  compare();

  // And the same of whole ranks.
  net.zero_grad();
  for (const auto& each : {first->parameters(), second->parameters(), std::vector{w}})
    for (const at::Tensor& parameter : each) parameter.mutable_grad().reset();
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor mine = net->forward(x.slice(0, 8 * rank(), 8 * rank() + 8));
    net.backward(context, libtorch::Loss::sum(mine.pow(3).sum(), odd_one() ? 8 : 0));
  });
  second(first(x) * w).slice(0, 8 * last()).pow(3).sum().div(8).backward();
  compare();
}

TEST_CASE("a SyncBatchNorm of another module is refused in shards, on one rank too") {
  Strategy strategy = runtime().make_strategy();
  struct Without : torch::nn::Module {
    at::Tensor w = register_parameter("w", torch::ones({2}));
  };
  auto bare = libtorch::DataParallel{strategy, Without{}, {.name = "bare"}};
  libtorch::SyncBatchNorm norm{2};
  CHECK_THAT(message_of<ContextError>([&] {
               strategy.run([&](ReplicaContext& context) {
                 bare.backward_shards(context, ranks(), [&](int) {
                   return libtorch::Loss::sum(norm(torch::rand({3, 2}) * bare->w).sum(), 3);
                 });
               });
             }),
             Catch::StartsWith("a SyncBatchNorm in training that is no part of the modules"));
}
