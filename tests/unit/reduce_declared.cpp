// Sums that were declared beforehand, and a rank that fails between two of them.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/reduce/declared_sums.hpp>

#include "support/thread_communicator.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const SumList three{.dtype = DType::f64, .counts = {2, 1, 3}};

}  // namespace

TEST_CASE("a list of sums is short to say, and another list is said in other words") {
  CHECK_THAT(describe(three), Catch::StartsWith("3 sums of 6 f64 (digest ") && Catch::EndsWith(")"));
  CHECK(describe(three) == describe({.dtype = DType::f64, .counts = {2, 1, 3}}));
  CHECK(describe(three) != describe({.dtype = DType::f64, .counts = {1, 2, 3}}));
  CHECK(describe(three) != describe({.dtype = DType::f32, .counts = {2, 1, 3}}));
}

TEST_CASE("declared sums are made in their order, and no others are") {
  on_threads(2, [](ThreadCommunicator& communicator) {
    const auto reductions = make_fixed_order_ops(communicator);
    DeclaredSums sums{*reductions, three, host_stream()};
    const Tensor first = Tensor::from({1.0 + communicator.rank(), 4.0}, {2});
    const Tensor second = Tensor::from({10.0 * communicator.rank()}, {1}),
                 third = Tensor::from({1.0, 2.0, 3.0}, {3, 1});
    const auto refused = [&](const Tensor& tensor, const std::string& message) {
      CHECK_THROWS_AS(sums.all_reduce(tensor.view()), InvalidArgument);
      CHECK_THROWS_WITH(sums.all_reduce(tensor.view()), message);
    };
    refused(second, "sum 1 of 3: f64[1]; declared were 2 elements of f64");
    refused(Tensor::from({1.f, 2.f}, {2}), "sum 1 of 3: f32[2]; declared were 2 elements of f64");
    CHECK_THROWS_WITH(sums.require_all_made(), "0 of 3 declared sums were made");
    sums.all_reduce(first.view());
    CHECK_THROWS_WITH(sums.require_all_made(), "1 of 3 declared sums were made");
    sums.all_reduce(second.view());
    sums.all_reduce(third.view());
    sums.require_all_made();
    refused(third, "a sum of f64[3, 1] behind the 3 that were declared");
    CHECK(first.to_vector<double>() == std::vector<double>{3, 8});
    CHECK(second.to_vector<double>() == std::vector<double>{10});
    CHECK(third.to_vector<double>() == std::vector<double>{2, 4, 6});
  });
}

TEST_CASE("a rank that stops between two sums brings zeros for the rest, wherever that is") {
  for (std::size_t made = 0; made <= 3; ++made) {
    on_threads(3, [made](ThreadCommunicator& communicator) {
      const auto reductions = make_fixed_order_ops(communicator);
      DeclaredSums sums{*reductions, three, host_stream()};
      std::vector<double> firsts;
      for (std::size_t i = 0; i < 3; ++i) {
        if (communicator.rank() == 1 && i == made) break;
        const Tensor tensor =
            Tensor::from(std::vector<double>(static_cast<std::size_t>(three.counts[i]), 2), {three.counts[i]});
        sums.all_reduce(tensor.view());
        firsts.push_back(tensor.to_vector<double>().front());
      }
      sums.make_the_rest();
      sums.require_all_made();
      for (std::size_t i = 0; i < firsts.size(); ++i) CHECK(firsts[i] == (i < made ? 6 : 4));
    });
  }
}
