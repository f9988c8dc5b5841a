// Modules of LibTorch as replicas: parameters and gradients. Inputs differ on every rank; sums are exact.
// clang-format off: ahead of all that includes Catch2
#include "sync/strategy/inside.hpp"
#include "torch_and_catch.hpp"
// clang-format on

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// As many samples as the rank's number, each (rank, 10 rank): rank 0 has none.
at::Tensor samples_of_rank(int own) {
  return torch::tensor({1.0 * own, 10.0 * own}, at::kDouble).repeat({own, 1});
}

}  // namespace

TEST_CASE("every rank gets the parameters of replica 0, in the strategy's memory, under torch's names") {
  Strategy strategy = runtime().make_strategy();
  torch::nn::Sequential layers{torch::nn::Linear{2, 3}, torch::nn::BatchNorm1d{3}};
  const at::Tensor before = layers->parameters()[0];
  const auto net = libtorch::DataParallel{strategy, layers};
  std::set<std::string> names;
  for (const auto& each : inside(strategy.store()).variables()) names.insert(each->name);
  CHECK(names == std::set<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                       "1.num_batches_tracked"});
  CHECK(net->parameters()[0].is_same(before));
  for (const Variable& variable : net.variables()) {
    const at::Tensor parameter = net->named_parameters()[std::string{variable.name()}];
    CHECK(parameter.data_ptr() == static_cast<void*>(variable.local().data()));
    CHECK(parameter.requires_grad());
  }
  CHECK_NOTHROW(strategy.attest());

  const auto plane = libtorch::DataParallel{strategy, Plane{}, {.name = "second"}};
  CHECK(plane.variables()[0].name() == "second.w");
  CHECK(values_of(plane->w) == Values{1, 2});
}

TEST_CASE("a mean counts as often as what it was divided by, which may be weights") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  const double weight = 0.5 * (rank() + 1), total = 0.5 * triangle();
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor mean = net->forward(weights({8, 24})) / weight;
    net.accumulate(libtorch::Loss::mean(mean, weight));
    const libtorch::ReplicatedModule::MeanLoss loss =
        net.backward(context, libtorch::Loss::mean(mean.detach() * net->w.sum() * 0, weight));
    CHECK(loss.samples == 2 * total);
    CHECK(loss.mean == 56.0 * ranks() / (2 * total));
  });
  CHECK(values_of(net->w.grad()) == Values{8.0 * ranks() / (2 * total), 24.0 * ranks() / (2 * total)});
}

TEST_CASE("the gradient is the mean over the samples of all ranks, of which some have none") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, std::make_shared<Plane>()};
  MeetingPoint& meeting = inside(strategy).group().meeting();
  const auto meetings = meeting.meetings();
  strategy.run([&](ReplicaContext& context) {
    // Rank 0 has no samples, and a loss that is no number.
    const at::Tensor loss = rank() == 0 ? at::Tensor{} : net->forward(samples_of_rank(rank()));
    const libtorch::ReplicatedModule::MeanLoss mean = net.backward(context, libtorch::Loss::sum(loss, rank()));
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
  auto net = libtorch::DataParallel{strategy, module};
  for (int step = 0; step < 2; ++step)
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      net.backward(context, libtorch::Loss::sum(net->forward(samples_of_rank(1)) * (rank() + 1), 1));
      sgd.step();
    });
  const double step = 1.0 * triangle() / ranks();
  CHECK(net.variables()[0].local().to_vector<double>() == Values{1 - 2 * step, 2 - 20 * step});
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("what a rank does not use counts as zeros, and what no rank uses has no gradient") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  torch::optim::SGD sgd{net.parameters(), torch::optim::SGDOptions{1}.weight_decay(0.5)};
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](ReplicaContext& context) {
      sgd.zero_grad();
      const libtorch::ReplicatedModule::MeanLoss mean =
          net.backward(context, libtorch::Loss::sum(net->forward(odd_one() ? "ab" : "a", 4), 1));
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
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  torch::optim::SGD sgd{net.parameters(), 1};
  enum class Zeroed { never, by_module, by_replica, by_optimizer };
  for (const Zeroed zeroed : {Zeroed::never, Zeroed::by_module, Zeroed::by_replica, Zeroed::by_optimizer}) {
    CAPTURE(static_cast<int>(zeroed));
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      const auto meetings = inside(strategy).group().meeting().meetings();
      for (int i = 0; i <= rank(); ++i) net.accumulate(libtorch::Loss::sum(net->forward("ab", 2), 2));
      CHECK(inside(strategy).group().meeting().meetings() == meetings);
      if (zeroed == Zeroed::by_module) net->zero_grad();
      if (zeroed == Zeroed::by_replica) net.zero_grad();
      if (zeroed == Zeroed::by_optimizer) sgd.zero_grad();
      const libtorch::ReplicatedModule::MeanLoss mean =
          net.backward(context, libtorch::Loss::sum(net->forward("a", 6), 1));
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
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  strategy.run([&](ReplicaContext& context) {
    net.backward(context, libtorch::Loss::sum(net->forward("ab", 2 * (rank() + 1)), 1));
    net.backward(context, libtorch::Loss::sum(net->forward("a", 10), 1));
    const double first = 2.0 * triangle() / ranks();
    CHECK(values_of(net->gradient("a")) == Values{first + 10, first + 10});
    CHECK(values_of(net->gradient("b")) == Values{first, first});
  });
}

TEST_CASE("buckets travel in the order of memory, whatever autograd's order") {
  Strategy strategy = runtime().make_strategy({.packing = ReductionOptions::unpacked()});
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b", "c", "d"}}};
  // Autograd goes backwards through the graph, so each rank completes the gradients in another order.
  const std::array<std::string, 4> orders{"abcd", "dcba", "bd", "cadb"};
  const auto order_of = [&](int of) -> const std::string& {
    return orders.at(static_cast<std::size_t>(of) % orders.size());
  };
  strategy.run([&](ReplicaContext& context) {
    at::Tensor sum = torch::ones({}, at::kDouble);
    double factor = 1 + rank();
    for (const char name : order_of(rank())) sum = sum + factor * net->of({name}).sum() + 0 * sum;
    net.backward(context, libtorch::Loss::sum(sum, 1));
    for (const char name : std::string{"abcd"}) {
      double expected = 0;
      for (int r = 0; r < ranks(); ++r)
        if (order_of(r).find(name) != std::string::npos) expected += 1 + r;
      CHECK(values_of(net->gradient({name}))[0] == expected / ranks());
    }
  });
}

TEST_CASE("of what was accumulated, the gradients of one of two optimizers are zeroed") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  torch::optim::SGD of_a{{net->of("a")}, 1}, of_b{{net->of("b")}, 1};
  for (torch::optim::SGD* const zeroed : {&of_a, &of_b})
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      net.accumulate(libtorch::Loss::sum(net->forward("ab", 2), 2));
      zeroed->zero_grad();
      net.accumulate(libtorch::Loss::sum(net->forward("ab", 10), 1));
      const libtorch::ReplicatedModule::MeanLoss mean =
          net.backward(context, libtorch::Loss::sum(net->forward("abc", 6), 1));
      CHECK(mean.samples == 4 * ranks());
      const double all = 18.0 / 4, since = 16.0 / 2;
      CHECK(values_of(net->gradient("a"))[0] == (zeroed == &of_a ? since : all));
      CHECK(values_of(net->gradient("b"))[0] == (zeroed == &of_b ? since : all));
      CHECK(values_of(net->gradient("c"))[0] == 6.0 / 4);
    });
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("a pass without a gradient counts for a parameter that was zeroed before it") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  strategy.run([&](ReplicaContext& context) {
    net.accumulate(libtorch::Loss::sum(net->forward("ab", 2), 2));
    net->of("a").mutable_grad().reset();
    net.accumulate(libtorch::Loss::sum(net->forward("b", 10), 1));
    net.backward(context, libtorch::Loss::sum(net->forward("a", 6), 1));
    CHECK(values_of(net->gradient("a"))[0] == 6.0 / 2);
    CHECK(values_of(net->gradient("b"))[0] == 12.0 / 4);
  });
}

TEST_CASE("gradients of an earlier step stay until they are zeroed, also while a pass is accumulated") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  torch::optim::SGD of_a{{net->of("a")}, 1}, of_b{{net->of("b")}, 1};
  for (torch::optim::SGD* const zeroed : {&of_a, &of_b})
    for (const bool accumulates_everywhere : {true, false})
      for (const bool to_none : {true, false})
        strategy.run([&](ReplicaContext& context) {
          net.zero_grad();
          net.backward(context, libtorch::Loss::sum(net->forward("ab", 8), 1));
          if (accumulates_everywhere || odd_one()) {
            net.accumulate(libtorch::Loss::sum(net->forward("a", 2), 1));
            CHECK(values_of(net->gradient("b")) == Values{8, 8});
          }
          at::Tensor& gradient = zeroed->param_groups()[0].params()[0].mutable_grad();
          to_none ? gradient.reset() : (void)gradient.zero_();
          net.backward(context, libtorch::Loss::sum(net->forward("ab", 6), 1));
          const double accumulated = accumulates_everywhere ? ranks() : 1;
          const double samples = ranks() + accumulated;
          // The pass counts for b, too, though it had a gradient of a alone.
          CHECK(values_of(net->gradient("a"))[0] ==
                (zeroed == &of_a ? 6.0 : 8 + (6.0 * ranks() + 2 * accumulated) / samples));
          CHECK(values_of(net->gradient("b"))[0] == (zeroed == &of_b ? 6.0 : 8 + 6.0 * ranks() / samples));
        });
  CHECK_NOTHROW(strategy.attest());
}

TEST_CASE("ranks whose accumulated passes have used other parameters agree on what counts") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b", "c"}}};
  enum class Between { nothing, zero, none, zero_b, clip };
  const auto act = [&](Between between) {
    for (const char* const name : {"a", "b", "c"}) {
      at::Tensor& gradient = net->of(name).mutable_grad();
      if (between == Between::zero || (between == Between::zero_b && *name == 'b')) gradient.zero_();
      if (between == Between::none) gradient.reset();
      if (between == Between::clip || (between == Between::zero_b && *name != 'b')) gradient.mul_(1);
    }
  };
  // In the first pass, one rank alone uses b, and another factor of a is zero everywhere but there.
  const std::string own = odd_one() ? "ab" : "a";
  const auto pass = [&](double samples) {
    return libtorch::Loss::sum(net->forward(own, odd_one() ? 2 : 0) + net->forward("c", 3), samples);
  };
  for (const Between first : {Between::nothing, Between::zero, Between::none, Between::zero_b, Between::clip})
    for (const bool is_late : {false, true})
      strategy.run([&](ReplicaContext& context) {
        CAPTURE(static_cast<int>(first), is_late);
        net.zero_grad();
        net.accumulate(pass(2));
        if (!is_late) act(first);
        net.accumulate(pass(1));
        if (is_late) act(first);
        const libtorch::ReplicatedModule::MeanLoss mean =
            net.backward(context, libtorch::Loss::sum(net->forward("abc", 6), 1));
        const bool all = first == Between::zero || first == Between::none;
        const double since = is_late ? 1 : 2, passes = is_late ? 0 : 1;  // of each rank, of the odd one with a gradient
        const auto expected = [&](bool is_zeroed) {
          return (6.0 * ranks() + 2 * (is_zeroed ? passes : 2)) / ((is_zeroed ? since : 4) * ranks());
        };
        CHECK(values_of(net->gradient("a"))[0] == expected(all));
        CHECK(values_of(net->gradient("b"))[0] == expected(all || first == Between::zero_b));
        CHECK(values_of(net->gradient("c"))[0] == (6 + 3 * (all ? passes : 2)) / (all ? since : 4));
        CHECK(mean.samples == (all ? since : 4) * ranks());
      });
  CHECK_NOTHROW(strategy.attest());

  strategy.run([&](ReplicaContext& context) {
    net.zero_grad();
    net.accumulate(pass(2));
    act(Between::zero);
    net.backward(context, libtorch::Loss::sum(net->forward("bc", 6), 1));
    CHECK_FALSE(net->gradient("a").defined());
    net.zero_grad();
  });

  strategy.run([&](ReplicaContext& context) {  // all of some ranks' gradients are zero
    net.accumulate(libtorch::Loss::sum(net->forward("a", odd_one() ? 2 : 0), 2));
    act(Between::clip);
    const libtorch::ReplicatedModule::MeanLoss mean =
        net.backward(context, libtorch::Loss::sum(net->forward("a", 6), 1));
    CHECK(mean.samples == 3 * ranks());
    CHECK(values_of(net->gradient("a"))[0] == (6.0 * ranks() + 2) / (3 * ranks()));
  });
  for (const bool clips : {true, false}) {
    if (!clips && ranks() == 1) continue;
    const auto step = [&] {
      strategy.run([&](ReplicaContext& context) {
        net.backward(context, libtorch::Loss::sum(net->forward("ab", 6), 1));
        net.accumulate(pass(2));
        if (clips) act(Between::clip);
        if (!clips && odd_one()) net.zero_grad();
        net.backward(context, libtorch::Loss::sum(net->forward("ab", 6), 1));
      });
    };
    CHECK_THAT(message_of<InvalidArgument>(step), Catch::Contains("that an earlier step has left in parameter 'b'"));
    CHECK_FALSE(net->gradient("b").defined());
  }

  const auto zeroed_or_clipped = [&] {
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      net.accumulate(libtorch::Loss::sum(net->forward("ab", 2), 2));
      for (const auto& [name, factor] : std::map<std::string, double>{{"a", 0}, {"b", 0.5}, {"c", 0.5}})
        net->gradient(name).mul_(factor);
      net.backward(context, libtorch::Loss::sum(net->forward("abc", 6), 1));
    });
  };
  CHECK_THAT(message_of<InvalidArgument>(zeroed_or_clipped), Catch::Contains("and that of parameter 'c' is zero"));
  CHECK_FALSE(net->gradient("b").defined());

  const auto zeroed_and_clipped = [&] {
    strategy.run([&](ReplicaContext& context) {
      net.accumulate(pass(2));
      act(Between::zero);
      net.accumulate(pass(2));
      act(Between::clip);
      net.backward(context, libtorch::Loss::sum(net->forward("abc", 6), 1));
    });
  };
  if (ranks() == 1) return;
  CHECK_THAT(message_of<InvalidArgument>(zeroed_and_clipped), Catch::Contains("was zeroed and then changed"));
  CHECK_FALSE(net->gradient("b").defined());
}

TEST_CASE("an accumulated pass that fails leaves gradients of earlier steps") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  strategy.run([&](ReplicaContext& context) {
    net.backward(context, libtorch::Loss::sum(net->forward("ab", 8), 1));
    net.accumulate(libtorch::Loss::sum(net->forward("a", 2), 1));
    const at::Tensor outside = torch::ones({2}, at::TensorOptions{at::kDouble}.requires_grad(true));
    CHECK_THROWS_AS(net.accumulate(libtorch::Loss::sum(net->forward("a", 2) + outside.sum(), 1)), InvalidArgument);
    CHECK(values_of(net->gradient("a")) == Values{8, 8});

    const at::Tensor now = net->of("b");
    net->register_parameter("late", torch::ones({2}, at::kDouble));
    CHECK_THROWS_AS(net.accumulate(libtorch::Loss::sum(net->forward("a", 2), 1)), InvalidArgument);
    CHECK(values_of(net->gradient("a")) == Values{8, 8});
    CHECK(values_of(net->gradient("b")) == Values{8, 8});
  });
}

TEST_CASE("a gradient that is zero is one, unless somebody has zeroed it") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  strategy.run([&](ReplicaContext& context) {
    net.backward(context, libtorch::Loss::sum(net->forward("ab", 0), 1));
    net.backward(context, libtorch::Loss::sum(net->forward("a", 2), 1));
    CHECK(values_of(net->gradient("b")) == Values{0, 0});
    net->zero_grad();
    net.accumulate(libtorch::Loss::sum(net->forward("a", 2) + net->forward("b", 0), 3));
    for (const at::Tensor& each : net.parameters()) each.mutable_grad().mul_(1);  // as a clip does
    net.backward(context, libtorch::Loss::sum(net->forward("ab", 2), 1));
    CHECK(values_of(net->gradient("a")) == Values{1, 1});
    CHECK(values_of(net->gradient("b")) == Values{0.5, 0.5});
  });
}

TEST_CASE("frozen parameters have no gradient, and all ranks freeze the same") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
  const auto step = [&] {
    net.zero_grad();
    strategy.run(
        [&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(net->forward("ab", 2), 1)); });
  };
  net->of("a").requires_grad_(false);
  step();
  CHECK_FALSE(net->gradient("a").defined());
  CHECK(values_of(net->gradient("b")) == Values{2, 2});
  net->of("a").requires_grad_(true);
  step();
  CHECK(values_of(net->gradient("a")) == Values{2, 2});
  net->of("b").requires_grad_(!odd_one() || ranks() == 1);
  if (ranks() > 1)
    CHECK_THAT(mismatch_of(step),
               Catch::Contains("lockstep::test::Parts: 1 of 2 parameters train") && Catch::Contains("'b' frozen"));
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
  auto net = libtorch::DataParallel{strategy, Tied{}};
  CHECK(net.parameters().size() == 1);
  CHECK(net.variables()[0].name() == "in");
  strategy.run([&](ReplicaContext& context) {
    const auto named = net->named_parameters();
    net.backward(context, libtorch::Loss::sum((named["in"] * named["out"]).sum() * (rank() + 1), 1));
  });
  CHECK(values_of(net->w.grad()) == Values{4.0 * triangle() / ranks(), 6.0 * triangle() / ranks()});
}

TEST_CASE("the module lives on without its replicas") {
  auto module = std::make_shared<Plane>();
  {
    Strategy strategy = runtime().make_strategy();
    const auto net = libtorch::DataParallel{strategy, module};
  }
  module->forward(torch::ones({2}, at::kDouble)).backward();
  CHECK(values_of(module->w) == Values{1, 2});
  CHECK(values_of(module->w.grad()) == Values{1, 1});
}
