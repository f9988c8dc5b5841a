// Steps in shards that are audited: each rank computes a shard of another rank too.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;
using libtorch::Loss;

namespace {

/// Everything of which an audit takes digests: a table by rows, batch norm with its buffers, and dropout.
struct Tagger : torch::nn::Module {
  Tagger() {
    torch::manual_seed(3);
    words = register_module("words", torch::nn::Embedding{torch::nn::EmbeddingOptions{20, 4}.sparse(true)});
    norm = register_module("norm", torch::nn::BatchNorm1d{4});
    out = register_module("out", torch::nn::Linear{4, 3});
  }
  at::Tensor forward(const at::Tensor& text) { return out(torch::dropout(norm(words(text)), 0.25, is_training())); }

  torch::nn::Embedding words{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear out{nullptr};
};
using Net = libtorch::DataParallel<Tagger>;

/// On 3 ranks, two have several subtrees of them.
int shards() {
  return ranks() == 3 ? 8 : 2 * ranks();
}

/// The loss of some words, as a function of step and shard.
Loss loss_of(Net& net, int step, int shard) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + shard));
  const at::Tensor text = torch::randint(20, {5}), tags = torch::randint(3, {5});
  return Loss::mean(torch::cross_entropy_loss(net->forward(text.to(net.device())), tags.to(net.device())), 5);
}

struct Ended {
  std::string losses;
  std::uint64_t weights;
  std::uint64_t waits;  ///< for other ranks
};

/// Four steps, each in a run. `spoil` may change the loss of a step and a shard.
Ended train(Strategy& strategy, const libtorch::ReplicatedModule::Options& options,
            const std::function<Loss(const Loss&, int step, int shard)>& spoil = {}) {
  torch::set_num_threads(1);
  Net net{strategy, Tagger{}, options};
  torch::optim::SGD sgd{net.parameters(), torch::optim::SGDOptions{0.1}};
  const std::uint64_t before = inside(strategy).group().meeting().waits();
  Ended ended{};
  for (int step = 0; step < 4; ++step) {
    strategy.set_step(step + 1);
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      const auto loss = net.backward_shards(context, shards(), [&](int shard) {
        const Loss right = loss_of(net, step, shard);
        return spoil ? spoil(right, step, shard) : right;
      });
      ended.losses += std::to_string(loss.mean) + " ";
      sgd.step();
    });
    // What a program draws besides its shards.
    ended.losses += std::to_string(torch::rand({1}).item<double>()) + " ";
  }
  ended.waits = inside(strategy).group().meeting().waits() - before;
  ended.weights = weights_digest(net.variables());
  return ended;
}

/// A loss whose gradients are off in their last bits.
Loss slightly_wrong(const Loss& loss) {
  return Loss::mean(loss.value() * (1 + 0x1p-22), loss.samples());
}

/// What the audit of `train` says, which has to find something.
AuditError::Finding finding_of(const std::function<void()>& train, std::string& message) {
  try {
    train();
  } catch (const AuditError& error) {
    message = error.what();
    return error.finding();
  }
  FAIL("no audit found anything");
  return {};
}

}  // namespace

TEST_CASE("audits find nothing in a training that is right, change no bit of it, and send no message") {
  Strategy strategy = runtime().make_strategy();
  const Ended plain = train(strategy, {.name = "plain"});
  const Ended audited = train(strategy, {.name = "audited", .audit_every = 1, .audit_seed = 5});
  CHECK(audited.losses == plain.losses);
  CHECK(audited.weights == plain.weights);
  CHECK(audited.waits == plain.waits);
}

TEST_CASE("a rank that computes gradients wrong is named in the first step that is audited") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  std::string message;
  const AuditError::Finding finding = finding_of(
      [&] {
        train(strategy, {.audit_every = 3},
              [](const Loss& right, int, int) { return odd_one() ? slightly_wrong(right) : right; });
      },
      message);
  INFO(message);
  CHECK_THAT(message, Catch::Contains(" of step 3"));
  if (ranks() == 2) {
    CHECK(finding.blamed.empty());
    CHECK_THAT(message, Catch::Contains("of two, nobody can tell which one is wrong"));
  } else {
    CHECK(finding.blamed == std::vector{last()});
    CHECK_THAT(message,
               Catch::StartsWith("replica " + std::to_string(last())) && Catch::Contains(" wrong: gradient of "));
  }
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a rank that computes its shards wrong once is named, also by two ranks, and so is one alone") {
  Strategy strategy = runtime().make_strategy();
  std::string message;
  const Range own = libtorch::ReplicatedModule::shards_of_rank(strategy, shards());
  std::vector<int> calls(static_cast<std::size_t>(shards()));
  const AuditError::Finding finding = finding_of(
      [&] {
        train(strategy, {.audit_every = 1}, [&](const Loss& right, int, int shard) {
          const bool is_own = own.first <= shard && shard < own.last;
          const bool is_first = calls[static_cast<std::size_t>(shard)]++ == 0;
          return odd_one() && is_own && is_first ? slightly_wrong(right) : right;
        });
      },
      message);
  INFO(message);
  CHECK(finding.blamed == std::vector{last()});
  if (odd_one()) CHECK((own.first <= finding.shard && finding.shard < own.last));
  CHECK(finding.step == 1);
}

TEST_CASE("a shard that fails when it is computed once more accuses nobody of the next one") {
  if (ranks() < 3) return;
  Strategy strategy = runtime().make_strategy();
  // Two shards of its own, one of another rank, and three times one of its own, to see whether that draws numbers.
  constexpr int before_judging = 6;
  int calls = 0;
  std::string message;
  const AuditError::Finding finding = finding_of(
      [&] {
        train(strategy, {.audit_every = 1}, [&](const Loss& right, int, int) {
          if (calls++ == before_judging && rank() == 0) throw std::runtime_error{"no memory left"};
          return odd_one() ? slightly_wrong(right) : right;
        });
      },
      message);
  INFO(message);
  CHECK(finding.blamed == std::vector{last()});
}

TEST_CASE("a step that is not as its audit has it changes nothing") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  Net net{strategy, Tagger{}, {.audit_every = 1}};
  const std::uint64_t before = weights_digest(net.variables());
  const at::Tensor mean = net->norm->running_mean.clone();
  CHECK_THROWS_AS(strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, shards(), [&](int shard) {
      const Loss right = loss_of(net, 0, shard);
      return odd_one() ? slightly_wrong(right) : right;
    });
  }),
                  AuditError);
  CHECK(weights_digest(net.variables()) == before);
  CHECK(torch::equal(net->norm->running_mean, mean));
  for (const at::Tensor& each : net.parameters()) CHECK(!each.grad().defined());
  // And the next step is as ever.
  CHECK_NOTHROW(strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, shards(), [&](int shard) { return loss_of(net, 1, shard); });
  }));
}

TEST_CASE("ranks with other weights are told so, and nobody is blamed for its gradients") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  Net net{strategy, Tagger{}, {.audit_every = 1}};
  if (odd_one()) {
    const at::NoGradGuard plain;
    net->out->weight.add_(1);
  }
  CHECK_THROWS_AS(strategy.run([&](ReplicaContext& context) {
    net.backward_shards(context, shards(), [&](int shard) { return loss_of(net, 0, shard); });
  }),
                  DriftError);
}

TEST_CASE("of a shard whose loss is not finite, an audit compares only that and the number of samples") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  Strategy strategy = runtime().make_strategy();
  // The NaNs of a rank have another sign than those of the others.
  const auto spoil = [](const Loss& right, int, int) {
    return Loss::mean(right.value() * (odd_one() ? -nan : nan), right.samples());
  };
  CHECK_NOTHROW(train(strategy, {.audit_every = 1}, spoil));
}

TEST_CASE("a shard that draws random numbers of its rank is refused by the audit, on every rank") {
  Strategy strategy = runtime().make_strategy();
  Net net{strategy, Tagger{}, {.audit_every = 1}};
  torch::manual_seed(static_cast<std::uint64_t>(rank()));
  CHECK_THAT(message_of<InvalidArgument>([&] {
               strategy.run([&](ReplicaContext& context) {
                 net.backward_shards(context, shards(), [&](int shard) {
                   const at::Tensor text = torch::full({4}, shard, at::kLong).add(torch::arange(4)).to(net.device());
                   return Loss::sum(net->forward(text).square().sum(), 4);
                 });
               });
             }),
             Catch::Contains("seed torch from the number of the shard"));
}

TEST_CASE("what cannot be audited is refused at the call") {
  Strategy strategy = runtime().make_strategy();
  CHECK(message_of<InvalidArgument>([&] { Net(strategy, Tagger{}, {.audit_every = 0}); }) ==
        "audit_every is 0; expected 1 or more steps");
  Net net{strategy, Tagger{}, {.audit_every = 9}};
  strategy.run([&](ReplicaContext& context) {
    CHECK_THAT(message_of<InvalidArgument>([&] { net.backward(context, loss_of(net, 0, rank())); }),
               Catch::Contains("without shards: expected backward_shards"));
  });
  libtorch::DataParallel<torch::nn::SequentialImpl> joint{
      strategy, torch::nn::Sequential{torch::nn::Linear{4, 4}, libtorch::SyncBatchNorm{4}}, {.audit_every = 9}};
  strategy.run([&](ReplicaContext& context) {
    CHECK_THAT(message_of<InvalidArgument>([&] {
                 joint.backward_shards(context, shards(), [&](int) {
                   return Loss::sum(joint->forward(torch::ones({2, 4}).to(joint.device())).sum(), 2);
                 });
               }),
               Catch::Contains("computes all shards together: expected no audit_every"));
  });
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([&] { Net(strategy, Tagger{}, {.audit_every = odd_one() ? 2 : 3}); }),
             Catch::Contains("audits every"));
}
