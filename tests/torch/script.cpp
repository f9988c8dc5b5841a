// TorchScript modules as replicas, against the same computation in plain LibTorch.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/torch/script.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

torch::jit::Module scripted() {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  torch::jit::Module layer{"__torch__.Layer", unit}, net{"__torch__.Net", unit};
  torch::manual_seed(3);
  layer.register_attribute("training", c10::BoolType::get(), true);
  layer.register_parameter("weight", torch::rand({3, 3}, at::kDouble).requires_grad_(), false);
  layer.register_buffer("average", torch::ones({3}, at::kDouble));
  layer.register_buffer("calls", torch::zeros({}, at::kLong));
  layer.register_buffer("seen", torch::zeros({1}, at::kBool));
  // The graph keeps the average that the script then puts another tensor in the place of.
  layer.define(R"(
    def forward(self, x):
        y = torch.tanh(torch.matmul(x, self.weight) * self.average)
        if self.training:
            self.average = 0.5 * self.average + 0.5 * x.detach().mean(0)
            self.calls.add_(1)
            self.seen.fill_(1)
        return y
    )");
  net.register_attribute("training", c10::BoolType::get(), true);
  net.register_parameter("scale", torch::rand({3}, at::kDouble).requires_grad_(), false);
  net.register_parameter("frozen", torch::ones({3}, at::kDouble), false);
  net.register_module("layer", layer);
  net.register_parameter("tied", layer.attr("weight").toTensor(), false);
  net.define(R"(
    def forward(self, x):
        y = torch.matmul(self.layer.forward(x), self.tied) * self.scale * self.frozen
        for i in range(2):
            y = torch.sigmoid(y + torch.relu(y))
        return y
    )");
  return net;
}

/// The same, on tensors of its own.
struct Plainly {
  explicit Plainly(const torch::jit::Module& net) {
    for (const char* const name : {"layer.weight", "scale"})
      for (const auto& each : net.named_parameters())
        if (each.name == name) parameters.push_back(each.value.detach().clone().requires_grad_());
  }

  at::Tensor loss(const at::Tensor& x) { return scores(x).square().sum(); }

  at::Tensor scores(const at::Tensor& x) {
    at::Tensor y = torch::tanh(torch::matmul(x, parameters[0]) * average);
    y = torch::matmul(y, parameters[0]) * parameters[1];
    for (int i = 0; i < 2; ++i) y = torch::sigmoid(y + torch::relu(y));
    average = 0.5 * average + 0.5 * x.mean(0);
    return y;
  }

  std::vector<at::Tensor> parameters;  ///< the weight, the scale
  at::Tensor average = torch::ones({3}, at::kDouble);
};

using Script = libtorch::DataParallel<torch::jit::Module>;

at::Tensor loss_of(Script& net, const at::Tensor& x) {
  return net->forward({x}).toTensor().square().sum();
}

at::Tensor samples_of(int step, std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(10 + step));
  return torch::rand({count, 3}, at::kDouble) - 0.5;
}

at::Tensor variable_of(Script& net, const std::string& name) {
  for (const auto& each : net->named_parameters())
    if (each.name == name) return each.value;
  for (const auto& each : net->named_buffers())
    if (each.name == name) return each.value;
  return {};
}

bool are_close(const at::Tensor& found, const at::Tensor& expected) {
  return torch::allclose(found, expected, 1e-12, 1e-13);
}

}  // namespace

TEST_CASE("a script trains like the same computation in one process, also after its executor has optimised it") {
  Strategy strategy = runtime().make_strategy();
  Script net{strategy, scripted(), {.name = "net"}};
  Plainly plainly{*net};
  std::vector<std::string> names;
  for (const Variable& each : net.variables()) names.emplace_back(each.name());
  CHECK(names == std::vector<std::string>{"net.scale", "net.frozen", "net.layer.weight"});

  torch::optim::SGD sgd{net.parameters(), 0.1}, expected{plainly.parameters, 0.1};
  for (int step = 0; step < 6; ++step) {
    const at::Tensor x = samples_of(step, triangle());
    strategy.run([&](ReplicaContext& context) {
      // Rank r has r + 1 samples, in one pass or, in every other step, in two.
      const at::Tensor mine = x.slice(0, rank() * (rank() + 1) / 2, (rank() + 1) * (rank() + 2) / 2);
      const std::int64_t first = step % 2 ? mine.size(0) / 2 : 0;
      sgd.zero_grad();
      if (first > 0) {
        const at::Tensor kept = variable_of(net, "layer.average");
        net.accumulate(libtorch::Loss::sum(loss_of(net, mine.slice(0, 0, first)), first));
        net->attr("layer").toModule().setattr("average", kept);  // so that there is one pass's average
      }
      const libtorch::ReplicatedModule::MeanLoss loss =
          net.backward(context, libtorch::Loss::sum(loss_of(net, mine.slice(0, first)), mine.size(0) - first));
      CHECK(loss.samples == triangle());
    });
    expected.zero_grad();
    (plainly.loss(x) / triangle()).backward();
    CHECK(are_close(variable_of(net, "layer.weight").grad(), plainly.parameters[0].grad()));
    CHECK(are_close(variable_of(net, "scale").grad(), plainly.parameters[1].grad()));
    CHECK_FALSE(variable_of(net, "frozen").grad().defined());
    if (step % 2 == 0) CHECK(are_close(variable_of(net, "layer.average"), plainly.average));
    sgd.step();
    expected.step();
    strategy.attest();
    plainly.average.copy_(variable_of(net, "layer.average"));
  }
  CHECK(are_close(variable_of(net, "tied"), plainly.parameters[0]));
  CHECK_THAT(net->forward({samples_of(0, 2)}).toTensor().grad_fn()->name(), Catch::Contains("DifferentiableGraph"));
}

TEST_CASE("a script trains in shards, and its buffers are those of the shards") {
  Strategy strategy = runtime().make_strategy();
  Script net{strategy, scripted()};
  Plainly plainly{*net};
  const int shards = 2 * ranks();
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = samples_of(step, 3 * shards);
    net.zero_grad();
    if (step == 2) {  // each shard begins with what this leaves
      const at::NoGradGuard without;
      (void)net->forward({x});
      (void)plainly.loss(x);
    }
    strategy.run([&](ReplicaContext& context) {
      net.backward_shards(context, shards, [&](int shard) {
        return libtorch::Loss::sum(loss_of(net, x.slice(0, 3 * shard, 3 * shard + 3)), 3);
      });
    });
    for (at::Tensor& each : plainly.parameters) each.mutable_grad().reset();
    (plainly.loss(x) / x.size(0)).backward();
    CHECK(are_close(variable_of(net, "layer.weight").grad(), plainly.parameters[0].grad()));
    CHECK(are_close(variable_of(net, "scale").grad(), plainly.parameters[1].grad()));
    CHECK(are_close(variable_of(net, "layer.average"), plainly.average));
    CHECK(values_of(variable_of(net, "layer.calls")) == Values{step < 2 ? step + 1.0 : step + 2.0});
    strategy.attest();
  }
}

TEST_CASE("the shards of a script beside a SyncBatchNorm have buffers of their own, also those that it replaces") {
  Strategy strategy = runtime().make_strategy();
  Script net{strategy, scripted()};
  Plainly plainly{*net};
  libtorch::SyncBatchNorm norm{torch::nn::BatchNormOptions{3}.track_running_stats(false)};
  norm->to(at::kDouble);
  libtorch::DataParallel head{strategy, norm};
  const int shards = 2 * ranks();
  const at::Tensor x = samples_of(0, 3 * shards);
  const auto step = [&](bool fails) {
    strategy.run([&](ReplicaContext& context) {
      libtorch::backward_shards(context, {&net, &head}, shards, [&](int shard) {
        const at::Tensor scores = net->forward({x.slice(0, 3 * shard, 3 * shard + 3)}).toTensor();
        if (fails) throw std::runtime_error{"bang"};
        return libtorch::Loss::sum(head->forward(scores).pow(3).sum(), 3);
      });
    });
  };
  CHECK_THROWS(step(true));
  CHECK(values_of(variable_of(net, "layer.average")) == Values{1, 1, 1});
  step(false);
  (torch::batch_norm(plainly.scores(x), {}, {}, {}, {}, true, 0, 1e-5, false).pow(3).sum() / x.size(0)).backward();
  CHECK(torch::allclose(variable_of(net, "layer.weight").grad(), plainly.parameters[0].grad(), 1e-9, 1e-11));
  CHECK(are_close(variable_of(net, "layer.average"), plainly.average));
  CHECK(values_of(variable_of(net, "layer.calls")) == Values{1});
  strategy.attest();
}

TEST_CASE("a script is saved as it was trained, and evaluation changes nothing") {
  Strategy strategy = runtime().make_strategy();
  Script net{strategy, scripted()};
  torch::optim::Adam adam{net.parameters(), 0.1};
  const at::Tensor x = samples_of(rank(), 4);
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      net.backward(context, libtorch::Loss::sum(loss_of(net, x), 4));
      adam.step();
    });
  };
  step();
  step();
  net->eval();
  const at::Tensor scores = net->forward({x}).toTensor();
  CHECK(values_of(variable_of(net, "layer.calls")) == Values{2});
  CHECK(values_of(variable_of(net, "layer.seen")) == Values{1});
  std::stringstream file;
  net->save(file);
  torch::jit::Module loaded = torch::jit::load(file);
  CHECK(loaded.forward({x}).toTensor().equal(scores));
  CHECK(loaded.attr("tied").toTensor().is_same(loaded.attr("layer").toModule().attr("weight").toTensor()));
  net->train();
  (void)net->forward({samples_of(7, 4)});  // the same on every rank, without a step
  CHECK_NOTHROW(strategy.attest());
  for (const auto& state : inside(strategy.store()).variables())
    if (const auto variable = handle_of<MirroredVariable>(state); variable.name() == "layer.average")
      CHECK(variable.local().to_vector<double>() == values_of(variable_of(net, "layer.average")));
  step();
  CHECK(values_of(variable_of(net, "layer.calls")) == Values{4});
  CHECK_FALSE(loaded.forward({x}).toTensor().equal(net->forward({x}).toTensor()));
}

TEST_CASE("a script without parameters, and a buffer that takes another shape, are refused by name") {
  Strategy strategy = runtime().make_strategy();
  torch::jit::Module evaluated = scripted();
  evaluated.eval();
  CHECK(message_of<InvalidArgument>([&] {
          Script{strategy, torch::jit::freeze(evaluated)};
        }) ==
        "the TorchScript module Net has no parameters; expected one that torch.jit.freeze has not made into constants");

  torch::jit::Module growing{"Growing"};
  growing.register_parameter("weight", torch::ones({2}, at::kDouble).requires_grad_(), false);
  growing.register_buffer("kept", torch::zeros({2}, at::kDouble));
  growing.define(R"(
    def forward(self, x):
        self.kept = torch.cat([self.kept, x])
        return (x * self.weight).sum()
    )");
  Script net{strategy, growing};
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor x = torch::ones({2}, at::kDouble);
      net.backward(context, libtorch::Loss::sum(net->forward({x}).toTensor(), 1));
    });
  };
  CHECK(message_of<InvalidArgument>(step) == "buffer 'kept' of Growing has become Double[4]; expected Double[2]");
}

TEST_CASE("a buffer of a script that has two names changes in place, and is refused a new tensor") {
  torch::jit::Module tied{"Tied"};
  const at::Tensor sum = torch::zeros({}, at::kDouble);
  tied.register_parameter("weight", torch::ones({}, at::kDouble).requires_grad_(), false);
  tied.register_buffer("one", sum);
  tied.register_buffer("other", sum);
  tied.define(R"(
    def forward(self, x, replaces: str):
        self.one.add_(x)
        if replaces == "one":
            self.one = self.one + x
        if replaces == "other":
            self.other = self.other + x
        return x * self.weight * self.other
    )");
  const std::string name = GENERATE("one", "other"), second = name == "one" ? "other" : "one";
  Strategy strategy = runtime().make_strategy();
  Script net{strategy, tied};
  const auto step = [&](const std::string& replaces) {
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor x = torch::ones({}, at::kDouble);
      net.backward(context, libtorch::Loss::sum(net->forward({x, replaces}).toTensor(), 1));
    });
  };
  step("");
  CHECK(variable_of(net, "weight").grad().item<double>() == 1);
  CHECK(variable_of(net, "other").item<double>() == 1);
  CHECK(message_of<InvalidArgument>([&] { step(name); }) == "a new tensor in the place of buffer '" + name +
                                                                "' of Tied, which is also buffer '" + second +
                                                                "': expected a change in place, or two tensors");
}
