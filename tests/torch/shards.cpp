// Batches in shards, whose results do not depend on the number of ranks.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A residual network with batch norm and dropout, of which a shard may skip a branch.
struct Residual : torch::nn::Module {
  Residual() {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Conv2d{torch::nn::Conv2dOptions{1, 4, 3}.padding(1)});
    norm = register_module("norm", torch::nn::BatchNorm2d{4});
    branch = register_module("branch", torch::nn::Conv2d{torch::nn::Conv2dOptions{4, 4, 3}.padding(1)});
    last = register_module("last", torch::nn::Linear{4, 3});
  }
  at::Tensor forward(const at::Tensor& images, bool with_branch) {
    at::Tensor x = torch::relu(norm(first(images)));
    if (with_branch) x = x + torch::relu(branch(x));
    return last(torch::dropout(x.mean({2, 3}), 0.25, is_training()));
  }
  torch::nn::Conv2d first{nullptr}, branch{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};

/// What three steps of 26 images in so many shards end in. A parameter in the middle is frozen in the second of them.
std::string train_in_shards(Strategy& strategy, int shards) {
  torch::set_num_threads(1);
  auto net = libtorch::DataParallel{strategy, Residual{}};
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{0.05}};
  std::string losses;
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      net->norm->weight.requires_grad_(step != 1);
      Range own = libtorch::ReplicatedModule::shards_of_rank(strategy, shards);
      const libtorch::ReplicatedModule::MeanLoss loss = net.backward_shards(context, shards, [&](int shard) {
        CHECK(shard == own.first++);
        const Range rows = Range::of_shard(26, shards, shard);
        torch::manual_seed(static_cast<std::uint64_t>(100 * step + shard));
        const at::Tensor images = torch::rand({rows.size(), 1, 5, 5}), labels = torch::randint(3, {rows.size()});
        return libtorch::Loss::sum(torch::nll_loss(torch::log_softmax(net->forward(images, shard % 3 == 0), 1), labels,
                                                   {}, at::Reduction::Sum),
                                   rows.size());
      });
      CHECK(own.size() == 0);
      CHECK(loss.samples == 26);
      losses += std::to_string(loss.mean) + " ";
      adamw.step();
    });
  std::vector<Variable> all;
  for (const auto& state : inside(strategy.store()).variables()) all.push_back(handle_of<MirroredVariable>(state));
  return losses + to_hex(weights_digest(all));
}

}  // namespace

TEST_CASE("a step in shards ends in the same bytes on one rank and on this many, in shares as equal as can be") {
  for (const int shards : {8, 11}) {
    CAPTURE(shards);
    Strategy strategy = runtime().make_strategy({.kind = ReductionOptions::Kind::fixed_order});
    std::string alone;
    sim::run({.ranks = 1}, [&](Strategy& one, int) { alone = train_in_shards(one, shards); });
    CHECK(train_in_shards(strategy, shards) == alone);
    if (strategy.stream().kind() == DeviceKind::cpu)
      CHECK(libtorch::ReplicatedModule::shards_of_rank(strategy, shards).size() <= (shards + ranks() - 1) / ranks());
    CHECK_NOTHROW(strategy.attest());
  }
}

TEST_CASE("a step in shards ends in the same bytes on 5, 6 and 7 ranks of several nodes") {
  if (ranks() > 1) return;
  std::string alone;
  sim::run({.ranks = 1}, [&](Strategy& one, int) { alone = train_in_shards(one, 16); });
  for (const int ranks : {5, 6, 7})
    sim::run({.ranks = ranks, .ranks_per_node = 2, .report = [](std::string_view) {}}, [&](Strategy& strategy, int) {
      CHECK(train_in_shards(strategy, 16) == alone);
      CHECK(libtorch::ReplicatedModule::shards_of_rank(strategy, 16).size() <= (ranks == 5 ? 4 : 3));
    });
}

namespace {

struct Counting : torch::nn::Module {
  at::Tensor w = register_parameter("w", weights({1}));
  at::Tensor count = register_buffer("count", torch::tensor({7}, at::kLong));
};

}  // namespace

TEST_CASE("a counter is what the first shard with samples has made of it") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Counting{}};
  strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, 2 * ranks(), [&](int shard) -> libtorch::Loss {
      net->count.add_(shard + 1);
      return libtorch::Loss::sum(net->w.sum(), shard == 0 ? 0 : 1);
    });
  });
  CHECK(values_of(net->count) == Values{9});
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("shards begin with the buffers that all ranks have, and ranks with others hear of it") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Counting{}};
  const auto step = [&](bool fails) {
    strategy.run([&](ReplicaContext& context) {
      net.backward_shards(context, 2 * ranks(), [&](int) {
        net->count.mul_(2);
        if (fails) throw std::runtime_error{"bang"};
        return libtorch::Loss::sum(net->w.sum(), 1);
      });
    });
  };
  net->count.fill_(20);  // the same everywhere
  step(false);
  CHECK(values_of(net->count) == Values{40});
  CHECK_THROWS(step(true));
  CHECK(values_of(net->count) == Values{40});
  if (ranks() == 1) return;
  if (odd_one()) net->count.add_(1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    CHECK_THAT(mismatch_of([&] { step(false); }), Catch::Contains("shards after a change of buffer 'count' (digest "));
  }
  strategy.rebroadcast();
  step(false);
  CHECK(values_of(net->count) == Values{80});
}

TEST_CASE("shards refuse what cannot keep their bits, and a failure in one reaches all ranks") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a"}}};
  const auto step = [&](int thrower) {
    strategy.run([&](ReplicaContext& context) {
      net.backward_shards(context, 23, [&](int shard) -> libtorch::Loss {
        if (shard == thrower) throw std::runtime_error{"bang"};
        return libtorch::Loss::sum(net->forward("a", shard), 1);
      });
    });
  };
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>([&] { step(22); }) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>([&] { step(22); }), Catch::Contains("bang"));
  }
  net.zero_grad();
  step(-1);
  CHECK(values_of(net->gradient("a")) == Values{11, 11});
  net.zero_grad();
  net.accumulate(libtorch::Loss::sum(net->forward("a", 1), 1));
  CHECK_THAT(message_of<InvalidArgument>([&] { step(-1); }), Catch::StartsWith("shards after a pass"));
}
