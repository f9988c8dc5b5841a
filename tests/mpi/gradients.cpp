// The backward pass of all_reduce. Losses differ on every rank, and every number is exact in double.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Vector = std::vector<double>;

/// What rank r brings to the all_reduce, and what it makes of the result: the loss Σᵢ weight(r, i) yᵢ².
double input(int rank, std::size_t i) {
  return rank + 2.0 * static_cast<double>(i);
}
double weight(int rank, std::size_t i) {
  return 1.0 + 3.0 * rank - static_cast<double>(i);
}

constexpr std::size_t size = 3;

Vector inputs() {
  Vector x(size);
  for (std::size_t i = 0; i < size; ++i) x[i] = input(rank(), i) * ranks();  // their mean is exact too
  return x;
}

/// The sum of all ranks' losses where this rank brings `x`.
double total_loss(ReplicaContext& context, ReduceOp op, const Vector& x) {
  const Vector y = context.all_reduce(op, x);
  double loss = 0;
  for (std::size_t i = 0; i < size; ++i) loss += weight(rank(), i) * y[i] * y[i];
  return context.all_reduce(ReduceOp::sum, loss);
}

/// The gradient of this rank's loss with respect to the result.
Vector upstream(ReplicaContext& context, ReduceOp op) {
  const Vector y = context.all_reduce(op, inputs());
  Vector gradient(size);
  for (std::size_t i = 0; i < size; ++i) gradient[i] = 2 * weight(rank(), i) * y[i];
  return gradient;
}

}  // namespace

TEST_CASE("the gradient of an all_reduce is what the losses of all ranks change by", "[K-4]") {
  Strategy& strategy = runtime().strategy();
  strategy.run([&](ReplicaContext& context) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
      const Vector gradient = context.all_reduce_gradient(op, upstream(context, op));
      // Central differences of a square are its derivative, however wide; `ranks` is a step that a mean can divide.
      const double step = ranks();
      for (int changed = 0; changed < ranks(); ++changed) {
        for (std::size_t i = 0; i < size; ++i) {
          Vector above = inputs(), below = inputs();
          if (rank() == changed) above[i] += step, below[i] -= step;
          const double slope = (total_loss(context, op, above) - total_loss(context, op, below)) / (2 * step);
          if (rank() == changed) CHECK(gradient[i] == slope);
        }
      }
    }
  });
}

TEST_CASE("the gradient has the structure of the result, and is one agreement of its own", "[K-4]") {
  Strategy& strategy = runtime().strategy();
  strategy.run([&](ReplicaContext& context) {
    const auto before = inside(strategy).group().meeting().meetings();
    const std::pair upstream{Tensor::from({1.f + rank(), 2.f}, {1, 2}), std::vector{3.0 * ranks(), 1.0 * rank()}};
    const auto [tensor, list] = context.all_reduce_gradient(ReduceOp::sum, upstream);
    CHECK(tensor.to_vector<float>() == std::vector<float>{1.f * triangle(), 2.f * ranks()});
    CHECK(tensor.shape() == Shape{1, 2});
    CHECK(list == Vector{3.0 * ranks() * ranks(), 1.0 * triangle() - ranks()});
    CHECK(context.all_reduce_gradient(ReduceOp::mean, upstream).second[0] == 3.0 * ranks());
    CHECK(inside(strategy).group().meeting().meetings() - before == 2);
    CHECK_THROWS_AS(context.all_reduce_gradient(ReduceOp::mean, 1), InvalidArgument);
    context.merge_call(
        [&](Strategy&) { CHECK_THROWS_AS(context.all_reduce_gradient(ReduceOp::sum, 1.0), ContextError); });
  });
}

TEST_CASE("a rank in its backward pass and one in its forward pass are told apart by name", "[K-4]") {
  if (ranks() == 1) return;
  const std::string message = mismatch_of([] {
    runtime().strategy().run([](ReplicaContext& context) {
      const Here here = Here::current();
      if (odd_one()) return context.all_reduce_gradient(ReduceOp::sum, 1.0, here);
      return context.all_reduce(ReduceOp::sum, 1.0, here);
    });
  });
  CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                          Catch::Contains("at gradient of all_reduce #1 (gradients.cpp:") &&
                          Catch::Contains("at all_reduce #1 (gradients.cpp:"));
  expect_in_step();
}
