// Modules of LibTorch as replicas. Inputs differ on every rank; sums are exact.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <lockstep/lockstep.hpp>
#include <lockstep/torch/data_parallel.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Values = std::vector<double>;

Values values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

at::Tensor weights(const Values& values) {
  return torch::tensor(values, at::kDouble);
}

/// y = w x, for x of two numbers: the gradient of a sum of losses y is the sum of x.
struct Plane : torch::nn::Module {
  at::Tensor w = register_parameter("w", weights({1.0 + rank(), 2.0}));
  at::Tensor forward(const at::Tensor& x) { return (x * w).sum(); }
};

/// One with several parameters, of which a call uses those that it names.
struct Parts : torch::nn::Module {
  explicit Parts(const std::vector<std::string>& names) {
    for (const std::string& name : names) register_parameter(name, weights({1, 1}));
  }
  at::Tensor of(const std::string& name) { return named_parameters()[name]; }
  at::Tensor forward(const std::string& used, double x) {
    at::Tensor sum = torch::zeros({}, at::kDouble);
    for (const char name : used) sum = sum + (of({name}) * x).sum();
    return sum;
  }
  at::Tensor gradient(const std::string& name) { return of(name).grad(); }
};

/// As many samples as the rank's number, each (rank, 10 rank): rank 0 has none.
at::Tensor samples_of_rank(int own) {
  return torch::tensor({1.0 * own, 10.0 * own}, at::kDouble).repeat({own, 1});
}

int sum_to(int last, int power) {
  int sum = 0;
  for (int i = 0; i <= last; ++i) sum += power == 1 ? i : i * i;
  return sum;
}

}  // namespace

TEST_CASE("every rank gets the parameters of replica 0, in the strategy's memory, under torch's names") {
  Strategy strategy = runtime().make_strategy();
  torch::nn::Sequential layers{torch::nn::Linear{2, 3}, torch::nn::BatchNorm1d{3}};
  const at::Tensor before = layers->parameters()[0];
  const auto net = torch::DataParallel{strategy, layers};
  std::set<std::string> names;
  for (const auto& each : strategy.store().variables()) names.insert(each->name);
  CHECK(names == std::set<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                       "1.num_batches_tracked"});
  CHECK(net->parameters()[0].is_same(before));
  for (const Variable& variable : net.variables()) {
    const at::Tensor parameter = net->named_parameters()[std::string{variable.name()}];
    CHECK(parameter.data_ptr() == static_cast<void*>(variable.local().data()));
    CHECK(parameter.requires_grad());
  }
  CHECK_NOTHROW(strategy.attest());

  const auto plane = lockstep::torch::DataParallel{strategy, Plane{}, {.name = "second"}};
  CHECK(plane.variables()[0].name() == "second.w");
  CHECK(values_of(plane->w) == Values{1, 2});
}

TEST_CASE("the gradient is the mean over the samples of all ranks, of which some have none") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, std::make_shared<Plane>()};
  MeetingPoint& meeting = strategy.group().meeting();
  const auto meetings = meeting.meetings();
  strategy.run([&](ReplicaContext& context) {
    // Rank 0 has no samples, and a loss that is no number.
    const at::Tensor loss = rank() == 0 ? at::Tensor{} : net->forward(samples_of_rank(rank()));
    const torch::MeanLoss mean = net.backward(context, loss, rank());
    const int samples = sum_to(last(), 1);
    CHECK(mean.samples == samples);
    if (samples == 0) {
      CHECK_FALSE(net->w.grad().defined());
      CHECK(mean.mean == 0);
      return;
    }
    const double x = 1.0 * sum_to(last(), 2) / samples;
    CHECK(values_of(net->w.grad()) == Values{x, 10.0 * sum_to(last(), 2) / samples});
    CHECK(mean.mean == 21 * x);
  });
  CHECK(meeting.meetings() - meetings == 2);  // with the end of the run
}

TEST_CASE("a torch optimizer makes the same step everywhere, in flat memory") {
  Strategy strategy = runtime().make_strategy();
  Plane module;
  torch::optim::SGD sgd{{module.w}, 1.0};  // made before
  auto net = torch::DataParallel{strategy, module};
  for (int step = 0; step < 2; ++step)
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      net.backward(context, net->forward(samples_of_rank(1)) * (rank() + 1), 1);
      sgd.step();
    });
  const double step = 1.0 * triangle() / ranks();
  CHECK(net.variables()[0].local().to_vector<double>() == Values{1 - 2 * step, 2 - 20 * step});
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("what a rank does not use counts as zeros, and what no rank uses has no gradient") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  torch::optim::SGD sgd{net.parameters(), torch::optim::SGDOptions{1}.weight_decay(0.5)};
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      const torch::MeanLoss mean = net.backward(context, net->forward(odd_one() ? "ab" : "a", 4), 1);
      CHECK(mean.samples == ranks());
      CHECK(values_of(net->gradient("a")) == Values{4, 4});
      CHECK(values_of(net->gradient("b")) == Values{4.0 / ranks(), 4.0 / ranks()});
      CHECK_FALSE(net->gradient("c").defined());
    });
  }
  sgd.step();
  CHECK(values_of(net->of("a")) == Values{-3.5, -3.5});
  CHECK(values_of(net->of("c")) == Values{1, 1});
}

TEST_CASE("gradients are accumulated without communication, and zeroing forgets them") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b"}}};
  torch::optim::SGD sgd{net.parameters(), 1};
  enum class Zeroed { never, by_module, by_replica, by_optimizer };
  for (const Zeroed zeroed : {Zeroed::never, Zeroed::by_module, Zeroed::by_replica, Zeroed::by_optimizer}) {
    CAPTURE(static_cast<int>(zeroed));
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      const auto meetings = strategy.group().meeting().meetings();
      for (int i = 0; i <= rank(); ++i) net.accumulate(net->forward("ab", 2), 2);
      CHECK(strategy.group().meeting().meetings() == meetings);
      if (zeroed == Zeroed::by_module) net->zero_grad();
      if (zeroed == Zeroed::by_replica) net.zero_grad();
      if (zeroed == Zeroed::by_optimizer) sgd.zero_grad();
      const torch::MeanLoss mean = net.backward(context, net->forward("a", 6), 1);
      const int kept = zeroed == Zeroed::never ? triangle() : 0;
      const double samples = ranks() + 2 * kept;
      CHECK(mean.samples == samples);
      CHECK(mean.mean == (12 * ranks() + 8 * kept) / samples);
      CHECK(values_of(net->gradient("a"))[0] == (6 * ranks() + 2 * kept) / samples);
      CHECK(net->gradient("b").defined() == (kept > 0));
      if (kept) CHECK(values_of(net->gradient("b"))[0] == 2 * kept / samples);
    });
  }
}

TEST_CASE("a second backward adds its mean to the gradients, as in torch") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b"}}};
  strategy.run([&](ReplicaContext& context) {
    net.backward(context, net->forward("ab", 2 * (rank() + 1)), 1);
    net.backward(context, net->forward("a", 10), 1);
    const double first = 2.0 * triangle() / ranks();
    CHECK(values_of(net->gradient("a")) == Values{first + 10, first + 10});
    CHECK(values_of(net->gradient("b")) == Values{first, first});
  });
}

TEST_CASE("buckets travel in the order of memory, whatever autograd's order") {
  Strategy strategy = runtime().make_strategy({.packing = Unpacked{}});
  auto net = torch::DataParallel{strategy, Parts{{"a", "b", "c", "d"}}};
  // Autograd goes backwards through the graph, so each rank completes the gradients in another order.
  const std::vector<std::string> orders{"abcd", "dcba", "bd", "cadb"};
  strategy.run([&](ReplicaContext& context) {
    at::Tensor sum = torch::ones({}, at::kDouble);
    double factor = 1 + rank();
    for (const char name : orders[static_cast<std::size_t>(rank())])
      sum = sum + factor * net->of({name}).sum() + 0 * sum;
    net.backward(context, sum, 1);
    for (const char name : std::string{"abcd"}) {
      double expected = 0;
      for (int r = 0; r < ranks(); ++r)
        if (orders[static_cast<std::size_t>(r)].find(name) != std::string::npos) expected += 1 + r;
      CHECK(values_of(net->gradient({name}))[0] == expected / ranks());
    }
  });
}

namespace {

enum class Fault { in_forward, in_tensor_hook, in_parameter_hook, in_agreement };

}  // namespace

TEST_CASE("a throw anywhere on one rank is a PeerError on the others, in the same step, and nothing has changed") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b"}}};
  Fault fault{};
  bool armed = false;
  net->of("b").register_hook([&](const at::Tensor&) {
    if (armed && fault == Fault::in_parameter_hook) throw std::runtime_error{"bang"};
  });
  for (const Fault kind : {Fault::in_forward, Fault::in_tensor_hook, Fault::in_parameter_hook, Fault::in_agreement}) {
    CAPTURE(static_cast<int>(kind));
    fault = kind;
    armed = odd_one();
    bool returned = false;
    const auto step = [&] {
      strategy.run([&](ReplicaContext& context) {
        at::Tensor loss = net->forward("ab", 2);
        if (armed && kind == Fault::in_forward) throw std::runtime_error{"bang"};
        loss.register_hook([&](const at::Tensor&) {
          if (armed && kind == Fault::in_tensor_hook) throw std::runtime_error{"bang"};
          if (armed && kind == Fault::in_agreement) (void)context.all_reduce(ReduceOp::sum, 1);
        });
        net.backward(context, loss, 1);
        returned = true;
      });
    };
    const std::string words = kind == Fault::in_agreement ? "the middle of a computation" : "bang";
    if (odd_one() && kind == Fault::in_agreement) {
      CHECK_THAT(message_of<ContextError>(step), Catch::Contains(words));
    } else if (odd_one()) {
      CHECK(message_of<std::runtime_error>(step) == words);
    } else {
      CHECK_THAT(message_of<PeerError>(step), Catch::Contains(words));
    }
    CHECK_FALSE(returned);
    CHECK_FALSE(net->gradient("a").defined());
    CHECK(values_of(net->of("a")) == Values{1, 1});
    armed = false;
    net.zero_grad();
    strategy.run([&](ReplicaContext& context) { net.backward(context, net->forward("ab", 4), 2); });
    CHECK(values_of(net->gradient("b")) == Values{2, 2});
  }
  expect_in_step();
}

TEST_CASE("an error of torch's in forward is one line on the other ranks, without its call stack") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Plane{}};
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      net.backward(context, net->forward(torch::ones({odd_one() ? 3 : 2}, at::kDouble)), 1);
    });
  };
  const std::string words = odd_one() ? message_of<c10::Error>(step) : message_of<PeerError>(step);
  CHECK_THAT(words, Catch::Contains("The size of tensor a (3) must match the size of tensor b (2)"));
  if (!odd_one()) CHECK_THAT(words, !Catch::Contains("Exception raised"));
}

TEST_CASE("frozen parameters have no gradient, and all ranks freeze the same") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b"}}};
  const auto step = [&] {
    net.zero_grad();
    strategy.run([&](ReplicaContext& context) { net.backward(context, net->forward("ab", 2), 1); });
  };
  net->of("a").requires_grad_(false);
  step();
  CHECK_FALSE(net->gradient("a").defined());
  CHECK(values_of(net->gradient("b")) == Values{2, 2});
  net->of("a").requires_grad_(true);
  step();
  CHECK(values_of(net->gradient("a")) == Values{2, 2});
  net->of("b").requires_grad_(!odd_one() || ranks() == 1);
  if (ranks() > 1) CHECK_THAT(mismatch_of(step), Catch::Contains("backward of 1 of 2 parameters"));
  net->of("b").requires_grad_(true);
  CHECK_NOTHROW(step());
}

namespace {

struct Tied : torch::nn::Module {
  at::Tensor w = register_parameter("in", weights({2, 3}));
  Tied() { register_parameter("out", w); }
};

}  // namespace

TEST_CASE("a tied parameter is one variable, whose gradient has both uses") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Tied{}};
  CHECK(net.parameters().size() == 1);
  CHECK(net.variables()[0].name() == "in");
  strategy.run([&](ReplicaContext& context) {
    const auto named = net->named_parameters();
    net.backward(context, (named["in"] * named["out"]).sum() * (rank() + 1), 1);
  });
  CHECK(values_of(net->w.grad()) == Values{4.0 * triangle() / ranks(), 6.0 * triangle() / ranks()});
}

TEST_CASE("of two modules in one loss, backward computes the gradients of its own") {
  Strategy strategy = runtime().make_strategy();
  auto first = torch::DataParallel{strategy, Plane{}};
  auto second = torch::DataParallel{strategy, Plane{}};
  CHECK(second.variables()[0].name() == "w_1");
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor x = torch::ones({2}, at::kDouble) * (rank() + 1);
    first.backward(context, second->forward(x * first->w), 1);
    CHECK_FALSE(second->w.grad().defined());
    second.backward(context, second->forward(x), 1);
  });
  const double x = 1.0 * triangle() / ranks();
  CHECK(values_of(first->w.grad()) == Values{x, 2 * x});
  CHECK(values_of(second->w.grad()) == Values{x, x});
}

TEST_CASE("what would make the replicas differ is refused in one sentence") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Plane{}};
  const at::Tensor x = torch::ones({2}, at::kDouble);
  CHECK_THAT(message_of<ContextError>([&] { net->forward(x).backward(); }),
             Catch::Contains("the gradient of parameter 'w' was computed by a backward pass of this rank alone"));
  CHECK_FALSE(net->w.grad().defined());
  CHECK(torch::autograd::grad({net->forward(x)}, {net->w}).size() == 1);

  const auto refused = [&](const at::Tensor& loss, std::int64_t samples) {
    return message_of<InvalidArgument>([&] { net.accumulate(loss, samples); });
  };
  CHECK(refused(net->forward(x), -1) == "a loss of -1 samples; expected 0 or more");
  CHECK(refused({}, 1) == "an undefined loss of 1 samples");
  CHECK_THAT(refused(x * net->w, 2), Catch::StartsWith("a loss of 2 elements of Double; expected one real number"));
  net->to(at::kFloat);
  CHECK_THAT(refused(net->forward(x), 1), Catch::StartsWith("parameter 'w' has other memory than the strategy's"));

  struct Complex : torch::nn::Module {
    Complex() { register_parameter("phase", torch::zeros({2}, at::kComplexFloat)); }
  };
  CHECK(message_of<InvalidArgument>([&] {
          torch::DataParallel{strategy, Complex{}};
        }) == "parameter 'phase' is ComplexFloat; expected f32, f64, f16 or bf16, such as its view_as_real");
  expect_in_step();
}

TEST_CASE("the module lives on without its replicas") {
  auto module = std::make_shared<Plane>();
  {
    Strategy strategy = runtime().make_strategy();
    const auto net = torch::DataParallel{strategy, module};
  }
  module->forward(torch::ones({2}, at::kDouble)).backward();
  CHECK(values_of(module->w) == Values{1, 2});
  CHECK(values_of(module->w.grad()) == Values{1, 1});
}

namespace {

/// A running sum, a counter and a constant.
struct Running : torch::nn::Module {
  at::Tensor w = register_parameter("w", weights({1}));
  at::Tensor sum = register_buffer("sum", weights({1, 1}));
  at::Tensor count = register_buffer("count", torch::tensor({7}, at::kLong));
  at::Tensor mask = register_buffer("mask", torch::tensor({true, false}));
  at::Tensor forward(double x) {
    sum.add_(x);
    count.add_(1);
    return w.sum() * x;
  }
};

}  // namespace

TEST_CASE("real buffers become the mean by samples, and others those of the first rank that has some") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Running{}};
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](ReplicaContext& context) {
      // Rank 0 has no samples if there are others, but counts.
      const std::int64_t samples = ranks() == 1 ? 1 : rank();
      if (rank() == 0 && ranks() > 1) net->count.add_(100);
      net.backward(context, samples > 0 ? net->forward(3.0 * samples) : at::Tensor{}, samples);
    });
    CHECK_NOTHROW(strategy.attest());
  }
  const double mean = ranks() == 1 ? 3 : 3.0 * sum_to(last(), 2) / sum_to(last(), 1);
  CHECK(values_of(net->sum)[0] == Approx(1 + 2 * mean).epsilon(1e-15));  // each mean is rounded
  CHECK(values_of(net->count) == Values{9});
  CHECK(values_of(net->mask) == Values{1, 0});
}

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

/// What three steps of 26 images in eight shards end in.
std::string train_in_shards(Strategy& strategy) {
  torch::set_num_threads(1);
  auto net = torch::DataParallel{strategy, Residual{}};
  torch::optim::AdamW adamw{net.parameters(), torch::optim::AdamWOptions{0.05}};
  std::string losses;
  for (int step = 0; step < 3; ++step)
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      const torch::MeanLoss loss = net.backward_shards(context, 8, [&](int shard) {
        const Range rows = shard_range(26, 8, shard);
        torch::manual_seed(static_cast<std::uint64_t>(100 * step + shard));
        const at::Tensor images = torch::rand({rows.size(), 1, 5, 5}), labels = torch::randint(3, {rows.size()});
        return torch::ShardLoss{torch::nll_loss(torch::log_softmax(net->forward(images, shard % 3 == 0), 1), labels, {},
                                                at::Reduction::Sum),
                                rows.size()};
      });
      CHECK(loss.samples == 26);
      losses += std::to_string(loss.mean) + " ";
      adamw.step();
    });
  std::vector<Variable> all;
  for (const auto& state : strategy.store().variables()) all.push_back(MirroredVariable{state});
  return losses + to_hex(weights_digest(all));
}

}  // namespace

TEST_CASE("a step in shards ends in the same bytes on one rank and on this many") {
  Strategy strategy = runtime().make_strategy();
  if (ranks() == 3) {
    CHECK_THROWS_AS(train_in_shards(strategy), InvalidArgument);
    return;
  }
  std::string alone;
  sim::run({.ranks = 1}, [&](Strategy& one, int) { alone = train_in_shards(one); });
  CHECK(train_in_shards(strategy) == alone);
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("shards refuse what cannot keep their bits, and a failure in one reaches all ranks") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a"}}};
  const auto step = [&](int thrower) {
    strategy.run([&](ReplicaContext& context) {
      net.backward_shards(context, 12, [&](int shard) -> torch::ShardLoss {
        if (shard == thrower) throw std::runtime_error{"bang"};
        return {net->forward("a", shard), 1};
      });
    });
  };
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>([&] { step(11); }) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>([&] { step(11); }), Catch::Contains("bang"));
  }
  net.zero_grad();
  step(-1);
  CHECK(values_of(net->gradient("a")) == Values{5.5, 5.5});
  net.zero_grad();
  net.accumulate(net->forward("a", 1), 1);
  CHECK_THAT(message_of<InvalidArgument>([&] { step(-1); }), Catch::StartsWith("shards after a pass"));
}

TEST_CASE("the norm is clipped alike, and an optimizer of lockstep leaves alone what nobody used") {
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  auto sgd = net.optimizer(SgdOptions{.learning_rate = 1, .momentum = 0.5});
  const auto step = [&](const std::string& used) {
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      net.backward(context, net->forward(used, 2.0 * (rank() + 1)), rank() + 1);
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

TEST_CASE("checkpoints and weights have torch's names, and restore parameters, buffers and optimizer state in place") {
  const std::string folder = runtime()
                                 .strategy()
                                 .broadcast_object([] {
                                   std::string name =
                                       (std::filesystem::temp_directory_path() / "torch.XXXXXX").string();
                                   if (!::mkdtemp(name.data())) throw std::runtime_error{"no folder"};
                                   return name;
                                 })
                                 .value();
  const auto train = [&](Strategy& strategy, auto& net, auto& adamw) {
    strategy.run([&](ReplicaContext& context) {
      adamw.zero_grad();
      net.backward(context, net->forward(rank() + 1), 1);
      adamw.step(context);
    });
  };
  const AdamWOptions options{.learning_rate = 0.5};
  Strategy strategy = runtime().make_strategy();
  auto net = torch::DataParallel{strategy, Running{}};
  auto adamw = net.optimizer(options);
  train(strategy, net, adamw);
  save_checkpoint(strategy, folder + "/checkpoint");
  save_weights(strategy, folder + "/weights");
  train(strategy, net, adamw);

  Strategy other = runtime().make_strategy();
  auto again = torch::DataParallel{other, Running{}};
  auto resumed = again.optimizer(options);
  load_weights(other, folder + "/weights");
  CHECK(values_of(again->count) == Values{8});
  restore_checkpoint(other, folder + "/checkpoint");
  train(other, again, resumed);
  CHECK(values_of(again->w) == values_of(net->w));
  CHECK(values_of(again->sum) == values_of(net->sum));

  if (!runtime().is_chief()) again->w.data().fill_(5);
  if (ranks() > 1) CHECK_THROWS_AS(other.attest(), DriftError);
  other.rebroadcast();
  CHECK(values_of(again->w) == values_of(net->w));
  runtime().strategy().reduce(ReduceOp::sum, PerReplica<int>{0});
  if (runtime().is_chief()) std::filesystem::remove_all(folder);
}
