// Reductions of nests of every kind. Components differ on every rank; sums are exact.
#include <array>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/tf.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "support/ranks.hpp"
#include "tf/estimator/batch_split.hpp"
#include "tf/feed/batch_outline.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Metrics {
  double loss = 0;
  std::map<std::string, std::int64_t> hits;
  Tensor histogram;
  std::string name;  ///< this rank's, not sent
};

/// A shape that the library does not know.
template <class T>
struct Chain : std::list<T> {
  using std::list<T>::list;
};

}  // namespace

template <>
struct lockstep::Nest<Metrics> {
  static constexpr auto members = std::tuple{&Metrics::loss, &Metrics::hits, &Metrics::histogram};
};

template <class T>
struct lockstep::detail::PartsOf<Chain<T>> : Sequence<Chain<T>> {
  template <template <class> class To>
  using Each = Chain<To<T>>;

  static void add(auto& chain, T part) { chain.push_back(std::move(part)); }  // found though it is a template
};

namespace {

Metrics mine() {
  return {0.5 * (rank() + 1),
          {{"a", rank() + 1}, {"b", 10}},
          Tensor::from({1.f, static_cast<float>(rank())}, {2}),
          "rank " + std::to_string(rank())};
}

/// Rank r has r + 1 rows at row r % 3 of a dense [3, 1], all of value r + 1.
IndexedSlices repeated_rows() {
  const auto rows = static_cast<std::size_t>(rank() + 1);
  return {Tensor::from(std::vector<float>(rows, static_cast<float>(rows)), {rank() + 1, 1}),
          Tensor::from(std::vector<std::int64_t>(rows, rank() % 3), {rank() + 1}),
          {3, 1}};
}

void check_sum(const Metrics& sum) {
  CHECK(sum.loss == 0.5 * triangle());
  CHECK(sum.hits == std::map<std::string, std::int64_t>{{"a", triangle()}, {"b", 10 * ranks()}});
  CHECK(sum.histogram.to_vector<float>() ==
        std::vector<float>{static_cast<float>(ranks()), static_cast<float>(triangle() - ranks())});
  CHECK(sum.name == "rank " + std::to_string(rank()));
}

void check_all_rows(const IndexedSlices& sum, float divisor = 1) {
  std::vector<float> values;
  std::vector<std::int64_t> indices;
  for (int from = 0; from < ranks(); ++from) {
    values.insert(values.end(), static_cast<std::size_t>(from + 1), static_cast<float>(from + 1) / divisor);
    indices.insert(indices.end(), static_cast<std::size_t>(from + 1), from % 3);
  }
  CHECK(sum.values.to_vector<float>() == values);
  CHECK(sum.values.shape() == Shape{triangle(), 1});
  CHECK(sum.indices.to_vector<std::int64_t>() == indices);
  CHECK(sum.dense_shape == Shape{3, 1});
}

}  // namespace

TEST_CASE("a struct of the user's is reduced member by member, in every way to reduce", "[B-28]") {
  Strategy strategy = runtime().make_strategy();
  check_sum(strategy.reduce(ReduceOp::sum, PerReplica{mine()}));
  strategy.run([&](ReplicaContext& context) {
    check_sum(context.all_reduce(ReduceOp::sum, mine()));
    const Metrics merged = context.merge_call(
        [](Strategy& merging, const PerReplica<Metrics>& metrics) {
          return StrategyExtended{merging}.reduce_to(ReduceOp::sum, metrics);
        },
        args(mine()));
    check_sum(merged);
  });
  const auto at_last = StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica{mine()},
                                                            StrategyExtended::OneReplica{ranks() - 1});
  CHECK(at_last.has_value() == odd_one());
  if (at_last) check_sum(*at_last);
  const Mirrored<Metrics> first = StrategyExtended{strategy}.broadcast_to(PerReplica{mine()});
  CHECK(first.value().loss == 0.5);
  CHECK(first.value().hits.at("a") == 1);
}

TEST_CASE("slices are gathered from all ranks, alone and beside dense values", "[E-21][E-25][E-26]") {
  Strategy strategy = runtime().make_strategy();
  check_all_rows(strategy.reduce(ReduceOp::sum, PerReplica{repeated_rows()}));
  check_all_rows(strategy.reduce(ReduceOp::mean, PerReplica{repeated_rows()}), static_cast<float>(ranks()));
  strategy.run([&](ReplicaContext& context) {
    const auto [sparse, dense, more] =
        context.all_reduce(ReduceOp::sum, std::tuple{repeated_rows(), Tensor::from({1.f * rank(), 1.f}, {2}),
                                                     std::vector{repeated_rows(), repeated_rows()}});
    check_all_rows(sparse);
    CHECK(dense.to_vector<float>() ==
          std::vector<float>{static_cast<float>(triangle() - ranks()), static_cast<float>(ranks())});
    for (const IndexedSlices& each : more) check_all_rows(each);
  });
  const auto at_first =
      StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica{repeated_rows()}, StrategyExtended::OneReplica{0});
  if (at_first) check_all_rows(*at_first);
  const Mirrored<IndexedSlices> first = StrategyExtended{strategy}.broadcast_to(PerReplica{repeated_rows()});
  CHECK(first.value().values.to_vector<float>() == std::vector<float>{1});
}

TEST_CASE("reductions leave what they were given as it was") {
  Strategy strategy = runtime().make_strategy();
  const IndexedSlices own = repeated_rows();
  const Tensor dense = Tensor::from({1.f}, {1});
  (void)strategy.reduce(ReduceOp::mean, PerReplica{std::pair{own, dense}});
  CHECK(own.values.to_vector<float>()[0] == static_cast<float>(rank() + 1));
  CHECK(own.indices.count() == rank() + 1);
  CHECK(dense.to_vector<float>() == std::vector<float>{1});
}

TEST_CASE("ranks whose nests hang together otherwise are told so, though their leaves look alike", "[E-26][K-2]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const std::map<std::string, double> nest{{rank() == 1 ? "loss" : "accuracy", 1.0}};
  CHECK_THAT(mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, PerReplica{nest}); }),
             Catch::Contains("loss") && Catch::Contains("accuracy"));
  const IndexedSlices wide{Tensor::zeros(DType::f32, {1, 2}), Tensor::zeros(DType::i64, {1}), {3, 2}};
  CHECK_THAT(
      mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, PerReplica{rank() == 1 ? wide : repeated_rows()}); }),
      Catch::Contains("[3, 1]") && Catch::Contains("[3, 2]"));
  CHECK_THAT(mismatch_of([&] {
               if (rank() == 1) {
                 (void)strategy.reduce(ReduceOp::sum, PerReplica{Tensor::zeros(DType::f32, {1, 1})});
               } else {
                 (void)strategy.reduce(ReduceOp::sum, PerReplica{repeated_rows()});
               }
             }),
             Catch::Contains("slices f32"));
}

TEST_CASE("same_on_all takes a struct by its named members, and refuses one that differs", "[B-30]") {
  Strategy& strategy = runtime().strategy();
  const std::string own = "rank " + std::to_string(rank());
  const Metrics alike{0.5, {{"a", 1}}, Tensor::from({1.f, 2.f}, {2}), own};
  CHECK(strategy.same_on_all(alike).value().name == own);
  CHECK(strategy.same_on_all(std::optional{alike}).value()->loss == 0.5);
  if (ranks() == 1) return;
  const auto refused = [&](Metrics other) {
    return mismatch_of([&] { (void)strategy.same_on_all(odd_one() ? other : alike); });
  };
  CHECK_THAT(refused({0.25, alike.hits, alike.histogram, own}),
             Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("with [0.25 [['a' 1]]") &&
                 Catch::Contains("with [0.5 [['a' 1]]"));
  CHECK_THAT(refused({alike.loss, {{"a", 2}}, alike.histogram, own}), Catch::Contains("with [0.5 [['a' 2]]"));
  (void)refused({alike.loss, alike.hits, Tensor::from({1.f, 3.f}, {2}), own});
  const auto nothing =
      mismatch_of([&] { (void)strategy.same_on_all(odd_one() ? std::optional<int>{} : std::optional{5}); });
  CHECK_THAT(nothing, Catch::Contains("with nothing") && Catch::Contains("with [5]"));
  expect_in_step();
}

TEST_CASE("a reduction takes an optional that all ranks have or none, in any nest", "[B-28]") {
  Strategy strategy = runtime().make_strategy();
  using Parts = std::map<std::string, std::array<std::optional<double>, 2>>;
  const auto parts = [](std::optional<double> second) { return Parts{{"a", {rank() + 1., second}}}; };
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica{parts({})}) == Parts{{"a", {triangle() * 1., {}}}});
  strategy.run([&](ReplicaContext& context) {
    const std::optional<Tensor> rows = Tensor::from({rank()}, {1});
    CHECK(context.all_gather(rows)->shape() == Shape{ranks()});
    CHECK_FALSE(context.all_gather(std::optional<Tensor>{}).has_value());
    CHECK(context.all_reduce_async(ReduceOp::sum, parts(1)).wait().at("a").back() == ranks());
  });
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([&] {
               (void)strategy.reduce(ReduceOp::sum, PerReplica{parts(odd_one() ? std::nullopt : std::optional{1.})});
             }),
             Catch::Contains("[f64 nothing ]") && Catch::Contains("[f64 f64 ]"));
  expect_in_step();
}

TEST_CASE("a shape that is added to the library's works everywhere", "[B-28]") {
  Strategy strategy = runtime().make_strategy();
  static_assert(detail::Reducible<Chain<float>> && detail::Gatherable<Chain<Tensor>> &&
                detail::BatchOfRows<Chain<std::optional<SparseTensor>>>);
  static_assert(!detail::Reducible<Chain<bool>> && !detail::Gatherable<Chain<float>> &&
                !detail::BatchOfRows<Chain<float>>);
  static_assert(detail::SameOnEveryReplica<Chain<int>> &&
                !detail::SameOnEveryReplica<Chain<std::pair<int, PerReplica<int>>>>);
  static_assert(detail::ComparableAcrossRanks<Chain<int>> && !detail::ComparableAcrossRanks<Chain<const void*>>);
  static_assert(detail::BroadcastableObject<Chain<std::string>> && !detail::BroadcastableObject<Chain<const char*>>);

  const Chain<double> numbers{1. * rank(), 10};
  const Chain<double> sum = strategy
                                .run([&](ReplicaContext& context) {
                                  const Chain<Tensor> rows =
                                      context.all_gather(Chain<Tensor>{Tensor::from({rank()}, {1})});
                                  CHECK(rows.front().count() == ranks());
                                  const auto merge = [](Strategy& merging, const Chain<PerReplica<double>>& each) {
                                    return StrategyExtended{merging}.reduce_to(ReduceOp::sum, each.back());
                                  };
                                  CHECK(context.merge_call(merge, args(numbers)) == 10 * ranks());
                                  return context.all_reduce(ReduceOp::sum, numbers);
                                })
                                .local();
  CHECK(sum == Chain<double>{1. * triangle() - ranks(), 10. * ranks()});
  CHECK(strategy.broadcast_object(Chain<std::string>{"of", std::to_string(rank())}).value() ==
        Chain<std::string>{"of", "0"});
  CHECK(strategy.same_on_all(Chain<int>{1, 2}).value() == Chain<int>{1, 2});

  // A batch, of which only the last rank has one.
  auto iterator = make_input_fn_iterator<Chain<Tensor>>(strategy, [](const InputContext&) {
    return [left = odd_one() ? 1 : 0]() mutable {
      return left-- > 0 ? std::optional{Chain<Tensor>{Tensor::zeros(DType::f32, {5, 2}), Tensor::zeros(DType::u8, {5})}}
                        : std::nullopt;
    };
  });
  Chain<Tensor> batch = iterator.next()->local();
  CHECK(detail::describe_tensors(detail::description_of<Chain<Tensor>>(), &batch) ==
        (odd_one() ? "f32[5, 2], u8[5]" : "f32[0, 2], u8[0]"));
  CHECK(detail::tensors_in(batch).size() == 2);

  if (ranks() == 1) return;
  const auto differs = [&](auto&& body) {
    CHECK_FALSE(mismatch_of([&] { body(odd_one() ? Chain<double>{1} : Chain<double>{1, 2}); }).empty());
  };
  differs([&](const Chain<double>& own) { (void)strategy.reduce(ReduceOp::sum, PerReplica{own}); });
  differs([&](const Chain<double>& own) { strategy.run([&](ReplicaContext&) { return own; }); });
  differs([&](const Chain<double>& own) { (void)strategy.same_on_all(own); });
  expect_in_step();
}
