// Batch norm over the samples of all ranks, against torch's over the whole batch.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <cmath>

#include <lockstep/torch/sync_batch_norm.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

torch::nn::Sequential normalised_layers() {
  torch::manual_seed(3);
  torch::nn::Sequential layers{torch::nn::Conv2d{torch::nn::Conv2dOptions{1, 3, 2}}, torch::nn::BatchNorm2d{3},
                               torch::nn::ReLU{}, torch::nn::Conv2d{torch::nn::Conv2dOptions{3, 2, 2}},
                               torch::nn::BatchNorm2d{torch::nn::BatchNorm2dOptions{2}.momentum(0.3)}};
  layers->to(at::kDouble);
  return layers;
}

torch::nn::Sequential converted_layers() {
  torch::nn::Sequential layers = normalised_layers();
  libtorch::SyncBatchNorm::convert(*layers);
  return layers;
}

/// Calls a batch norm by its type.
struct Block : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d{2});
};

/// Has layers as a part.
struct Nested : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + layers->forward(x); }
  torch::nn::Sequential layers = register_module("layers", torch::nn::Sequential{torch::nn::BatchNorm1d{2}});
};

}  // namespace

TEST_CASE("SyncBatchNorm normalises by the whole batch, and so do its gradients and its running statistics") {
  Strategy strategy = runtime().make_strategy();
  // As many samples as the rank's number, so rank 0 has none if there are others.
  const auto first = [](int of) { return ranks() == 1 ? 3 * of : of * (of - 1) / 2; };
  torch::nn::Sequential whole = normalised_layers();
  auto net = libtorch::DataParallel{strategy, converted_layers()};
  for (int step = 0; step < 2; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const at::Tensor x = torch::rand({first(ranks()), 1, 4, 4}, at::kDouble) + 10;
    const auto part = [&](int of) { return x.slice(0, first(of), first(of + 1)); };
    strategy.run([&](ReplicaContext& context) {
      net.zero_grad();
      const at::Tensor mine = part(rank());
      at::Tensor y = net->forward(mine);
      net.backward(context, libtorch::Loss::sum((y * y * y).sum(), mine.size(0)));
    });
    whole->zero_grad();
    const at::Tensor y = whole->forward(x);
    ((y * y * y).sum() / x.size(0)).backward();
    CHECK_NOTHROW(strategy.attest());
    const auto expected = whole->named_parameters();
    for (const auto& each : net->named_parameters()) {
      CAPTURE(each.key());
      CHECK(torch::allclose(each.value().grad(), expected[each.key()].grad(), 1e-9, 1e-11));
    }
    const auto buffers = whole->named_buffers();
    for (const auto& each : net->named_buffers()) {
      CAPTURE(each.key());
      CHECK(torch::allclose(each.value(), buffers[each.key()], 1e-12, 1e-14));
    }
  }
  net->eval();
  whole->eval();
  const at::Tensor x = torch::rand({1, 1, 4, 4}, at::kDouble);
  CHECK(torch::allclose(net->forward(x), whole->forward(x), 1e-12, 1e-14));

  const auto options = torch::nn::BatchNormOptions{1}.track_running_stats(false);
  torch::nn::BatchNorm2d untracked{options};
  libtorch::SyncBatchNorm sync{options};
  untracked->eval();
  sync->eval();
  CHECK(torch::allclose(sync(x.to(at::kFloat)), untracked(x.to(at::kFloat))));
}

TEST_CASE("16 bits are rounded once, at the end of a SyncBatchNorm's result and of its gradients") {
  Strategy strategy = runtime().make_strategy();
  const at::ScalarType type = GENERATE(at::kHalf, at::kBFloat16);
  const double half_ulp = type == at::kHalf ? std::ldexp(1, -11) : std::ldexp(1, -8);
  torch::manual_seed(6);
  const at::Tensor x = (torch::rand({8 * ranks(), 3}) + 2).to(type), slope = torch::rand({8 * ranks(), 3}).to(type);
  libtorch::SyncBatchNorm norm{3};
  torch::nn::init::constant_(norm->weight, 0.7);
  torch::nn::init::constant_(norm->bias, 0.3);
  norm->to(type);
  torch::nn::BatchNorm1d whole{3};
  whole->weight.set_data(norm->weight.detach().to(at::kFloat));
  whole->bias.set_data(norm->bias.detach().to(at::kFloat));
  const at::Tensor input = x.to(at::kFloat).requires_grad_(), expected = whole(input);
  (expected * slope.to(at::kFloat)).sum().backward();

  CHECK(message_of<InvalidArgument>([&] { norm(x.to(at::kLong)); }) ==
        "a SyncBatchNorm for a tensor of Long; expected one of floats");
  auto net = libtorch::DataParallel{strategy, norm};
  const auto of_rank = [](const at::Tensor& all) { return all.slice(0, 8 * rank(), 8 * rank() + 8); };
  const auto compare = [&](const at::Tensor& found, const at::Tensor& all) {
    CHECK(found.scalar_type() == type);
    CHECK(torch::allclose(found.to(at::kFloat), of_rank(all), 1.001 * half_ulp, 1e-6));
  };
  strategy.run([&](ReplicaContext& context) {
    const at::Tensor mine = of_rank(x).clone().requires_grad_();
    mine.register_hook([&](const at::Tensor& gradient) { compare(gradient, input.grad()); });
    const at::Tensor found = net->forward(mine);
    compare(found, expected);
    net.backward(context, libtorch::Loss::sum((found * of_rank(slope)).to(at::kFloat).sum(), 1).ignoring({mine}));
  });
}

TEST_CASE("a second derivative of a SyncBatchNorm in training is refused, and in evaluation it is torch's") {
  Strategy strategy = runtime().make_strategy();
  libtorch::SyncBatchNorm norm{2};
  const at::Tensor x = (torch::rand({4, 2}) + rank()).requires_grad_();
  const auto penalty = [&] {
    const at::Tensor slope = torch::autograd::grad({norm(x).pow(3).sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({slope.pow(2).sum()}, {x})[0];
  };
  const auto refused = Catch::StartsWith("create_graph through a SyncBatchNorm in training");
  CHECK_THAT(message_of<InvalidArgument>(penalty), refused);
  strategy.run([&](ReplicaContext&) { CHECK_THAT(message_of<InvalidArgument>(penalty), refused); });
  norm->eval();
  CHECK(penalty().defined());
}

TEST_CASE("batch norms are converted in layers at any depth, and named where that can't be") {
  Nested nested;
  const at::Tensor weight = nested.layers->named_parameters()["0.weight"];
  libtorch::SyncBatchNorm::convert(nested);
  CHECK(dynamic_cast<libtorch::SyncBatchNorm::Impl*>(nested.named_modules("", false)["layers.0"].get()));
  CHECK(nested.named_parameters()["layers.0.weight"].data_ptr() == weight.data_ptr());
  // Outside a strategy's step, the mean is this rank's. One sample is its own mean; torch's batch norm refuses it.
  CHECK(nested.forward(torch::ones({1, 2})).equal(torch::ones({1, 2})));

  const auto refused = [](torch::nn::Module& module) {
    return message_of<InvalidArgument>([&] { libtorch::SyncBatchNorm::convert(module); });
  };
  torch::nn::Sequential layers{torch::nn::BatchNorm1d{2}, Block{}};
  CHECK_THAT(refused(*layers),
             Catch::EndsWith("Block calls batch norm '1.norm', by its type: expected lockstep::libtorch::SyncBatchNorm{"
                             "torch::nn::BatchNormOptions{2}} there"));
  CHECK(dynamic_cast<torch::nn::BatchNorm1dImpl*>(layers->named_children()["0"].get()));
  torch::nn::Sequential blocks{Block{}, Block{}, Block{}, Block{}, Block{}};
  CHECK_THAT(refused(*blocks), Catch::EndsWith("; likewise for 1.norm, 2.norm, 3.norm and 1 more"));
  torch::nn::BatchNorm2d itself{3};
  CHECK_THAT(refused(*itself), Catch::StartsWith("the program calls the module, a batch norm, by its type"));
}

TEST_CASE("batch norms in lists are converted with all that they are, and a shared one stays one") {
  torch::nn::BatchNorm1d frozen{2}, shared{2};
  frozen->weight.set_requires_grad(false);
  frozen->eval();
  torch::nn::ModuleList list{torch::nn::Linear{2, 2}, frozen, shared};
  torch::nn::ModuleDict dictionary{
      std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>{{"norm", shared.ptr()}}};
  struct Holder : torch::nn::Module {
  } holder;
  holder.register_module("list", list);
  holder.register_module("dictionary", dictionary);
  libtorch::SyncBatchNorm::convert(holder);
  auto* const first = list[1]->as<libtorch::SyncBatchNorm>();
  REQUIRE(first);
  CHECK_FALSE(first->weight.requires_grad());
  CHECK(first->bias.requires_grad());
  CHECK_FALSE(first->is_training());
  CHECK(list->named_children()["1"].get() == first);
  CHECK(list[2]->as<libtorch::SyncBatchNorm>());
  CHECK(list[2] == dictionary["norm"]);
  CHECK(dictionary->named_children()["norm"] == list[2]);
}

TEST_CASE("a batch norm that stands twice in layers is converted in both places") {
  const torch::nn::BatchNorm1d norm{torch::nn::BatchNorm1dOptions{2}.affine(false)};
  torch::nn::Sequential layers{norm, torch::nn::ReLU{}, norm};
  torch::nn::ModuleList list{norm, norm};
  libtorch::SyncBatchNorm::convert(*layers);
  libtorch::SyncBatchNorm::convert(*list);
  CHECK(dynamic_cast<libtorch::SyncBatchNorm::Impl*>(layers->ptr(0).get()));
  CHECK(layers->ptr(2) == layers->ptr(0));
  CHECK(dynamic_cast<libtorch::SyncBatchNorm::Impl*>(list->ptr(0).get()));
  CHECK(list->ptr(1) == list->ptr(0));
}

TEST_CASE("passes through a SyncBatchNorm accumulate as one batch's do in torch") {
  Strategy strategy = runtime().make_strategy();
  torch::nn::Sequential whole = normalised_layers();
  auto net = libtorch::DataParallel{strategy, converted_layers()};
  torch::manual_seed(4);
  // As many samples as the rank's number in the first pass, and one in each of the others.
  const std::vector<at::Tensor> x{torch::rand({ranks() == 1 ? 2 : triangle() - ranks(), 1, 4, 4}, at::kDouble),
                                  torch::rand({ranks(), 1, 4, 4}, at::kDouble)};
  const auto cubes = [](torch::nn::Sequential& layers, const at::Tensor& of) {
    return layers->forward(of).pow(3).sum();
  };
  strategy.run([&](ReplicaContext& context) {
    torch::nn::Sequential layers{net.module()};
    const int before = rank() * (rank() - 1) / 2;
    const at::Tensor first = ranks() == 1 ? x[0] : x[0].slice(0, before, before + rank());
    net.accumulate(libtorch::Loss::sum(cubes(layers, first), first.size(0)));
    net.backward(context, libtorch::Loss::sum(cubes(layers, x[1].slice(0, rank(), rank() + 1)), 1));
  });
  (cubes(whole, x[0]) + cubes(whole, x[1])).div(x[0].size(0) + x[1].size(0)).backward();
  const auto expected = whole->named_parameters();
  for (const auto& each : net->named_parameters()) {
    CAPTURE(each.key());
    CHECK(torch::allclose(each.value().grad(), expected[each.key()].grad(), 1e-9, 1e-11));
  }
  net.zero_grad();
  net->eval();
  // No statistics of a batch, no sums: each rank for itself, and outside of a run.
  if (odd_one()) net.accumulate(libtorch::Loss::sum(net->forward(x[1]).sum(), 1));
}

TEST_CASE("an accumulated pass through a SyncBatchNorm needs all ranks, and one that fails keeps none waiting") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, converted_layers()};
  const at::Tensor x = torch::rand({2, 1, 4, 4}, at::kDouble) * (1 + rank());
  at::Tensor late;
  const auto step = [&](bool fails, bool skips) {
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor loss = net->forward(x).sum();
      late = net->forward(x).sum();
      loss.register_hook([fails](const at::Tensor&) {
        if (fails) throw std::runtime_error{"bang"};
      });
      if (!skips) net.accumulate(libtorch::Loss::sum(loss, 2));
      net.backward(context, libtorch::Loss::sum(late.clone(), 2).retain_graph());
    });
  };
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>([&] { step(true, false); }) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>([&] { step(false, false); }), Catch::Contains("bang"));
  }
  CHECK_FALSE(net.parameters()[0].grad().defined());
  CHECK_THAT(mismatch_of([&] { step(false, odd_one()); }), Catch::Contains("merge_call #9 (sync_batch_norm.cpp"));
  step(false, false);
  CHECK_THAT(message_of<ContextError>([&] { net.accumulate(libtorch::Loss::sum(late, 2)); }),
             Catch::StartsWith("accumulate of ") && Catch::Contains("expected it inside Strategy::run"));
  CHECK(message_of<ContextError>([&] { net->forward(x); }) == "the training of a SyncBatchNorm outside Strategy::run");
  expect_in_step();
}

TEST_CASE("ranks that pass other SyncBatchNorms, or whose losses come from others, hear of it") {
  if (ranks() == 1) return;
  struct Two : torch::nn::Module {
    libtorch::SyncBatchNorm first = register_module("first", libtorch::SyncBatchNorm{2});
    libtorch::SyncBatchNorm second = register_module("second", libtorch::SyncBatchNorm{2});
  };
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Two{}};
  const at::Tensor x = torch::rand({4, 2}).requires_grad_();
  CHECK_THAT(mismatch_of([&] { strategy.run([&](ReplicaContext&) { (odd_one() ? net->first : net->second)(x); }); }),
             Catch::Contains("of a SyncBatchNorm of parameter 'first.weight'") &&
                 Catch::Contains("of a SyncBatchNorm of parameter 'second.weight'"));
  for (const bool accumulates : {false, true})
    CHECK_THAT(mismatch_of([&] {
                 strategy.run([&](ReplicaContext& context) {
                   const at::Tensor one = net->first(x), other = net->second(x);
                   const auto loss = libtorch::Loss::sum((odd_one() ? one : other).pow(3).sum(), 4).ignoring({x});
                   accumulates ? net.accumulate(loss) : (void)net.backward(context, loss);
                 });
               }),
               Catch::Contains("through SyncBatchNorm of parameter 'first.") &&
                   Catch::Contains("through SyncBatchNorm of parameter 'second."));
  expect_in_step();
}

TEST_CASE("SyncBatchNorm whose backward pass fails on one rank does not keep the others waiting") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, converted_layers()};
  const at::Tensor x = torch::rand({2, 1, 4, 4}, at::kDouble) * (1 + rank());
  const auto fail = [&] {
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor loss = net->forward(x).sum();
      loss.register_hook([](const at::Tensor&) {
        if (odd_one()) throw std::runtime_error{"bang"};
      });
      net.backward(context, libtorch::Loss::sum(loss, 2));
    });
  };
  if (odd_one()) {
    CHECK(message_of<std::runtime_error>(fail) == "bang");
  } else {
    CHECK_THAT(message_of<PeerError>(fail), Catch::Contains("bang"));
  }
  expect_in_step();
}
