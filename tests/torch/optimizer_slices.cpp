// Optimizers of modules whose work the ranks share in slices.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <lockstep/torch/replicated_optimizer.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Parameters that take more than the 64 KiB that stay whole. A step may leave the second layer out.
struct Wide : torch::nn::Module {
  Wide() {
    torch::manual_seed(7);
    first = register_module("first", torch::nn::Linear(120, 100));
    second = register_module("second", torch::nn::Linear(100, 70));
    to(at::kDouble);
  }
  at::Tensor forward(int step) {
    const at::Tensor x = torch::arange(120, at::kDouble) * (0.01 * (rank() + 1)) + step;
    const at::Tensor hidden = torch::tanh(first->forward(x));
    return (step == 1 ? hidden : second->forward(hidden)).square().sum();
  }

  torch::nn::Linear first = nullptr, second = nullptr;
};

std::string bytes_of(const std::string& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A training, the bytes of its checkpoint, and how much state this rank keeps.
template <class Options>
struct InSlices {
  Strategy strategy;
  libtorch::DataParallel<Wide> net{strategy, Wide{}};
  libtorch::ReplicatedModule::Optimizer optimizer;

  InSlices(const Options& options, bool in_slices)
      : strategy{runtime().make_strategy({.shard_optimizer = in_slices})}, optimizer{net.optimizer(options)} {}

  void steps(int first, int last) {
    for (int step = first; step < last; ++step)
      strategy.run([&](ReplicaContext& context) {
        net.zero_grad();
        net.backward(context, libtorch::Loss::sum(net->forward(step), rank() + 1));
        const Values gradient = values_of(net->first->weight.grad());
        optimizer.step(context);
        CHECK(values_of(net->first->weight.grad()) == gradient);
      });
  }

  std::int64_t kept() {
    std::int64_t count = 0;
    for (const VariableStore::FlatRange& range : strategy.store().ranges(net.variables()))
      for (const auto& [name, slot] : range.segment->slots) count += slot.count();
    return count;
  }
};

template <class Options>
void check_slices(const Options& options, std::int64_t slots) {
  const SharedFolder folder;
  InSlices whole{options, false}, parts{options, true};
  for (auto* const each : {&whole, &parts}) each->steps(0, 3);
  for (std::size_t i = 0; i < whole.net.parameters().size(); ++i)
    CHECK(values_of(parts.net.parameters()[i]) == values_of(whole.net.parameters()[i]));
  CHECK(parts.optimizer.rules().gradient_norm() == whole.optimizer.rules().gradient_norm());
  const auto all = runtime().strategy().reduce(ReduceOp::sum, PerReplica<std::int64_t>{parts.kept()});
  CHECK(all == whole.kept());
  if (slots > 0 && ranks() > 1) CHECK(parts.kept() < whole.kept());

  save_checkpoint(whole.strategy, folder / "whole");
  save_checkpoint(parts.strategy, folder / "parts");
  CHECK(bytes_of(folder / "whole") == bytes_of(folder / "parts"));
  InSlices resumed{options, true};
  restore_checkpoint(resumed.strategy, folder / "whole");
  for (auto* const each : {&whole, &resumed}) each->steps(3, 5);
  CHECK(values_of(resumed.net->first->weight) == values_of(whole.net->first->weight));
  folder.remove();
}

}  // namespace

TEST_CASE("a module's optimizer in slices makes the same values, with a part of the state") {
  check_slices(Sgd::Options{.learning_rate = 0.01}, 0);
  check_slices(Sgd::Options{.learning_rate = 0.01, .momentum = 0.9, .clip_norm = 5.0}, 1);
  check_slices(AdamW::Options{.learning_rate = 0.01, .weight_decay = 0.1, .clip_norm = 5.0}, 2);
}

TEST_CASE("a torch optimizer, whose state is whole, cannot be replicated where the ranks share the work in slices") {
  Strategy strategy = runtime().make_strategy({.shard_optimizer = true});
  auto net = libtorch::DataParallel{strategy, Wide{}};
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{1e-3}};
  if (ranks() == 1) {
    const libtorch::ReplicatedOptimizer replicated{net, adamw};
    return;
  }
  CHECK_THROWS_WITH((libtorch::ReplicatedOptimizer{net, adamw}),
                    Catch::Contains("a torch::optim::AdamW keeps the whole state of parameter 'first.weight' on every "
                                    "rank, and the strategy shares the work of optimizers in slices "
                                    "(shard_optimizer); expected an optimizer of the module"));
}
