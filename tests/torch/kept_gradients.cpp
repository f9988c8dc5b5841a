// Gradients that outlive their step: as tensors that the program keeps, and in `.grad`, where the next step adds to
// them.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <functional>
#include <string>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct PlaneProgram {
  Strategy strategy = runtime().make_strategy();
  libtorch::DataParallel<Plane> net{strategy, Plane{}};

  /// A step whose gradient is {x, 2 x}.
  void step(double x, bool in_shards = false) {
    strategy.run([&](ReplicaContext& context) {
      const auto loss = [&] { return libtorch::Loss::sum(net->forward(weights({x, 2 * x})), 1); };
      if (in_shards)
        net.backward_shards(context, ranks(), [&](int) { return loss(); });
      else
        net.backward(context, loss());
    });
  }
};

}  // namespace

TEST_CASE("a gradient that the program keeps stays as it was, as in torch") {
  PlaneProgram program;
  auto& net = program.net;
  for (const bool in_shards : {false, true}) {
    net.zero_grad();
    program.step(3, in_shards);
    const at::Tensor kept = net->w.grad();
    const at::Tensor view = net->w.grad().view({2, 1});
    net.zero_grad();
    program.step(5, in_shards);
    CHECK(values_of(net->w.grad()) == Values{5, 10});
    CHECK(values_of(kept) == Values{3, 6});
    CHECK(values_of(view) == Values{3, 6});
    // What was kept first is nobody's any more, and later ones are kept as well.
    const at::Tensor second = net->w.grad();
    net->zero_grad(true);  // to none
    program.step(7, in_shards);
    CHECK(values_of(net->w.grad() + kept + second) == Values{15, 30});
    kept.mul_(2);
    CHECK(values_of(net->w.grad()) == Values{7, 14});
  }
}

TEST_CASE("a kept view alone keeps the gradient's values, and a gradient that is not zeroed is added to in place") {
  PlaneProgram program;
  auto& net = program.net;
  program.step(3);
  const at::Tensor row = net->w.grad()[1];
  net.zero_grad();
  program.step(5);
  CHECK(values_of(row) == Values{6});
  const at::Tensor same = net->w.grad();
  program.step(1);
  CHECK(values_of(same) == Values{6, 12});
  net->w.mutable_grad().zero_();
  program.step(4);
  CHECK(values_of(same) == Values{4, 8});
  // Without a tensor that is kept, the step writes where the last one did.
  const void* const before = same.data_ptr();
  CHECK(net->w.grad().data_ptr() == before);
}

TEST_CASE("a gradient of an earlier step that only some ranks zero is refused, and no pass is blamed") {
  if (ranks() == 1) return;
  for (const bool in_shards : {false, true}) {
    PlaneProgram program;
    program.step(3, in_shards);
    if (odd_one()) program.net.zero_grad();
    const std::string words = message_of<InvalidArgument>([&] { program.step(5, in_shards); });
    CHECK(
        words ==
        "the gradient that an earlier step has left in parameter 'w' was zeroed on some ranks, and the step would add "
        "to it on the others: expected zero_grad on every rank before the step, or on none");
    program.step(5, in_shards);
    CHECK(values_of(program.net->w.grad()) == Values{5, 10});
  }
}

TEST_CASE("a gradient of an earlier step that ranks change differently is refused, and the same change is right") {
  if (ranks() == 1) return;
  for (const bool in_shards : {false, true}) {
    PlaneProgram program;
    const auto changed = [&](const std::function<void(at::Tensor&)>& change) {
      program.net.zero_grad();
      program.step(3, in_shards);
      change(program.net->w.mutable_grad());
      return message_of<InvalidArgument>([&] { program.step(5, in_shards); });
    };
    CHECK(changed([](at::Tensor& gradient) { gradient.mul_(2); }) == "");
    CHECK(values_of(program.net->w.grad()) == Values{11, 22});
    const std::string refusal =
        "the gradients that an earlier step has left were changed on some ranks, or not in the same way on all";
    CHECK_THAT(changed([](at::Tensor& gradient) { gradient.mul_(odd_one() ? 2 : 4); }), Catch::StartsWith(refusal));
    CHECK_THAT(changed([](at::Tensor& gradient) {
                 if (odd_one()) gradient.mul_(2);
               }),
               Catch::StartsWith(refusal));
    CHECK_THAT(changed([](at::Tensor& gradient) {
                 if (!odd_one()) gradient = gradient + 1;
               }),
               Catch::StartsWith(refusal));
  }
}
