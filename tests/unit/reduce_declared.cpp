// Sums that were declared beforehand, and a rank that fails between two of them.
#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/messenger.hpp"
#include "support/done_communicator.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/declared_sums.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const SumList three{.dtype = DType::f64, .counts = {2, 1, 3}};

/// What `body` is refused with, as InvalidArgument; empty if it is not.
template <class Body>
std::string refusal_of(Body&& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

/// Two ranks on two nodes, of which the other one agrees to everything. Counts what is sent to owners of slices.
class CountingCommunicator final : public DoneCommunicator {
 public:
  CountingCommunicator() : DoneCommunicator{0, 2} {}
  Messenger* messenger() override { return &counting_; }
  int sent() const { return counting_.sent; }

 private:
  struct Counting final : Messenger {
    Work start(std::span<const Parcel> parcels, Lane lane) override {
      if (lane == Lane::first && std::ssize(parcels[1].sent) > 1) ++sent;  // what measures the latency is short
      return Work::done();
    }
    int sent = 0;
  };

  Counting counting_;
};

}  // namespace

TEST_CASE("a list of sums is short to say, and another list is said in other words") {
  CHECK_THAT(describe(three), Catch::StartsWith("3 sums of 6 f64 (digest ") && Catch::EndsWith(")"));
  CHECK(describe(three) == describe({.dtype = DType::f64, .counts = {2, 1, 3}}));
  CHECK(describe(three) != describe({.dtype = DType::f64, .counts = {1, 2, 3}}));
  CHECK(describe(three) != describe({.dtype = DType::f32, .counts = {2, 1, 3}}));
}

TEST_CASE("declared sums are made in their order, and no others are") {
  struct Seen {
    std::vector<std::string> refusals, unfinished;
    std::vector<std::vector<double>> sums;
  };
  std::vector<Seen> seen(2);
  on_threads(2, [&](ThreadCommunicator& communicator) {
    const auto reductions = in_fixed_order(communicator);
    DeclaredSums sums{*reductions, three, Stream::host()};
    Seen& mine = seen[static_cast<std::size_t>(communicator.rank())];
    const auto refuse = [&](const Tensor& tensor) {
      mine.refusals.push_back(refusal_of([&] { sums.all_reduce(tensor.view()); }));
    };
    const auto finish = [&] {
      try {
        sums.require_all_made();
      } catch (const std::exception& error) {
        mine.unfinished.emplace_back(error.what());
      }
    };
    const Tensor first = Tensor::from({1.0 + communicator.rank(), 4.0}, {2});
    const Tensor second = Tensor::from({10.0 * communicator.rank()}, {1}),
                 third = Tensor::from({1.0, 2.0, 3.0}, {3, 1});
    refuse(second);
    refuse(Tensor::from({1.f, 2.f}, {2}));
    finish();
    sums.all_reduce(first.view());
    finish();
    sums.all_reduce(second.view());
    sums.all_reduce(third.view());
    finish();
    refuse(third);
    for (const Tensor& sum : {first, second, third}) mine.sums.push_back(sum.to_vector<double>());
  });
  for (const Seen& of_rank : seen) {
    CHECK(of_rank.refusals == std::vector<std::string>{"sum 1 of 3: f64[1]; declared were 2 elements of f64",
                                                       "sum 1 of 3: f32[2]; declared were 2 elements of f64",
                                                       "a sum of f64[3, 1] behind the 3 that were declared"});
    CHECK(of_rank.unfinished ==
          std::vector<std::string>{"0 of 3 declared sums were made", "1 of 3 declared sums were made"});
    CHECK(of_rank.sums == std::vector<std::vector<double>>{{3, 8}, {10}, {2, 4, 6}});
  }
}

TEST_CASE("a rank that stops between two sums brings zeros for the rest, wherever that is") {
  for (std::size_t made = 0; made <= 3; ++made) {
    std::vector<std::vector<double>> firsts(3);
    on_threads(3, [&](ThreadCommunicator& communicator) {
      const auto reductions = in_fixed_order(communicator);
      DeclaredSums sums{*reductions, three, Stream::host()};
      for (std::size_t i = 0; i < 3; ++i) {
        if (communicator.rank() == 1 && i == made) break;
        const Tensor tensor =
            Tensor::from(std::vector<double>(static_cast<std::size_t>(three.counts[i]), 2), {three.counts[i]});
        sums.all_reduce(tensor.view());
        firsts[static_cast<std::size_t>(communicator.rank())].push_back(tensor.to_vector<double>().front());
      }
      sums.make_the_rest();
      sums.require_all_made();
    });
    CAPTURE(made);
    CHECK(firsts[1] == std::vector<double>(made, 6));
    std::vector<double> of_the_others(3, 4);
    std::fill_n(of_the_others.begin(), made, 6);
    CHECK(firsts[0] == of_the_others);
    CHECK(firsts[2] == of_the_others);
  }
}

TEST_CASE("buckets are summed in their order behind the list, once all their pieces and those before are ready") {
  const SumList one{.dtype = DType::f64, .counts = {1}};
  const int fails = GENERATE(-1, 0, 1, 2);  // how many pieces rank 1 brings before it fails; -1: it does not
  CAPTURE(fails);
  std::vector<std::vector<double>> sums(3);
  std::vector<int> as_it_should(3);
  on_threads(3, [&](ThreadCommunicator& communicator) {
    const auto reductions = in_fixed_order(communicator);
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor gradients = Tensor::from({1.0, 2.0, 3.0, 4.0}, {4});
    const std::vector<GradientBucket> buckets{{gradients.view().slice(0, 3), 2}, {gradients.view().slice(3, 1), 3}};
    DeclaredSums declared{*reductions, one, Stream::host(), buckets};
    const auto is_first_unready = [&](std::optional<std::size_t> piece) { return declared.first_unready() == piece; };
    bool as_expected = is_first_unready(0);
    const int pieces = rank == 1 && fails >= 0 ? fails : 3;
    if (pieces > 0) as_expected &= declared.ready(2) && !declared.ready(2) && is_first_unready(0);
    if (pieces > 1) as_expected &= declared.ready(0) && is_first_unready(1);
    if (pieces > 2) {
      declared.all_reduce(Tensor::from({1.0}, {1}).view());
      as_expected &= declared.ready(1) && is_first_unready(std::nullopt);
    }
    declared.make_the_rest();
    declared.finish();
    as_it_should[rank] = as_expected ? 1 : 0;
    sums[rank] = gradients.to_vector<double>();
  });
  const double ranks = fails < 0 ? 3 : 2;  // one that fails brings zeros
  for (const auto& sum : sums) CHECK(sum == std::vector<double>{1 * ranks, 2 * ranks, 3 * ranks, 4 * ranks});
  CHECK(as_it_should == std::vector<int>(3, 1));
}

TEST_CASE(
    "sums that start late start when the last piece is ready and the list's last sum is made, whichever is last") {
  const SumList one{.dtype = DType::f64, .counts = {1}};
  const bool list_is_last = GENERATE(false, true), starts_late = GENERATE(false, true);
  CAPTURE(list_is_last, starts_late);
  CountingCommunicator communicator;
  const auto reductions = reductions_of(communicator, {}, {0, 1});
  constexpr std::int64_t two_pieces = 8192;  // for both ranks
  const Tensor gradients = Tensor::zeros(DType::f64, {2 * two_pieces}), sum = Tensor::zeros(DType::f64, {1});
  const std::vector<GradientBucket> buckets{{gradients.view().slice(0, two_pieces), 1},
                                            {gradients.view().slice(two_pieces, two_pieces), 2}};
  DeclaredSums declared{*reductions, one, Stream::host(), buckets};
  std::optional<DeclaredSums::StartLate> late;
  if (starts_late) late.emplace();
  CHECK(declared.ready(0));
  if (!list_is_last) {
    declared.all_reduce(sum.view());
    CHECK(communicator.sent() == (starts_late ? 0 : 2));
  }
  CHECK(declared.ready(1));
  if (list_is_last) {
    CHECK(communicator.sent() == 0);
    declared.all_reduce(sum.view());
  }
  CHECK(communicator.sent() == 4);
}
