// What goes wrong on one rank while LibTorch computes, and what would make replicas differ.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

enum class Fault { in_forward, in_tensor_hook, in_parameter_hook, in_agreement };

}  // namespace

TEST_CASE("a throw anywhere on one rank is a PeerError on the others, in the same step, and nothing has changed") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Parts{{"a", "b"}}};
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
        net.backward(context, libtorch::Loss::sum(loss, 1));
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
    strategy.run(
        [&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(net->forward("ab", 4), 2)); });
    CHECK(values_of(net->gradient("b")) == Values{2, 2});
  }
  expect_in_step();
}

TEST_CASE("an error of torch's in forward is one line on the other ranks, without its call stack") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      net.backward(context, libtorch::Loss::sum(net->forward(torch::ones({odd_one() ? 3 : 2}, at::kDouble)), 1));
    });
  };
  const std::string words = odd_one() ? message_of<c10::Error>(step) : message_of<PeerError>(step);
  CHECK_THAT(words, Catch::Contains("The size of tensor a (3) must match the size of tensor b (2)"));
  if (!odd_one()) CHECK_THAT(words, !Catch::Contains("Exception raised"));
}

TEST_CASE("modules that differ are told apart before any is replicated") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const std::vector<std::string> names =
      odd_one() ? std::vector<std::string>{"a", "c"} : std::vector<std::string>{"a", "b"};
  const std::string told = message_of<MismatchError>([&] { (void)libtorch::DataParallel{strategy, Parts{names}}; });
  CHECK_THAT(told, Catch::Contains("'b'") && Catch::Contains("'c'"));
}

TEST_CASE("what would make the replicas differ is refused in one sentence") {
  Strategy strategy = runtime().make_strategy();
  auto net = libtorch::DataParallel{strategy, Plane{}};
  const at::Tensor x = torch::ones({2}, at::kDouble);
  CHECK_THAT(message_of<ContextError>([&] { net->forward(x).backward(); }),
             Catch::Contains(
                 "the gradient of parameter 'w' of lockstep::test::Plane was computed by a backward pass of this rank "
                 "alone"));
  CHECK_FALSE(net->w.grad().defined());
  CHECK(torch::autograd::grad({net->forward(x)}, {net->w}).size() == 1);

  const auto refused = [&](const at::Tensor& loss, double samples) {
    return message_of<InvalidArgument>([&] { net.accumulate(libtorch::Loss::sum(loss, samples)); });
  };
  CHECK(refused(net->forward(x), -1) == "a loss of -1 samples; expected 0 or more");
  CHECK(refused({}, 1) == "an undefined loss of 1 samples");
  CHECK_THAT(refused(x * net->w, 2), Catch::StartsWith("a loss of 2 elements of Double; expected one real number"));
  net->to(at::kFloat);
  CHECK(refused(net->forward(x), 1) ==
        "parameter 'w' of lockstep::test::Plane has become f32[2]; expected f64[2], as DataParallel has taken it: "
        "convert a module before");

  struct Complex : torch::nn::Module {
    Complex() { register_parameter("phase", torch::zeros({2}, at::kComplexFloat)); }
  };
  CHECK(message_of<InvalidArgument>([&] {
          libtorch::DataParallel{strategy, Complex{}};
        }) == "parameter 'phase' is ComplexFloat; expected f32, f64, f16 or bf16, such as its view_as_real");
  expect_in_step();
}

TEST_CASE("tensors that share memory are refused by name, but not those that lie between each other's elements") {
  Strategy strategy = runtime().make_strategy();
  using Register = std::function<void(torch::nn::Module&)>;
  const at::Tensor whole = weights({1, 2, 3, 4});
  const auto make = [&](const Register& fill) {
    const auto module = std::make_shared<torch::nn::Module>("Net");
    fill(*module);
    return libtorch::DataParallel{strategy, module};
  };
  const auto refused = [&](const Register& fill) { return message_of<InvalidArgument>([&] { make(fill); }); };
  CHECK(refused([&](torch::nn::Module& net) {
          net.register_parameter("in", whole.narrow(0, 0, 2));
          net.register_parameter("out", whole.narrow(0, 1, 2));
        }) ==
        "parameters 'in' and 'out' are two tensors in the same memory; expected one tensor under both names, as a tied "
        "parameter is");
  const std::string follows =
      "buffer 'view' lies in the memory of parameter 'w', which it would no longer follow: expected a clone(), or a "
      "view that forward takes of the parameter";
  CHECK(refused([&](torch::nn::Module& net) {
          net.register_buffer("view", net.register_parameter("w", whole).detach().narrow(0, 3, 1));
        }) == follows);
  CHECK(refused([&](torch::nn::Module& net) { net.register_buffer("view", net.register_parameter("w", whole)); }) ==
        follows);
  const auto buffers = [&](const at::Tensor& one, const at::Tensor& other) {
    return [=](torch::nn::Module& net) {
      net.register_buffer("one", one);
      net.register_buffer("other", other);
    };
  };
  CHECK(refused(buffers(whole.view({2, 2}).select(1, 0), whole.expand({3, 4}).slice(1, 2))) ==
        "buffers 'one' and 'other' are two tensors in the same memory; expected one tensor under both names, or a "
        "clone()");
  auto net = make(buffers(whole.view({2, 2}).select(1, 0), whole.view({2, 2}).select(1, 1).expand({3, 2})));
  CHECK(values_of(net->named_buffers()["one"]) == Values{1, 3});
  CHECK(values_of(net->named_buffers()["other"]) == Values{2, 4, 2, 4, 2, 4});
  CHECK(refused([&](torch::nn::Module& module) {
          module.register_parameter("w", net->named_buffers()["one"].view({2, 1}));
        }) ==
        "parameter 'w' lies in the memory of buffer 'one' of Net: expected each in one DataParallel, or a clone()");
  expect_in_step();
}
