// The state of torch's own optimizers in checkpoints, in attestations and on the other ranks.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/torch/replicated_optimizer.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Optimizers = torch::optim::Optimizer;
using MakeOptimizer = std::function<std::unique_ptr<Optimizers>(std::vector<at::Tensor>)>;

/// Parameters of several shapes, and a buffer that no step changes.
struct Layers : torch::nn::Module {
  explicit Layers(double first) {
    register_parameter("a", weights({first, 2, 3}).view({3, 1}));
    register_parameter("b", weights({first}));
    register_parameter("c", weights({0.5, first}));
    register_parameter("none", weights({}));
    register_buffer("scale", weights({first / 10}));
  }
  at::Tensor of(char name) { return named_parameters()[std::string{name}]; }
  at::Tensor forward(const std::string& used, double x) {
    at::Tensor sum = torch::zeros({}, at::kDouble);
    for (const char name : used) sum = sum + (of(name).square() * x).sum().sin();
    return sum * named_buffers()["scale"].sum();
  }
};

/// A training of Layers.
struct Trained {
  Strategy strategy = runtime().make_strategy();
  libtorch::DataParallel<Layers> net;
  std::unique_ptr<Optimizers> optimizer;
  libtorch::ReplicatedOptimizer replicated;

  explicit Trained(const MakeOptimizer& make, double first = 1)
      : net{strategy, Layers{first}}, optimizer{make(net.parameters())}, replicated{net, *optimizer} {}

  void step(const std::string& used) {
    strategy.run([&](ReplicaContext& context) {
      optimizer->zero_grad();
      net.backward(context, libtorch::Loss::sum(net->forward(used, 0.3 * (rank() + 1)), rank() + 1));
      optimizer->step();
    });
  }

  void set_learning_rate(double rate) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rate);
  }

  /// Every value and every piece of state, by name.
  std::map<std::string, Values> all() {
    inside(strategy.store()).bring_home();
    std::map<std::string, Values> values;
    const auto add = [&](const std::string& name, const TensorView& view) {
      const Tensor host = Tensor::on_host(view);
      Values& of = values[name];
      if (host.dtype() == DType::f64) of = host.to_vector<double>();
      if (host.dtype() == DType::i64)
        for (const std::int64_t each : host.to_vector<std::int64_t>()) of.push_back(static_cast<double>(each));
    };
    for (const auto& each : inside(strategy.store()).variables())
      add(each->name, handle_of<MirroredVariable>(each).local());
    for (const auto& each : inside(strategy.store()).optimizer_state()) add(each.name, each.value);
    return values;
  }
};

template <class Optimizer, class Options>
MakeOptimizer with(Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

MakeOptimizer adamw() {
  return with<torch::optim::AdamW>(torch::optim::AdamWOptions{0.1});
}

const std::vector<std::pair<std::string, MakeOptimizer>>& kinds() {
  namespace optim = torch::optim;
  static const std::vector<std::pair<std::string, MakeOptimizer>> all{
      {"sgd", with<optim::SGD>(optim::SGDOptions{0.1})},
      {"sgd with momentum", with<optim::SGD>(optim::SGDOptions{0.1}.momentum(0.9).dampening(0.4).weight_decay(0.1))},
      {"sgd by nesterov", with<optim::SGD>(optim::SGDOptions{0.1}.momentum(0.8).nesterov(true))},
      {"adam", with<optim::Adam>(optim::AdamOptions{0.1}.weight_decay(0.1))},
      {"adam with amsgrad", with<optim::Adam>(optim::AdamOptions{0.1}.amsgrad(true).betas({0.8, 0.9}))},
      {"adamw", with<optim::AdamW>(optim::AdamWOptions{0.1})},
      {"adamw with amsgrad", with<optim::AdamW>(optim::AdamWOptions{0.1}.amsgrad(true).weight_decay(0.2))},
      {"rmsprop", with<optim::RMSprop>(optim::RMSpropOptions{0.1}.weight_decay(0.1))},
      {"rmsprop, centered", with<optim::RMSprop>(optim::RMSpropOptions{0.1}.momentum(0.9).centered(true))},
      {"adagrad", with<optim::Adagrad>(optim::AdagradOptions{0.1}.lr_decay(0.1).initial_accumulator_value(0.2))},
  };
  return all;
}

}  // namespace

TEST_CASE("a training with an optimizer of torch goes on from a checkpoint to the same bytes") {
  const SharedFolder folder;
  for (const auto& [kind, make] : kinds()) {
    CAPTURE(kind);
    Trained whole{make};
    const std::string path = folder / kind;
    CheckpointManager checkpoints{whole.strategy, {.folder = path}};
    whole.step("ac");  // b has no gradient yet
    whole.set_learning_rate(0.05);
    whole.step("a");
    checkpoints.save(2);
    checkpoints.finish();
    // Before the optimizer's first step, and after another one that has made other state.
    for (const bool has_stepped : {false, true}) {
      Trained resumed{make, 7};
      if (has_stepped) resumed.step("b");
      CheckpointManager again{resumed.strategy, {.folder = path}};
      CHECK(again.resume_latest()->step == 2);
      CHECK(resumed.all() == whole.all());
      CHECK(resumed.optimizer->param_groups()[0].options().get_lr() == 0.05);
      Trained uninterrupted{make};
      uninterrupted.step("ac");
      uninterrupted.set_learning_rate(0.05);
      uninterrupted.step("a");
      for (const std::string used : {"ab", "abc"}) {
        resumed.step(used);
        uninterrupted.step(used);
      }
      CHECK(resumed.all() == uninterrupted.all());
      CHECK(resumed.optimizer->state().size() == uninterrupted.optimizer->state().size());
      CHECK_NOTHROW(resumed.strategy.attest());
    }
  }
  folder.remove();
}

TEST_CASE("the state of torch's optimizers has the names of parameters and slots, as long as it is replicated") {
  const auto names_of = [](Strategy& strategy) {
    std::vector<std::string> names;
    for (const auto& each : inside(strategy.store()).optimizer_state()) names.push_back(each.name);
    return names;
  };
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  auto other = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  torch::optim::SGD sgd{net.parameters(), torch::optim::SGDOptions{1}.momentum(0.5)};
  const libtorch::ReplicatedOptimizer of_net{net, sgd};
  CHECK(names_of(strategy) == std::vector<std::string>{"w@sgd.lr", "w@sgd.momentum", "w@sgd.dampening",
                                                       "w@sgd.weight_decay", "w@sgd.nesterov", "w@sgd",
                                                       "w@momentum_buffer"});
  {
    torch::optim::Adagrad adagrad{
        {torch::optim::OptimizerParamGroup{{other->of("a")}}, torch::optim::OptimizerParamGroup{{other->of("b")}}}};
    libtorch::ReplicatedOptimizer first{other, adagrad};
    const libtorch::ReplicatedOptimizer of_other{std::move(first)};
    const auto names = names_of(strategy);
    CHECK(std::vector<std::string>(names.begin() + 7 + 10, names.end()) ==
          std::vector<std::string>{"a@adagrad.0", "a@step", "a@sum", "b@adagrad.1", "b@step", "b@sum"});
  }
  CHECK(names_of(strategy).size() == 7);
}

TEST_CASE("an embedding with sparse gradients goes on from a checkpoint to the same bytes") {
  struct Words : torch::nn::Module {
    torch::nn::Embedding table =
        register_module("table", torch::nn::Embedding{torch::nn::EmbeddingOptions{5, 2}.sparse(true)});
    Words() {
      to(at::kDouble);
      torch::NoGradGuard plain;
      table->weight.copy_(torch::arange(10, at::kDouble).view({5, 2}) / 7);
    }
  };
  const SharedFolder folder;
  for (const auto& [kind, make] : kinds()) {
    if (kind != "adagrad" && kind != "sgd by nesterov") continue;  // one with momentum, and one whose state is dense
    CAPTURE(kind);
    struct Run {
      Strategy strategy = runtime().make_strategy();
      libtorch::DataParallel<Words> net{strategy, std::make_shared<Words>()};
      std::unique_ptr<Optimizers> optimizer;
      libtorch::ReplicatedOptimizer replicated;
      explicit Run(const MakeOptimizer& make) : optimizer{make(net.parameters())}, replicated{net, *optimizer} {}
      Values step(int number) {
        strategy.run([&](ReplicaContext& context) {
          optimizer->zero_grad();
          const at::Tensor words = torch::tensor({(number + rank()) % 4, number % 3, number % 3}, at::kLong);
          net.backward(context, libtorch::Loss::sum(net->table->forward(words).sin().sum() * 0.3, 3));
          optimizer->step();
        });
        return values_of(net->table->weight);
      }
    };
    Run whole{make}, saved{make}, resumed{make};
    for (int step = 0; step < 2; ++step) {
      whole.step(step);
      saved.step(step);
    }
    save_checkpoint(saved.strategy, folder / kind);
    restore_checkpoint(resumed.strategy, folder / kind);
    for (int step = 2; step < 5; ++step) {
      const Values expected = whole.step(step);
      CHECK(resumed.step(step) == expected);
      CHECK(saved.step(step) == expected);
    }
  }
  folder.remove();
}

TEST_CASE("the momentum of a sparse gradient is saved as a dense tensor, and stays sparse") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  torch::optim::SGD sgd{net.parameters(), torch::optim::SGDOptions{1}.momentum(0.5).nesterov(true)};
  const libtorch::ReplicatedOptimizer replicated{net, sgd};
  for (int step = 0; step < 2; ++step) {
    net->w.mutable_grad() = weights({0, 4}).to_sparse();
    sgd.step();
    CHECK_NOTHROW(strategy.attest());
    CHECK(inside(strategy.store()).optimizer_state().back().value.to_vector<double>() ==
          Values{0, step == 0 ? 4.0 : 6.0});
    if (odd_one() && ranks() > 1) sgd.state().clear();
    strategy.rebroadcast();
    const auto& state = static_cast<torch::optim::SGDParamState&>(*sgd.state().begin()->second);
    CHECK((state.momentum_buffer().is_sparse() && state.momentum_buffer().is_coalesced()));
  }
  CHECK(values_of(net->w) == Values{1, 2 - 6 - 7});
}

TEST_CASE("a checkpoint of another optimizer, of other parameters or of other groups is refused in one line") {
  const SharedFolder folder;
  const std::string path = folder / "checkpoint";
  {
    Trained saved{adamw()};
    saved.step("ab");
    save_checkpoint(saved.strategy, path);
  }
  const auto refused = [&](const MakeOptimizer& make) {
    Trained other{make, 3};
    const auto before = other.all();
    std::string words;
    try {
      restore_checkpoint(other.strategy, path);
    } catch (const Error& error) {
      words = error.what();
    }
    CHECK(other.all() == before);
    CHECK(words.find('\n') == std::string::npos);
    return words;
  };
  CHECK_THAT(refused(with<torch::optim::Adam>(torch::optim::AdamOptions{0.1})), Catch::Contains("a@adam"));
  CHECK_THAT(refused(with<torch::optim::AdamW>(torch::optim::AdamWOptions{0.1}.amsgrad(true))),
             Catch::Contains("a@max_exp_avg_sq"));
  const auto some = [](std::vector<at::Tensor> parameters) {
    parameters.resize(2);
    return std::make_unique<torch::optim::AdamW>(parameters);
  };
  CHECK_THAT(refused(some), Catch::Contains("c@adamw"));
  const auto in_groups = [](const std::vector<at::Tensor>& all) {
    using Group = torch::optim::OptimizerParamGroup;
    return std::make_unique<torch::optim::AdamW>(std::vector{Group{{all[0], all[1]}}, Group{{all[2], all[3]}}});
  };
  CHECK_THAT(refused(in_groups), Catch::Contains("a@adamw.0"));
  folder.remove();
}

TEST_CASE("other learning rates and other state of one rank are found, and rebroadcast gives it those of replica 0") {
  Trained training{adamw()};
  training.step("ac");
  const auto drift = [&] { return message_of<DriftError>([&] { training.strategy.attest(); }); };
  CHECK(drift().empty());
  const auto expect_repaired = [&](const std::string& what) {
    if (ranks() > 1) CHECK_THAT(drift(), Catch::Contains("optimizer state '" + what + "'"));
    training.strategy.rebroadcast();
    CHECK(drift().empty());
    training.step("abc");
    CHECK(drift().empty());
  };
  const bool is_odd = ranks() > 1 && odd_one();
  if (is_odd) training.set_learning_rate(0.3);
  expect_repaired("a@adamw.lr");
  CHECK(training.optimizer->param_groups()[0].options().get_lr() == 0.1);
  if (is_odd) training.optimizer->state().clear();
  expect_repaired("a@adamw");
  CHECK(training.optimizer->state().size() == 3);
  if (runtime().is_chief() && ranks() > 1) training.optimizer->state().clear();
  expect_repaired("a@adamw");
  const auto state_of_a = [&]() -> torch::optim::AdamWParamState& {
    for (auto& each : training.optimizer->state())
      if (auto& state = static_cast<torch::optim::AdamWParamState&>(*each.second); state.exp_avg().numel() == 3)
        return state;
    throw std::runtime_error{"no state"};
  };
  if (is_odd) state_of_a().exp_avg().add_(1);
  expect_repaired("a@exp_avg");
  if (is_odd) state_of_a().step(9);
  expect_repaired("a@step");
  training.optimizer->state().clear();
  CHECK(training.all()["a@exp_avg"] == Values{0, 0, 0});
}

TEST_CASE("other learning rates with an optimizer of torch's alone are found in the variables") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  torch::optim::SGD sgd{net.parameters(), 1.0 + (odd_one() ? 1 : 0)};
  strategy.attest_first(0);
  strategy.run([&](ReplicaContext& context) {
    net.backward(context, libtorch::Loss::sum(net->forward(torch::ones({2}, at::kDouble)), 1));
    sgd.step();
  });
  if (ranks() > 1) CHECK_THAT(message_of<DriftError>([&] { strategy.attest(); }), Catch::Contains("variable 'w'"));
}

TEST_CASE("two modules with an optimizer each, or with one for both, go on from a checkpoint") {
  struct Gan {
    Strategy strategy = runtime().make_strategy();
    libtorch::DataParallel<Layers> generator{strategy, Layers{1}, {.name = "generator"}};
    libtorch::DataParallel<Plane> critic{strategy, Plane{}};
    torch::optim::Adam of_generator{generator.parameters(), torch::optim::AdamOptions{0.1}};
    torch::optim::Adam of_critic{critic.parameters(), torch::optim::AdamOptions{0.2}};
    libtorch::ReplicatedOptimizer first{generator, of_generator};
    libtorch::ReplicatedOptimizer second{{&critic}, of_critic};

    Values step() {
      strategy.run([&](ReplicaContext& context) {
        generator.zero_grad();
        critic.zero_grad();
        generator.backward(context, libtorch::Loss::sum(generator->forward("ab", rank() + 1), 1));
        of_generator.step();
        critic.backward(context, libtorch::Loss::sum(critic->forward(torch::full({2}, rank(), at::kDouble)), 1));
        of_critic.step();
      });
      Values values = values_of(generator->of('a'));
      for (const double each : values_of(critic->w)) values.push_back(each);
      return values;
    }
  };
  const SharedFolder folder;
  Gan gan;
  gan.step();
  save_checkpoint(gan.strategy, folder / "gan");
  const Values expected = gan.step();
  Gan resumed;
  restore_checkpoint(resumed.strategy, folder / "gan");
  CHECK(resumed.step() == expected);

  Strategy strategy = runtime().make_strategy();
  auto encoder = libtorch::DataParallel{strategy, Plane{}};
  auto decoder = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  torch::optim::SGD both{{encoder->w, decoder->of("a")}, 1};
  torch::optim::RMSprop rest{{decoder->of("b")}};
  const libtorch::ReplicatedOptimizer of_both{{&encoder, &decoder}, both};
  const libtorch::ReplicatedOptimizer of_rest{decoder, rest};
  CHECK_NOTHROW(strategy.attest());
  folder.remove();
}

TEST_CASE("an optimizer whose state cannot be kept is refused by name, and on one rank fails on all") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  auto critic = libtorch::DataParallel{strategy, Plane{}, {.name = "critic"}};
  const auto refused = [&](Optimizers& optimizer) {
    return message_of<InvalidArgument>([&] { (void)libtorch::ReplicatedOptimizer{net, optimizer}; });
  };
  torch::optim::LBFGS lbfgs{net.parameters()};
  CHECK(refused(lbfgs) ==
        "the state of a torch::optim::LBFGS is not known; expected torch's SGD, Adam, AdamW, RMSprop or Adagrad");
  struct MyAdam : torch::optim::Adam {
    using Adam::Adam;
  };
  MyAdam derived{net.parameters()};
  CHECK_THAT(refused(derived), Catch::Contains("MyAdam"));
  torch::optim::SGD of_critic{critic.parameters(), 1};
  CHECK(refused(of_critic) ==
        "parameter 'critic.w' of critic (lockstep::test::Plane) in group 0 of a torch::optim::SGD is no parameter of "
        "the modules that were named");
  torch::optim::SGD stray{{torch::ones({2, 3})}, 1};
  CHECK_THAT(refused(stray), Catch::StartsWith("a tensor of shape [2, 3] in group 0 of a torch::optim::SGD is no"));
  torch::optim::SGD twice{{net->w, net->w}, 1};
  CHECK(refused(twice) == "parameter 'w' is in a torch::optim::SGD twice");
  torch::optim::SGD nothing{std::vector<at::Tensor>{}, 1};
  CHECK(refused(nothing) == "a torch::optim::SGD without parameters");

  torch::optim::Adam adam{net.parameters()};
  torch::optim::SGD sgd{net.parameters(), 1};
  {
    const libtorch::ReplicatedOptimizer first{net, adam};
    CHECK_THAT(refused(sgd), Catch::StartsWith("parameter 'w' of a torch::optim::SGD belongs to the torch::optim::Adam "
                                               "that has been replicated at replicated_optimizer.cpp:"));
    adam.add_param_group(torch::optim::OptimizerParamGroup{{critic->w}});
    CHECK_THAT(message_of<InvalidArgument>([&] { strategy.attest(); }), Catch::Contains("have changed"));
  }
  CHECK_NOTHROW(libtorch::ReplicatedOptimizer(net, sgd));

  if (ranks() == 1) return;
  Optimizers& one = odd_one() ? static_cast<Optimizers&>(lbfgs) : sgd;
  const auto tie = [&] { (void)libtorch::ReplicatedOptimizer{net, one}; };
  CHECK_THAT(odd_one() ? message_of<InvalidArgument>(tie) : message_of<PeerError>(tie), Catch::Contains("LBFGS"));
  torch::optim::Adam another{net.parameters()};
  Optimizers& mixed = odd_one() ? static_cast<Optimizers&>(another) : sgd;
  CHECK_THAT(mismatch_of([&] {
               (void)libtorch::ReplicatedOptimizer{net, mixed};
             }),
             Catch::Contains("torch::optim::Adam"));
  expect_in_step();
}
