// Sums over ranks that share memory, to the bit: tensors inside and outside of it, slices of any length.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "core/comm/communicator.hpp"
#include "reduce_support.hpp"
#include "support/node_ranks.hpp"
#include "sync/reduce/request.hpp"
#include "sync/reduce/shared_sums.hpp"
#include "sync/reduce/shared_sums_under_way.hpp"
#include "sync/reduce/slice_map.hpp"

using namespace lockstep;
using lockstep::detail::Request;
using lockstep::detail::SharedSums;
using lockstep::detail::SharedSumsUnderWay;
using lockstep::detail::SliceMap;
using lockstep::test::make_parts;
using lockstep::test::on_node;
using lockstep::test::same_bits;
using lockstep::test::tree;

namespace {

/// Where the tensors of the ranks are.
enum class Home { shared, own, shared_on_rank_0, at_different_places };

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// A sum for all ranks, or for `root`.
auto summing(ReduceOp op = ReduceOp::sum, std::optional<int> root = {}) {
  return [=](SharedSums& sums, const TensorView& tensor, int) {
    using enum Request::Kind;
    sums.run({.kind = root ? reduce : all_reduce, .op = op, .tensors = {&tensor, 1}, .root = root.value_or(0)});
  };
}

/// `operation(sums, tensor, rank)` on every rank, whose tensor holds parts[rank], and what each then holds.
template <class T>
std::vector<std::vector<T>> after(const std::vector<std::vector<T>>& parts, Home home,
                                  const std::function<void(SharedSums&, const TensorView&, int)>& operation) {
  const auto ranks = static_cast<int>(parts.size());
  const auto count = static_cast<std::int64_t>(parts.front().size());
  std::vector<std::vector<T>> results(parts.size());
  on_node(ranks, [&](NodeMemory& memory) {
    const std::vector<T>& mine = parts[at(memory.rank())];
    const SharedAllocation shared = memory.allocate((mine.size() + 2) * sizeof(T));
    const Tensor own = Tensor::zeros(detail::dtype_of<T>, {count});
    const bool inside = home == Home::shared || home == Home::at_different_places ||
                        (home == Home::shared_on_rank_0 && memory.rank() == 0);
    // Not at the beginning of a cache line, as a variable's gradient may be.
    const std::size_t first = home == Home::at_different_places ? at(memory.rank()) % 2 : 1;
    const TensorView tensor{
        inside ? shared.memory.data() + first * sizeof(T) : own.view().data(), {count}, detail::dtype_of<T>};
    std::copy(mine.begin(), mine.end(), tensor.elements<T>().begin());
    SharedSums sums{memory};
    operation(sums, tensor, memory.rank());
    results[at(memory.rank())] = tensor.to_vector<T>();
  });
  return results;
}

template <class T>
bool all_hold(const std::vector<std::vector<T>>& results, const std::vector<T>& expected) {
  return std::all_of(results.begin(), results.end(), [&](const auto& each) { return same_bits(each, expected); });
}

constexpr Home homes[] = {Home::shared, Home::own, Home::shared_on_rank_0, Home::at_different_places};

}  // namespace

TEMPLATE_TEST_CASE("ranks that share memory sum in the fixed tree, wherever their tensors are", "[E-13]", float, double,
                   std::int32_t, std::int64_t, Half, BFloat16) {
  using T = TestType;
  for (const int ranks : {2, 3, 4, 5}) {
    for (const std::int64_t count : {1, 1021, 40'003}) {
      const auto parts = make_parts<T>(ranks, count);
      const auto sum = tree(parts);
      for (const Home home : homes) {
        CAPTURE(ranks, count, static_cast<int>(home));
        CHECK(all_hold(after<T>(parts, home, summing()), sum));
        const int root = ranks - 2;
        CHECK(same_bits(after<T>(parts, home, summing(ReduceOp::sum, root))[at(root)], sum));
      }
    }
  }
}

TEMPLATE_TEST_CASE("a mean over ranks that share memory is the sum, divided once", "", float, double, Half, BFloat16) {
  using T = TestType;
  for (const int ranks : {2, 3})
    for (const std::int64_t count : {7, 40'003}) {
      const auto parts = make_parts<T>(ranks, count);
      CAPTURE(ranks, count);
      for (const Home home : homes) CHECK(all_hold(after<T>(parts, home, summing(ReduceOp::mean)), tree(parts, ranks)));
    }
}

TEST_CASE("a tensor longer than a slot passes through it in pieces") {
  const auto parts = make_parts<float>(3, 3 * static_cast<std::int64_t>(NodeMemory::slot_bytes) / 4 + 5);
  for (const Home home : homes) CHECK(all_hold(after<float>(parts, home, summing()), tree(parts)));
}

TEST_CASE("a sum in halves gives each rank its slices, and then every rank what became of them") {
  constexpr int ranks = 3;
  const auto parts = make_parts<double>(ranks, 200'003);
  const auto count = static_cast<std::int64_t>(parts.front().size());
  const auto map = std::make_shared<const SliceMap>(
      std::vector<std::int64_t>{0, 70'001, 70'001, 90'000, 90'000, 90'000, 150'000, count}, std::vector<int>{0, 1, 2});
  auto expected = tree(parts);
  for (double& each : expected) each *= 2;
  for (const Home home : homes) {
    CAPTURE(static_cast<int>(home));
    CHECK(all_hold(after<double>(parts, home,
                                 [&](SharedSums& sums, const TensorView& tensor, int rank) {
                                   const Sliced gradients{tensor, map};
                                   sums.run({.kind = Request::Kind::to_owners, .slices = {&gradients, 1}});
                                   const Tensor values = Tensor::zeros(DType::f64, {count});
                                   for (const SliceMap::Slice& own : map->of(rank))
                                     for (auto i = own.first; i < own.first + own.count; ++i)
                                       values.view().elements<double>()[static_cast<std::size_t>(i)] =
                                           2 * tensor.elements<double>()[static_cast<std::size_t>(i)];
                                   const auto part = [&](std::int64_t first, std::int64_t end) {
                                     return Sliced{values.view().slice(first, end - first),
                                                   std::make_shared<const SliceMap>(map->within(first, end - first)),
                                                   tensor.slice(first, end - first)};
                                   };
                                   const std::vector messages{part(0, 90'000), part(90'000, count)};
                                   sums.run({.kind = Request::Kind::to_all, .slices = messages});
                                   copy(values.view(), tensor);
                                 }),
                   expected));
  }
}

TEST_CASE("small tensors of several types travel together") {
  constexpr int ranks = 4;
  std::vector<std::vector<double>> results(ranks);
  on_node(ranks, [&](NodeMemory& memory) {
    const Tensor samples = Tensor::from<std::int64_t>({1, memory.rank()}, {2});
    const Tensor loss = Tensor::scalar(0.5 * memory.rank());
    const Tensor nothing = Tensor::zeros(DType::f32, {0});
    SharedSums sums{memory};
    const std::vector tensors{samples.view(), nothing.view(), loss.view()};
    sums.run({.kind = Request::Kind::all_reduce, .tensors = tensors});
    for (const std::int64_t each : samples.to_vector<std::int64_t>())
      results[at(memory.rank())].push_back(static_cast<double>(each));
    results[at(memory.rank())].push_back(loss.to_vector<double>()[0]);
  });
  for (const auto& each : results) CHECK(each == std::vector<double>{4, 6, 3});
}

TEMPLATE_TEST_CASE("sums that go on by themselves have the same bits, each rank at its own pace", "", float, double,
                   std::int64_t, BFloat16) {
  using T = TestType;
  const auto tensor_of = [](const std::vector<T>& values) {
    return Tensor::from(std::span{values}, {std::ssize(values)});
  };
  for (const int ranks : {2, 3, 5}) {
    const std::int64_t counts[] = {1, 1021, 0, 100'003};
    const int root = ranks - 1;
    std::vector<std::vector<std::vector<T>>> parts;  // by message and rank
    for (const std::int64_t count : counts) parts.push_back(make_parts<T>(ranks, count));
    // The first slice is empty, and the last the longest.
    std::vector<std::int64_t> bounds{0, 0};
    for (int rank = 1; rank < ranks; ++rank) bounds.push_back(rank < root ? 1000 * rank : counts[3]);
    std::vector<int> wrong(at(ranks));
    on_node(ranks, [&](NodeMemory& memory) {
      const std::size_t mine = at(memory.rank());
      const auto check = [&](const TensorView& view, const std::vector<T>& expected) {
        if (!same_bits(view.to_vector<T>(), expected)) ++wrong[mine];
      };
      const std::int64_t first = bounds[mine], length = bounds[mine + 1] - first;
      const Tensor slice = Tensor::zeros(detail::dtype_of<T>, {length}), operand = tensor_of(parts[3][mine]);
      std::vector<Tensor> for_all, for_root;
      std::vector<std::shared_ptr<const SharedSumsUnderWay::Message>> messages;
      SharedSumsUnderWay sums{memory};
      for (const auto& part : parts) {
        messages.push_back(sums.start(for_all.emplace_back(tensor_of(part[mine])).view(), {}));
        messages.push_back(sums.start_to_one(for_root.emplace_back(tensor_of(part[mine])).view(), {}, root));
      }
      messages.push_back(sums.start_scatter(operand.view(), bounds, slice.view(), {}));
      while (!std::ranges::all_of(messages, [](const auto& message) { return message->is_done(); }))
        if (!sums.advance()) std::this_thread::yield();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        check(for_all[i].view(), tree(parts[i]));
        check(for_root[i].view(), memory.rank() == root ? tree(parts[i]) : parts[i][mine]);
      }
      const std::vector<T> sum = tree(parts[3]);
      check(slice.view(), {sum.begin() + first, sum.begin() + first + length});
      check(operand.view(), parts[3][mine]);
    });
    CAPTURE(ranks);
    CHECK(wrong == std::vector<int>(at(ranks)));
  }
}
