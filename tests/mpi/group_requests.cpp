// What groups do while the program goes on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "support/any_request.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Group group_of_all() {
  return runtime().strategy().ranks();
}

/// All ranks, the last first.
Group turned_group() {
  std::vector<int> all(static_cast<std::size_t>(ranks()));
  std::iota(all.rbegin(), all.rend(), 0);
  return group_of_all().subset(all);
}

bool are_on_gpus() {
  return runtime().strategy().stream().kind() != DeviceKind::cpu;
}

std::vector<float> random_values(std::size_t count, int of_rank) {
  std::mt19937 draw{static_cast<unsigned>(of_rank)};
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(draw() % 1'000'000) / 3 - 1000;
  return values;
}

bool are_same_bits(const std::vector<float>& values, const std::vector<float>& others) {
  return std::ranges::equal(std::as_bytes(std::span{values}), std::as_bytes(std::span{others}));
}

}  // namespace

TEST_CASE("a sum that was submitted has the bits of one that blocks, whatever its size, and several are under way") {
  Group all = group_of_all();
  const std::size_t sizes[] = {1, 0, 7, 1000, 40'000, 300'001};
  std::vector<std::vector<float>> submitted, blocking;
  std::vector<Group::Request> requests;
  for (const std::size_t size : sizes) submitted.push_back(random_values(size, rank()));
  blocking = submitted;
  for (auto& values : submitted) requests.push_back(all.submit_all_reduce(std::span{values}));
  for (auto& values : blocking) all.all_reduce(std::span{values});
  std::ranges::reverse(requests);
  for (auto& request : requests) request.wait();
  CHECK(std::ranges::equal(submitted, blocking, are_same_bits));
  expect_in_step();
}

TEST_CASE("a sum over shards that was submitted has the bits of one rank that has all of them") {
  if (are_on_gpus()) return;
  Group all = group_of_all();
  const int shards = std::max(6, ranks());  // on 4 ranks, in another tree than that of 4 parts
  const auto tree = [](const Range& own) {
    FixedOrderAccumulator sum{DType::f32, 40'000};
    for (std::int64_t shard = own.first; shard < own.last; ++shard) {
      std::ranges::copy(random_values(40'000, static_cast<int>(shard)), sum.next().elements<float>().begin());
      sum.push();
    }
    std::vector<float> values(40'000);
    sum.finish({reinterpret_cast<std::byte*>(values.data()), {std::ssize(values)}, DType::f32});
    return values;
  };
  const std::vector<float> expected = tree({0, shards});
  std::vector<float> whole = tree(Range::of_rank(shards, ranks(), rank())), on_last = whole;
  Group::Request first = all.submit_all_reduce(std::span{whole}, {.shards = shards});
  all.submit_reduce(std::span{on_last}, last(), {.shards = shards}).wait();
  first.wait();
  // The first half of the sum: of an operand that all ranks can cut into equal blocks.
  const std::size_t block = 40'000 / static_cast<std::size_t>(ranks());
  std::vector<float> mine(block), operand = tree(Range::of_rank(shards, ranks(), rank()));
  operand.resize(block * static_cast<std::size_t>(ranks()));
  all.submit_reduce_scatter(std::span<const float>{operand}, std::span{mine}, {.shards = shards}).wait();
  const auto part = expected.begin() + static_cast<std::ptrdiff_t>(block) * rank();
  CHECK(are_same_bits(mine, {part, part + static_cast<std::ptrdiff_t>(block)}));
  CHECK_THROWS_AS(all.submit_all_reduce(std::span{whole}, {.shards = -1}), InvalidArgument);
  CHECK(are_same_bits(whole, expected));
  if (rank() == last()) CHECK(are_same_bits(on_last, expected));
  if (ranks() > 1) CHECK_THROWS_AS(all.submit_all_reduce(std::span{whole}, {.shards = 1}), InvalidArgument);
  CHECK_THROWS_AS(all.submit_all_reduce(std::span{whole}, {.op = ReduceOp::exact_sum, .shards = 8}), InvalidArgument);
  expect_in_step();
}

TEST_CASE("a group reduces, broadcasts, gathers, scatters and exchanges blocks, in its own order") {
  if (are_on_gpus()) return;
  Group group = turned_group();
  const int mine = group.rank(), root = last() / 2;
  const auto count = static_cast<std::size_t>(ranks());
  std::vector<double> sum{1.0 + mine, 0.5};
  std::vector<std::int64_t> told(100'000, mine);
  const std::vector<int> pair{mine, -mine};
  std::vector<int> pairs(2 * count, 99), pairs_on_root(mine == root ? 2 * count : 0), back(2), blocks(count),
      got(count);
  for (int to = 0; to < ranks(); ++to) blocks[static_cast<std::size_t>(to)] = 100 * mine + to;

  std::vector<Group::Request> requests;
  requests.push_back(group.submit_reduce(std::span{sum}, root));
  requests.push_back(group.submit_broadcast(std::span{told}, root));
  requests.push_back(group.submit_all_gather(std::span{pair}, std::span{pairs}));
  requests.push_back(group.submit_gather(std::span{pair}, std::span{pairs_on_root}, root));
  requests.push_back(group.submit_all_to_all(std::span{blocks}, std::span{got}));
  requests.push_back(group.submit_barrier());
  for (auto& request : requests) request.wait();
  requests.push_back(group.submit_scatter(std::span{pairs_on_root}, std::span{back}, root));
  requests.back().wait();

  if (mine == root) CHECK(sum == std::vector<double>{static_cast<double>(triangle()), 0.5 * ranks()});
  CHECK(told == std::vector<std::int64_t>(100'000, root));
  for (int from = 0; from < ranks(); ++from) {
    const auto i = static_cast<std::size_t>(from);
    CHECK(pairs[2 * i] == from);
    CHECK(pairs[2 * i + 1] == -from);
    CHECK(got[i] == 100 * from + mine);
  }
  if (mine == root) CHECK(pairs_on_root == pairs);
  CHECK(back == pair);
  expect_in_step();
}

TEST_CASE("the first half of a sum has the bits of the whole, leaves its operand alone, and the second half ends it") {
  if (are_on_gpus()) return;
  Group group = turned_group();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{30'001}}) {
    const std::vector<float> brought = random_values(count * static_cast<std::size_t>(ranks()), rank());
    std::vector<float> whole = brought, mine(count), halves(brought.size());
    const std::span operand{brought};
    group.submit_reduce_scatter(operand, std::span{mine}).wait();
    group.submit_all_gather(std::span{mine}, std::span{halves}).wait();
    group.submit_all_reduce(std::span{whole}).wait();
    CHECK(are_same_bits(halves, whole));
    CHECK(brought == random_values(brought.size(), rank()));
  }
  expect_in_step();
}

TEST_CASE("one rank sends to another, and the others need no memory for it") {
  if (are_on_gpus()) return;
  Group group = turned_group();
  const int next = (group.rank() + 1) % ranks();
  constexpr std::int64_t rows = 1000, columns = 3;
  std::vector<double> sent(rows * columns, group.rank()), got(sent.size(), -1);
  const auto as_tensor = [&](std::vector<double>* values) {
    return TensorView{values ? reinterpret_cast<std::byte*>(values->data()) : nullptr, {rows, columns}, DType::f64};
  };
  std::vector<Group::Request> ring;
  for (int from = 0; from < ranks(); ++from) {
    const int to = (from + 1) % ranks();
    auto* const mine = group.rank() == from ? &sent : group.rank() == to ? &got : nullptr;
    ring.push_back(group.submit_send(as_tensor(mine), from, to));
  }
  for (auto& request : ring) request.wait();
  const int before = (group.rank() + ranks() - 1) % ranks();
  if (next != group.rank()) CHECK(got == std::vector<double>(sent.size(), before));
  CHECK(sent == std::vector<double>(sent.size(), group.rank()));
  expect_in_step();
}

TEST_CASE("values that are sent as a smaller type are summed as its values are") {
  if (are_on_gpus() || ranks() == 1) return;
  Group all = group_of_all();
  const std::size_t block = 20'000, count = block * static_cast<std::size_t>(ranks());
  const std::vector<float> brought = random_values(count, rank());
  std::vector<BFloat16> rounded;
  for (const float value : brought) rounded.push_back(BFloat16{value});
  all.all_reduce(std::span{rounded});
  const std::vector<float> expected(rounded.begin(), rounded.end());
  const auto first = expected.begin() + static_cast<std::ptrdiff_t>(block) * rank();

  std::vector<float> whole = brought, on_root = brought, mine(block);
  const Group::SumOptions options{.wire = DType::bf16};
  Group::Request requests[] = {all.submit_all_reduce(std::span{whole}, options),
                               all.submit_reduce(std::span{on_root}, last(), options),
                               all.submit_reduce_scatter(std::span{brought}, std::span{mine}, options)};
  for (auto& request : requests) request.wait();
  CHECK(whole == expected);
  if (odd_one()) CHECK(on_root == expected);
  CHECK(std::equal(mine.begin(), mine.end(), first));

  const std::string told =
      mismatch_of([&] { all.submit_all_reduce(std::span{whole}, odd_one() ? Group::SumOptions{} : options).wait(); });
  CHECK_THAT(told, Catch::Contains("sum of f32[") && Catch::Contains("], sent as bf16"));
  std::vector<double> wide(3);
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)all.submit_all_reduce(std::span{wide}, options); }),
             Catch::Contains("f64[3] sent as bf16: expected f32 sent as f16 or bf16"));
  expect_in_step();
}

TEST_CASE("ranks bring different numbers of rows, or none, to a gather, a sum of slices and what one sends") {
  if (are_on_gpus()) return;
  Group group = turned_group();
  const auto rows_of = [](int rank) { return rank == last() / 2 ? 0 : (rank == last() ? 40'000 : 5) * rank + 2; };
  const std::int64_t mine = rows_of(group.rank());
  const auto values_of = [](int rank, std::int64_t rows) {
    return Tensor::from(std::vector<double>(static_cast<std::size_t>(3 * rows), rank + 0.5), {rows, 3});
  };
  Tensor rows = values_of(group.rank(), mine), sent = rows, none = Tensor::from(std::vector<float>{}, {0, 2});
  IndexedSlices slices{values_of(group.rank(), mine),
                       Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(mine), group.rank()), {mine}),
                       {ranks(), 3}};
  std::vector<int> after{1};
  Group::Request requests[] = {group.submit_all_reduce(slices), group.submit_all_gather(none),
                               group.submit_all_gather(rows), group.submit_send(sent, last(), 0),
                               group.submit_broadcast(std::span{after}, 0)};
  for (auto& request : requests) request.wait();
  std::vector<double> expected;
  std::vector<std::int64_t> indices;
  for (int from = 0; from < ranks(); ++from) {
    expected.insert(expected.end(), static_cast<std::size_t>(3 * rows_of(from)), from + 0.5);
    indices.insert(indices.end(), static_cast<std::size_t>(rows_of(from)), from);
  }
  CHECK(rows.shape() == Shape{std::ssize(indices), 3});
  CHECK(rows.to_vector<double>() == expected);
  CHECK(slices.values.to_vector<double>() == expected);
  CHECK(slices.indices.to_vector<std::int64_t>() == indices);
  CHECK(none.shape() == Shape{0, 2});
  const int sender = group.rank() == 0 ? last() : group.rank();
  CHECK(sent.shape() == Shape{rows_of(sender), 3});
  CHECK(sent.to_vector<double>() == values_of(sender, rows_of(sender)).to_vector<double>());
  expect_in_step();
}

TEST_CASE("calls that may be at any place are compared without it, and messages show it") {
  if (are_on_gpus() || ranks() == 1) return;
  Group all = group_of_all(), anywhere = all.anywhere();
  std::vector<int> bits{1 << rank()}, again = bits, told{odd_one() ? 1 : 0};
  const auto submit = [&](std::span<int> values) {
    if (odd_one()) return anywhere.submit_all_reduce(values);
    return anywhere.submit_all_reduce(values);
  };
  submit(bits).wait();
  if (odd_one()) anywhere.all_reduce(std::span{again});
  if (!odd_one()) anywhere.all_reduce(std::span{again});
  if (odd_one()) anywhere.broadcast(std::span{told}, last());
  if (!odd_one()) anywhere.broadcast(std::span{told}, last());
  CHECK(bits.front() == (1 << ranks()) - 1);
  CHECK(again == bits);
  CHECK(told.front() == 1);

  std::vector<float> values(odd_one() ? 3 : 2);
  const std::string differ = mismatch_of([&] { anywhere.submit_all_reduce(std::span{values}).wait(); });
  CHECK_THAT(differ, Catch::Contains("(group_requests.cpp:") && Catch::Contains("f32[2], at any place") &&
                         Catch::Contains("f32[3], at any place"));
  const std::string mixed = mismatch_of([&] { (odd_one() ? all : anywhere).submit_barrier().wait(); });
  CHECK_THAT(mixed, Catch::Contains("barrier, at any place"));
  const std::string apart = mismatch_of([&] {
    if (odd_one()) all.submit_barrier().wait();
    if (!odd_one()) all.submit_barrier().wait();
  });
  CHECK_THAT(apart, Catch::Contains("(group_requests.cpp:"));
  expect_in_step();
}

TEST_CASE("a layer in between says what its requests stand for, and ranks compare that alone") {
  if (are_on_gpus() || ranks() == 1) return;
  Group all = group_of_all();
  const std::size_t own = odd_one() ? 3 : 2;
  std::vector<std::uint8_t> mine(2), of_all(2 * static_cast<std::size_t>(ranks()));
  Group largest = all.anywhere("all_reduce: MAX of bool[2]");
  Group other = all.anywhere("all_reduce: [" + std::to_string(own) + "]");
  if (odd_one()) largest.submit_all_gather(std::span{mine}, std::span{of_all}).wait();
  if (!odd_one()) largest.submit_all_gather(std::span{mine}, std::span{of_all}).wait();
  const std::string differ = mismatch_of([&] { other.submit_all_gather(std::span{mine}, std::span{of_all}).wait(); });
  CHECK_THAT(differ,
             Catch::Contains("is at all_reduce #") && Catch::Contains("with [2]") && Catch::Contains("with [3]"));
  expect_in_step();
}

TEST_CASE("parts of any length come together in the order of the ranks, and refused ones go nowhere") {
  if (are_on_gpus()) return;
  Group group = turned_group();
  const auto rows_for = [](int from, int to) { return from == to ? 0 : 20'000 * from + to; };
  std::vector<std::int64_t> counts, expected_counts;
  std::vector<double> mine, expected;
  for (int other = 0; other < ranks(); ++other) {
    const int leaving = rows_for(group.rank(), other), coming = rows_for(other, group.rank());
    counts.push_back(leaving);
    mine.insert(mine.end(), static_cast<std::size_t>(2 * leaving), group.rank() + other / 8.);
    expected_counts.push_back(coming);
    expected.insert(expected.end(), static_cast<std::size_t>(2 * coming), other + group.rank() / 8.);
  }
  Tensor rows = Tensor::from(mine, {std::ssize(mine) / 2, 2});
  std::vector<std::int64_t> too_few(counts.begin() + 1, counts.end());
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)group.submit_all_to_all(rows, too_few); }),
             Catch::Contains("expected a number for each of"));
  group.submit_all_to_all(rows, counts).wait();
  CHECK(rows.shape() == Shape{std::ssize(expected) / 2, 2});
  CHECK(rows.to_vector<double>() == expected);
  CHECK(counts == expected_counts);
  expect_in_step();
}

TEST_CASE("a wait does something else meanwhile, which may end it, and the request goes on") {
  if (are_on_gpus() || ranks() == 1) return;
  Group all = group_of_all().anywhere(), turned = turned_group().anywhere();
  std::vector<int> bits{1 << rank()};
  struct Enough {};
  const bool waits_first = !odd_one();
  std::optional<Group::Request> request;
  if (waits_first) {
    request = all.submit_all_reduce(std::span{bits});
    // At once: where time is simulated, nothing else happens while all wait.
    CHECK_THROWS_AS(request->wait([] { throw Enough{}; }), Enough);
  }
  turned.submit_barrier().wait();
  if (!waits_first) request = all.submit_all_reduce(std::span{bits});
  request->wait([] {});
  CHECK(bits.front() == (1 << ranks()) - 1);
  expect_in_step();
}

TEST_CASE("ranks submit to groups in different orders, and wait in others, beside calls that block") {
  if (are_on_gpus()) return;
  Group all = group_of_all(), turned = turned_group();
  for (int round = 0; round < 10; ++round) {
    std::mt19937 draw{static_cast<unsigned>(100 * round + rank())};  // another order on every rank
    std::vector<int> of_all{1 << rank()}, of_turned(50'000, 1 << rank());
    std::optional<Group::Request> first, second;
    const auto submit = [&](int which) {
      if (which == 0) first = all.submit_all_reduce(std::span{of_all});
      if (which == 1) second = turned.submit_all_reduce(std::span{of_turned});
    };
    const int begin = static_cast<int>(draw() % 2);
    submit(begin);
    submit(1 - begin);
    if (draw() % 2 == 0) second->wait();
    first->wait();
    expect_in_step();  // an agreement of all, while others of the ranks may still wait for the second
    second->wait();
    CHECK(second->test());
    CHECK(of_all.front() == (1 << ranks()) - 1);
    CHECK(of_turned == std::vector<int>(50'000, (1 << ranks()) - 1));
  }
}

TEST_CASE("ranks that submit different things are told where each is, every time, and the group goes on") {
  if (are_on_gpus() || ranks() == 1) return;
  Group group = turned_group();
  std::vector<float> values(odd_one() ? 3 : 2, 1);
  Group::Request request = group.submit_all_reduce(std::span{values});
  std::vector<float> after{1};
  Group::Request next = group.submit_all_reduce(std::span{after});
  const std::string told = mismatch_of([&] { request.wait(); });
  CHECK_THAT(told, Catch::Contains("all_reduce #") && Catch::Contains("(group_requests.cpp:") &&
                       Catch::Contains("sum of f32[2]") && Catch::Contains("sum of f32[3]"));
  CHECK(mismatch_of([&] { (void)request.test(); }) == told);
  next.wait();
  CHECK(after.front() == static_cast<float>(ranks()));
  // One rank blocks where the others go on.
  const std::string mixed = mismatch_of([&] {
    if (odd_one()) group.all_reduce(std::span{after});
    if (!odd_one()) group.submit_all_reduce(std::span{after}).wait();
  });
  CHECK_THAT(mixed, Catch::Contains("all_reduce #"));
  std::vector<int> bits{1 << rank()};
  group.all_reduce(std::span{bits});
  CHECK(bits.front() == (1 << ranks()) - 1);
  expect_in_step();
}

TEST_CASE("a request that nobody waits for is done before its memory may go, also when an exception takes it away") {
  Group all = group_of_all();
  std::vector<int> kept{1 << rank()};
  CHECK(message_of<Error>([&] {
          const Group::Request dropped = all.submit_all_reduce(std::span{kept});
          throw Error{"on every rank"};
        }) == "on every rank");
  CHECK(kept.front() == (1 << ranks()) - 1);
  expect_in_step();
}

TEST_CASE("values of a rank's device are taken as the work before leaves them, and are there for the work after") {
  Stream& stream = runtime().strategy().stream();
  Group turned = turned_group();
  for (int kind = 0; kind <= static_cast<int>(AnyRequest::Kind::barrier); ++kind) {
    CAPTURE(kind);
    // Those of another rank may be on the host.
    const bool on_host = kind % 2 == 0 && rank() == 0;
    AnyRequest request{turned, static_cast<AnyRequest::Kind>(kind), 1000, on_host ? Stream::host() : stream};
    request.wait();
    CHECK(request.is_right());
  }
  const auto ones = [&] { return Tensor::copy_of(Tensor::from({1.f, 2.f}, {2}).view(), stream); };
  const Tensor dropped = ones(), wrong = ones();
  { const Group::Request request = turned.submit_all_reduce(dropped.view()); }
  CHECK(dropped.to_vector<float>() == std::vector{static_cast<float>(ranks()), static_cast<float>(2 * ranks())});
  if (ranks() > 1) {
    Group::Request request = turned.submit_broadcast(wrong.view(), rank() == 0 ? 0 : 1);
    CHECK_THROWS_AS(request.wait(), MismatchError);
    CHECK(wrong.to_vector<float>() == std::vector{1.f, 2.f});
  }
  expect_in_step();
}

TEST_CASE("a request is refused before any communication if its values do not fit") {
  Group all = group_of_all();
  std::vector<int> three(3), all_of_two(2 * static_cast<std::size_t>(ranks()));
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)all.submit_all_gather(std::span{three}, std::span{all_of_two}); }),
             Catch::Contains("expected a block for each of"));
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)all.submit_reduce(std::span{three}, ranks()); }),
             Catch::Contains("submit_reduce with root"));
  std::vector<float> as_long(static_cast<std::size_t>(3 * ranks()));
  CHECK_THAT(message_of<InvalidArgument>([&] {
               (void)all.submit_all_gather(
                   TensorView{reinterpret_cast<std::byte*>(three.data()), {3}, DType::i32},
                   TensorView{reinterpret_cast<std::byte*>(as_long.data()), {3 * ranks()}, DType::f32});
             }),
             Catch::Contains("all of one length and type"));
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)all.submit_send(std::span{three}, 0, -1); }),
             Catch::Contains("submit_send to rank -1: expected one of 0 to"));
  Tensor scalar = Tensor::scalar(1.f);
  CHECK_THAT(message_of<InvalidArgument>([&] { (void)all.submit_all_gather(scalar); }),
             Catch::Contains("expected a dimension"));
  expect_in_step();
}
