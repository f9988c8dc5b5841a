// Collectives on tensors of torch. Also for real GPUs.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/torch/collectives.hpp>
#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "support/ranks.hpp"
#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Scores {
  at::Tensor loss;
  std::int64_t hits = 0;
  std::string label;  ///< not sent
};

/// Calls `body(context, there)` in a run, where `there(values)` makes a tensor on the strategy's device.
template <class Body>
void run_there(Body&& body) {
  Strategy strategy = runtime().make_strategy();
  const at::Device device = libtorch::DataParallel{strategy, Plane{}}.device();
  strategy.run([&](ReplicaContext& context) {
    body(context,
         [&](const Values& values, at::ScalarType type = at::kDouble) { return weights(values).to(type).to(device); });
  });
}

Values on_host(const at::Tensor& tensor) {
  return values_of(tensor.to(at::kCPU));
}

}  // namespace

template <>
struct lockstep::Nest<Scores> {
  static constexpr auto members = std::tuple{&Scores::loss, &Scores::hits};
};

TEST_CASE("torch's tensors of all types, and nests of them, are reduced into new ones", "[device]") {
  const double mine = rank() + 1, sum = triangle();
  run_there([&](ReplicaContext& context, auto there) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
      const at::Tensor x = there({mine, 2 * mine}, type), y = libtorch::all_reduce(context, ReduceOp::sum, x);
      CHECK(on_host(y) == Values{sum, 2 * sum});
      CHECK(y.options().type_equal(x.options()));
      CHECK(on_host(x) == Values{mine, 2 * mine});
    }
    const at::Tensor one = there({mine}), none = there({}).view({0, 3});
    const auto [list, map, pair, scores] = libtorch::all_reduce(
        context, ReduceOp::sum,
        std::tuple{std::vector{one, none}, std::map<std::string, at::Tensor>{{"b", 3 * one}, {"a", 2 * one}},
                   std::pair{std::optional{4 * one}, std::optional<at::Tensor>{}}, Scores{5 * one, 6, "mine"}});
    CHECK(on_host(list[0]) == Values{sum});
    CHECK(list[1].sizes() == at::IntArrayRef{0, 3});
    CHECK(on_host(map.at("a")) == Values{2 * sum});
    CHECK(on_host(map.at("b")) == Values{3 * sum});
    CHECK(on_host(*pair.first) == Values{4 * sum});
    CHECK_FALSE(pair.second);
    CHECK(on_host(scores.loss) == Values{5 * sum});
    CHECK(scores.hits == 6 * ranks());
    CHECK(scores.label == "mine");
    CHECK(on_host(libtorch::all_reduce(context, ReduceOp::mean, ranks() * one)) == Values{sum});
  });
}

TEST_CASE("a tensor is read as torch sees it, not as it lies in memory", "[device]") {
  run_there([&](ReplicaContext& context, auto there) {
    const at::Tensor x = there({1, 2, 3, 4, 5, 6}).view({2, 3}) * (rank() + 1);
    const double sum = triangle();
    const auto sums = libtorch::all_reduce(
        context, ReduceOp::sum,
        std::vector{x.t(), x.narrow(1, 1, 1), x.select(0, 0).expand({2, 3}), at::_neg_view(x.select(1, 2))});
    CHECK(on_host(sums[0]) == Values{sum, 4 * sum, 2 * sum, 5 * sum, 3 * sum, 6 * sum});
    CHECK(sums[0].sizes() == at::IntArrayRef{3, 2});
    CHECK(on_host(sums[1]) == Values{2 * sum, 5 * sum});
    CHECK(on_host(sums[2]) == Values{sum, 2 * sum, 3 * sum, sum, 2 * sum, 3 * sum});
    CHECK(on_host(sums[3]) == Values{-3 * sum, -6 * sum});
    CHECK(on_host(libtorch::all_gather(context, at::_neg_view(x.t())).slice(0, 0, 3)) ==
          Values{-1, -4, -2, -5, -3, -6});
  });
}

TEST_CASE("torch's tensors are gathered, and broadcast, flags among them", "[device]") {
  const double mine = rank() + 1;
  run_there([&](ReplicaContext& context, auto there) {
    // Rank r has r rows, and the flag of its number's lowest bit.
    const at::Tensor rows = there(Values(static_cast<std::size_t>(2 * rank()), mine), at::kFloat).view({rank(), 2});
    const at::Tensor flag = there({mine - 2 * (rank() / 2) - 1}).gt(0);
    const auto [all, flags] = libtorch::all_gather(context, std::pair{rows, flag});
    Values expected, expected_flags;
    for (int i = 0; i < ranks(); ++i) {
      expected.insert(expected.end(), static_cast<std::size_t>(2 * i), i + 1);
      expected_flags.push_back(i % 2);
    }
    CHECK(on_host(all) == expected);
    CHECK(all.size(1) == 2);
    CHECK(flags.scalar_type() == at::kBool);
    CHECK(on_host(flags) == expected_flags);

    const at::Tensor x = there({mine, 7 * mine}), sent = libtorch::broadcast(context, x);
    CHECK(on_host(sent) == Values{1, 7});
    CHECK(on_host(x) == Values{mine, 7 * mine});
    CHECK(on_host(libtorch::broadcast(context, std::vector{there({double(rank() == 0)}).gt(0)})[0]) == Values{1});
  });
}

TEST_CASE("a reduction of torch's tensors that does not wait has the operands of its call", "[device]") {
  const double mine = rank() + 1, sum = triangle();
  run_there([&](ReplicaContext& context, auto there) {
    const at::Tensor x = there({mine});
    auto first = libtorch::all_reduce_async(context, ReduceOp::sum, x);
    x.fill_(100);
    auto second = libtorch::all_reduce_async(context, ReduceOp::sum, std::pair{2 * x, rank()});
    x.fill_(1000);
    const auto [twice, number] = second.wait();
    CHECK(on_host(twice) == Values{200.0 * ranks()});
    CHECK(number == triangle() - ranks());
    CHECK(on_host(first.wait()) == Values{sum});
    CHECK_THAT(message_of<ContextError>([&] { (void)first.wait(); }), Catch::Contains("its result has been taken"));
    auto third = libtorch::all_reduce_async(context, ReduceOp::sum, x);
    auto moved_to = std::move(third);
    CHECK_THAT(message_of<ContextError>([&] { (void)third.wait(); }), Catch::Contains("it has been moved from"));
    (void)moved_to.wait();
  });
}

TEST_CASE("ranks with other tensors of torch hear of it in one sentence, and results keep their memory", "[device]") {
  if (ranks() == 1) return;
  using Map = std::map<std::string, at::Tensor>;
  const auto mismatch = [](auto call) {
    return mismatch_of([&] {
      run_there([&](ReplicaContext& context, auto there) {
        (void)call(context, there({1, 2}), odd_one() ? there({1, 2, 3}) : there({1, 2}));
      });
    });
  };
  CHECK_THAT(mismatch([](ReplicaContext& context, const at::Tensor&, const at::Tensor& other) {
               return libtorch::all_reduce(context, ReduceOp::sum, other);
             }),
             Catch::Contains("with sum of f64[3]") && Catch::Contains("with sum of f64[2]"));
  CHECK_THAT(mismatch([](ReplicaContext& context, const at::Tensor& same, const at::Tensor&) {
               return libtorch::all_reduce(context, ReduceOp::sum, Map{{odd_one() ? "b" : "a", same}});
             }),
             Catch::Contains(" in {a: tensor }") && Catch::Contains(" in {b: tensor }"));
  CHECK_THAT(mismatch([](ReplicaContext& context, const at::Tensor& same, const at::Tensor&) {
               return libtorch::all_gather(context, odd_one() ? same.gt(1) : same.to(at::kByte));
             }),
             Catch::Contains("with bool[…]") && Catch::Contains("with u8[…]"));
  CHECK_THAT(mismatch([](ReplicaContext& context, const at::Tensor&, const at::Tensor& other) {
               return libtorch::broadcast(context, other);
             }),
             Catch::Contains("at broadcast #") && Catch::Contains("with f64[3]"));
  CHECK_THAT(mismatch([](ReplicaContext& context, const at::Tensor& same, const at::Tensor&) {
               return libtorch::all_reduce_async(context, ReduceOp::sum, Map{{odd_one() ? "b" : "a", same}}).wait();
             }),
             Catch::Contains("at all_reduce_async #") && Catch::Contains("with sum of f64[2]") &&
                 Catch::Contains(" in {b: tensor }"));
  at::Tensor kept;
  run_there([&](ReplicaContext& context, auto there) { kept = libtorch::all_gather(context, there({1, 2})); });
  CHECK(kept.size(0) == 2 * ranks());
  CHECK(on_host(kept.slice(0, 0, 2)) == Values{1, 2});
}

TEST_CASE("what cannot be reduced is refused by name on its rank, and the others hear of it") {
  Strategy strategy = runtime().make_strategy();
  const at::Tensor plain = torch::ones({2}, at::kDouble);
  at::Tensor parameter = torch::ones({2}, at::TensorOptions{}.dtype(at::kDouble).requires_grad(true));
  const auto refused = [&](const at::Tensor& tensor) {
    const auto reduce = [&] {
      strategy.run([&](ReplicaContext& context) {
        (void)libtorch::all_reduce(context, ReduceOp::sum, std::vector{plain, odd_one() ? tensor : plain});
      });
    };
    if (odd_one()) return message_of<InvalidArgument>(reduce);
    return message_of<PeerError>(reduce);
  };
  CHECK_THAT(refused({}), Catch::Contains("tensor 2 of 2 is undefined"));
  CHECK_THAT(refused(plain.to_sparse()), Catch::Contains("has the layout Sparse; expected a dense one"));
  CHECK_THAT(refused(plain.to(at::kComplexDouble)), Catch::Contains("is ComplexDouble; expected f32, f64"));
  CHECK_THAT(refused(plain.to(at::kShort)), Catch::Contains("is Short; expected f32, f64"));
  CHECK_THAT(refused(plain.gt(0)), Catch::Contains("is bool, which has no sums"));
  CHECK_THAT(refused(torch::empty({2}, at::kMeta)), Catch::Contains("is on meta; expected the CPU"));
  CHECK_THAT(refused(2 * parameter), Catch::Contains("has come out of a graph (MulBackward"));
  strategy.run([&](ReplicaContext& context) {
    const at::NoGradGuard without;
    CHECK(on_host(libtorch::all_reduce(context, ReduceOp::sum, 2 * parameter)) == Values{2.0 * ranks(), 2.0 * ranks()});
  });
  strategy.run([&](ReplicaContext& context) {
    CHECK_FALSE(libtorch::all_reduce(context, ReduceOp::sum, parameter).requires_grad());
    CHECK_THAT(
        message_of<InvalidArgument>([&] { (void)libtorch::all_reduce(context, ReduceOp::mean, plain.to(at::kLong)); }),
        Catch::Contains("collectives.cpp"));
    CHECK_THAT(message_of<InvalidArgument>([&] { (void)libtorch::all_gather(context, plain.sum()); }),
               Catch::Contains("the tensor has no rows"));
  });
  expect_in_step();
}
