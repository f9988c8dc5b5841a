// all_gather: rows of all ranks, of which each has other ones, and another number of them.
#include <map>
#include <string>
#include <tuple>
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

struct Scores {
  std::map<std::string, std::vector<Tensor>> by_head;
  Tensor classes;
  std::string name;  ///< this rank's, not sent
};

}  // namespace

template <>
struct lockstep::Nest<Scores> {
  static constexpr auto members = std::tuple{&Scores::by_head, &Scores::classes};
};

namespace {

/// What rank `from` holds in each of `rows` rows of two: first + 10 * from, counting up.
template <class T>
void append_rows(std::vector<T>& values, int from, int rows, int first) {
  for (int i = 0; i < 2 * rows; ++i) values.push_back(static_cast<T>(first + 10 * from + i));
}

template <class T>
Tensor own_rows(int rows, int first) {
  std::vector<T> values;
  append_rows(values, rank(), rows, first);
  return Tensor::copy_of(Tensor::from(values, {rows, 2}).view(), runtime().strategy().stream());
}

/// Checks the rows of all ranks, of which rank r had `rows_of(r)`.
template <class T, class RowsOf>
void check_all(const Tensor& gathered, int first, RowsOf rows_of) {
  std::vector<T> expected;
  for (int from = 0; from < ranks(); ++from) append_rows(expected, from, rows_of(from), first);
  CHECK(gathered.shape() == Shape{static_cast<std::int64_t>(expected.size() / 2), 2});
  CHECK(gathered.to_vector<T>() == expected);
}

/// Rank 0 has no rows.
int as_many_as_rank(int from) {
  return from;
}
/// The last rank has no rows.
int fewer_and_fewer(int from) {
  return ranks() - 1 - from;
}

}  // namespace

TEST_CASE("all ranks' rows arrive on every rank in rank order, also where a rank has none") {
  Strategy& strategy = runtime().strategy();
  const auto before = inside(strategy).group().meeting().meetings();
  strategy.run([](ReplicaContext& context) {
    const Tensor own = own_rows<float>(rank(), 1);
    const auto [rising, falling, same, host, none, wide] = context.all_gather(std::tuple{
        own, own_rows<std::int64_t>(fewer_and_fewer(rank()), -5), own_rows<std::uint8_t>(3, 7),
        Tensor::from({rank()}, {1}), Tensor::zeros(DType::bf16, {0, 3}), Tensor::zeros(DType::f64, {rank(), 0, 2})});
    check_all<float>(rising, 1, as_many_as_rank);
    check_all<std::int64_t>(falling, -5, fewer_and_fewer);
    check_all<std::uint8_t>(same, 7, [](int) { return 3; });
    CHECK(rising.device() == own.device());
    CHECK(host.device() == DeviceKind::cpu);
    for (int from = 0; from < ranks(); ++from) CHECK(host.to_vector<int>().at(static_cast<std::size_t>(from)) == from);
    CHECK(none.shape() == Shape{0, 3});
    CHECK(wide.shape() == Shape{triangle() - ranks(), 0, 2});
    CHECK(own.shape() == Shape{rank(), 2});
  });
  CHECK(inside(strategy).group().meeting().meetings() - before == 2);  // with the end of the run
}

TEST_CASE("a nest is gathered leaf by leaf, in one merge_call") {
  runtime().strategy().run([](ReplicaContext& context) {
    const std::string name = "rank " + std::to_string(rank());
    const Scores all = context.all_gather(
        Scores{{{"a", {own_rows<float>(1, 0), own_rows<float>(rank(), 3)}}, {"b", {}}}, own_rows<int>(2, 5), name});
    check_all<float>(all.by_head.at("a").at(0), 0, [](int) { return 1; });
    check_all<float>(all.by_head.at("a").at(1), 3, as_many_as_rank);
    CHECK(all.by_head.at("b").empty());
    check_all<int>(all.classes, 5, [](int) { return 2; });
    CHECK(all.name == name);
  });
}

TEST_CASE("ranks that gather different things are told which rank does, and stay in step") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const auto mismatch = [&](auto usual, auto odd) {
    const std::string message = mismatch_of(
        [&] { strategy.run([&](ReplicaContext& context) { (void)context.all_gather(odd_one() ? odd : usual); }); });
    CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " ("));
    expect_in_step();
    return message;
  };
  CHECK_THAT(mismatch(Tensor::zeros(DType::f32, {rank(), 2}), Tensor::zeros(DType::f32, {1, 3})),
             Catch::Contains("with f32[…, 2]") && Catch::Contains("with f32[…, 3]"));
  CHECK_THAT(mismatch(Tensor::zeros(DType::f32, {rank()}), Tensor::zeros(DType::i64, {rank()})),
             Catch::Contains("with f32[…]") && Catch::Contains("with i64[…]"));
  using Map = std::map<std::string, Tensor>;
  const Tensor rows = Tensor::zeros(DType::f32, {1});
  CHECK_THAT(mismatch(Map{{"scores", rows}}, Map{{"classes", rows}}),
             Catch::Contains("scores") && Catch::Contains("classes"));
  (void)mismatch(std::vector{rows}, std::vector{rows, rows});
}

TEST_CASE("a tensor without rows is refused before any communication") {
  Strategy& strategy = runtime().strategy();
  const auto gather = [&](bool scalar_here) {
    strategy.run([&](ReplicaContext& context) {
      (void)context.all_gather(scalar_here ? Tensor::scalar(1.F) : Tensor::zeros(DType::f32, {2}));
    });
  };
  strategy.run([&](ReplicaContext& context) {
    const auto before = inside(strategy).group().meeting().meetings();
    CHECK_THAT(message_of<InvalidArgument>([&] { (void)context.all_gather(Tensor::scalar(1.F)); }),
               Catch::StartsWith("all_gather (gather.cpp:") &&
                   Catch::EndsWith("f32[] has no rows; expected one or more dimensions"));
    CHECK(inside(strategy).group().meeting().meetings() == before);
    context.merge_call([&](Strategy&) { CHECK_THROWS_AS(context.all_gather(Tensor{}), ContextError); });
  });
  if (ranks() == 1) return;
  if (odd_one()) CHECK_THROWS_AS(gather(true), InvalidArgument);
  if (!odd_one()) CHECK_THAT(message_of<PeerError>([&] { gather(false); }), Catch::Contains("f32[] has no rows"));
  expect_in_step();
}
