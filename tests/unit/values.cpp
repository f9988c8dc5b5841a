// Locality as a type, and the walk over the leaves of what can be reduced.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/values/walks.hpp"

using namespace lockstep;

namespace {

enum class Color { red };
struct Plain {
  int a;
};

/// A struct of the user's, and one that holds it.
struct Metrics {
  float loss = 0;
  std::vector<std::int64_t> hits;
  std::string note;  ///< not sent
};
struct Outer {
  Metrics inner;
  IndexedSlices slices;
};
struct WithPerReplica {
  PerReplica<int> component;
};

}  // namespace

template <>
struct lockstep::Nest<Metrics> {
  static constexpr auto members = std::tuple{&Metrics::loss, &Metrics::hits};
};
template <>
struct lockstep::Nest<Outer> {
  static constexpr auto members = std::tuple{&Outer::inner, &Outer::slices};
};
template <>
struct lockstep::Nest<WithPerReplica> {
  static constexpr auto members = std::tuple{&WithPerReplica::component};
};

namespace {

static_assert(detail::Reducible<Metrics> && detail::Reducible<Outer> && detail::Reducible<std::vector<Outer>>);
static_assert(detail::Reducible<IndexedSlices> && detail::Reducible<std::pair<Tensor, IndexedSlices>>);
static_assert(!detail::Reducible<Plain> && !detail::Reducible<WithPerReplica>);
static_assert(detail::Gatherable<Tensor> &&
              detail::Gatherable<std::map<std::string, std::vector<std::pair<Tensor, Tensor>>>>);
static_assert(!detail::Gatherable<float> && !detail::Gatherable<std::tuple<Tensor, int>> &&
              !detail::Gatherable<IndexedSlices>);
static_assert(!detail::Gatherable<Metrics> && !detail::Gatherable<std::map<const char*, Tensor>>);
static_assert(detail::SameOnEveryReplica<Metrics> && !detail::SameOnEveryReplica<WithPerReplica>);

template <class A, class B>
inline constexpr bool same = std::is_same_v<A, B>;

// What replica code sees: locality is taken off every leaf, and nothing else changes.
static_assert(same<detail::local_t<int>, int>);
static_assert(same<detail::local_t<const int&>, int>);
static_assert(same<detail::local_t<PerReplica<int>>, int>);
static_assert(same<detail::local_t<Mirrored<Tensor>>, Tensor>);
static_assert(same<detail::local_t<PerReplica<void>>, void>);
static_assert(same<detail::local_t<void>, void>);
static_assert(same<detail::local_t<MirroredVariable>, MirroredVariable>);
static_assert(same<detail::local_t<Variable>, Variable>);
static_assert(same<detail::local_t<Plain>, Plain>);
static_assert(same<detail::local_t<std::vector<PerReplica<int>>>, std::vector<int>>);
static_assert(same<detail::local_t<std::optional<Mirrored<int>>>, std::optional<int>>);
static_assert(same<detail::local_t<std::map<std::string, PerReplica<float>>>, std::map<std::string, float>>);
static_assert(same<detail::local_t<std::tuple<PerReplica<int>, Mirrored<double>, MirroredVariable, std::string>>,
                   std::tuple<int, double, MirroredVariable, std::string>>);
static_assert(same<detail::local_t<std::pair<int, std::vector<std::pair<PerReplica<int>, Mirrored<int>>>>>,
                   std::pair<int, std::vector<std::pair<int, int>>>>);
static_assert(same<detail::local_t<std::tuple<>>, std::tuple<>>);

// What a merge function gets: leaves that nothing proves equal are PerReplica.
static_assert(same<detail::merged_t<int>, PerReplica<int>>);
static_assert(same<detail::merged_t<PerReplica<int>>, PerReplica<int>>);
static_assert(same<detail::merged_t<Mirrored<int>>, Mirrored<int>>);
static_assert(same<detail::merged_t<MirroredVariable>, MirroredVariable>);
static_assert(same<detail::merged_t<Plain>, PerReplica<Plain>>);
static_assert(same<detail::merged_t<std::string>, PerReplica<std::string>>);
static_assert(same<detail::merged_t<const Tensor&>, PerReplica<Tensor>>);
static_assert(same<detail::merged_t<std::vector<int>>, std::vector<PerReplica<int>>>);
static_assert(same<detail::merged_t<std::optional<Mirrored<int>>>, std::optional<Mirrored<int>>>);
static_assert(same<detail::merged_t<std::map<int, Tensor>>, std::map<int, PerReplica<Tensor>>>);
static_assert(same<detail::merged_t<std::tuple<int, Mirrored<int>, MirroredVariable>>,
                   std::tuple<PerReplica<int>, Mirrored<int>, MirroredVariable>>);
static_assert(same<detail::merged_t<std::pair<std::vector<std::vector<int>>, Mirrored<int>>>,
                   std::pair<std::vector<std::vector<PerReplica<int>>>, Mirrored<int>>>);

// What update takes: nothing with a leaf that may differ by rank.
static_assert(detail::SameOnEveryReplica<int>);
static_assert(detail::SameOnEveryReplica<Mirrored<Tensor>>);
static_assert(detail::SameOnEveryReplica<std::vector<Mirrored<int>>>);
static_assert(detail::SameOnEveryReplica<MirroredVariable>);
static_assert(!detail::SameOnEveryReplica<PerReplica<int>>);
static_assert(!detail::SameOnEveryReplica<const PerReplica<int>&>);
static_assert(!detail::SameOnEveryReplica<PerReplica<void>>);
static_assert(!detail::SameOnEveryReplica<std::vector<PerReplica<int>>>);
static_assert(!detail::SameOnEveryReplica<std::optional<PerReplica<int>>>);
static_assert(!detail::SameOnEveryReplica<std::map<int, PerReplica<int>>>);
static_assert(!detail::SameOnEveryReplica<std::tuple<int, PerReplica<int>>>);
static_assert(!detail::SameOnEveryReplica<std::pair<PerReplica<int>, int>>);
static_assert(!detail::SameOnEveryReplica<std::pair<int, std::vector<std::optional<PerReplica<int>>>>>);

// What a reduction takes: numbers that a tensor holds, tensors, and nests of those.
static_assert(detail::Reducible<int> && detail::Reducible<long> && detail::Reducible<long long> &&
              detail::Reducible<std::uint8_t>);
static_assert(detail::Reducible<float> && detail::Reducible<double> && detail::Reducible<Tensor>);
static_assert(detail::Reducible<std::vector<std::map<std::string, std::pair<int, std::tuple<Tensor, double>>>>>);
static_assert(detail::Reducible<std::tuple<>>);
static_assert(!detail::Reducible<bool>);
static_assert(!detail::Reducible<char> && !detail::Reducible<signed char> && !detail::Reducible<wchar_t> &&
              !detail::Reducible<char32_t>);
static_assert(!detail::Reducible<short> && !detail::Reducible<unsigned> && !detail::Reducible<std::uint64_t> &&
              !detail::Reducible<long double>);
static_assert(!detail::Reducible<Color> && !detail::Reducible<std::string> && !detail::Reducible<Plain> &&
              !detail::Reducible<int*>);
static_assert(!detail::Reducible<std::vector<bool>> && !detail::Reducible<std::vector<std::string>>);
static_assert(!detail::Reducible<std::map<int, bool>> && !detail::Reducible<std::pair<int, bool>> &&
              !detail::Reducible<std::tuple<int, std::string>>);
static_assert(!detail::Reducible<PerReplica<int>> && !detail::Reducible<Mirrored<int>> &&
              !detail::Reducible<MirroredVariable>);

// Nobody but a collective makes a Mirrored, and no value becomes PerReplica unasked.
static_assert(!std::is_constructible_v<Mirrored<int>, int>);
static_assert(!std::is_default_constructible_v<Mirrored<int>>);
static_assert(!std::is_convertible_v<int, PerReplica<int>>);
static_assert(!std::is_convertible_v<PerReplica<int>, Mirrored<int>>);

template <class T>
Mirrored<T> mirrored(T value) {
  return detail::MirroredAccess::make(std::move(value));
}

template <class T>
T with_leaves(T like, const std::vector<detail::Leaf>& leaves) {
  detail::set_leaves(like, leaves);
  return like;
}

template <class T>
T round_trip(const T& nest, std::size_t leaf_count) {
  const std::vector<detail::Leaf> leaves = detail::leaves_in(nest);
  CHECK(leaves.size() == leaf_count);
  return with_leaves(nest, leaves);
}

template <class T>
std::vector<T> flat_numbers(const auto& nest) {
  std::vector<T> numbers;
  for (const detail::Leaf& leaf : detail::leaves_in(nest))
    numbers.push_back(std::get<Tensor>(leaf).to_vector<T>().at(0));
  return numbers;
}

}  // namespace

TEST_CASE("locality is taken off leaf by leaf", "[B-20]") {
  using Nest = std::tuple<PerReplica<int>, std::vector<Mirrored<std::string>>,
                          std::map<char, std::pair<PerReplica<int>, double>>, std::optional<PerReplica<int>>,
                          std::optional<Mirrored<int>>>;
  const Nest nest{PerReplica<int>{1},
                  {mirrored<std::string>("a"), mirrored<std::string>("b")},
                  {{'x', {PerReplica<int>{2}, 0.5}}, {'y', {PerReplica<int>{3}, 1.5}}},
                  PerReplica<int>{4},
                  std::nullopt};
  const detail::local_t<Nest> local = detail::as<detail::local_t, Nest>(nest);
  CHECK(std::get<0>(local) == 1);
  CHECK(std::get<1>(local) == std::vector<std::string>{"a", "b"});
  CHECK(std::get<2>(local) == std::map<char, std::pair<int, double>>{{'x', {2, 0.5}}, {'y', {3, 1.5}}});
  CHECK(std::get<3>(local) == 4);
  CHECK_FALSE(std::get<4>(local).has_value());
}

TEST_CASE("plain leaves become PerReplica for a merge function, mirrored ones stay", "[B-17][B-33]") {
  using Nest = std::tuple<int, std::vector<std::string>, std::map<int, Mirrored<int>>, std::optional<int>,
                          std::optional<int>, std::pair<PerReplica<int>, Mirrored<int>>>;
  const detail::merged_t<Nest> merged = detail::as<detail::merged_t, Nest>(
      Nest{1, {"a", "b"}, {{7, mirrored(8)}}, 2, std::nullopt, {PerReplica<int>{3}, mirrored(4)}});
  CHECK(std::get<0>(merged).local() == 1);
  CHECK(std::get<1>(merged).at(1).local() == "b");
  CHECK(std::get<2>(merged).at(7).value() == 8);
  CHECK(std::get<3>(merged)->local() == 2);
  CHECK_FALSE(std::get<4>(merged).has_value());
  CHECK(std::get<5>(merged).first.local() == 3);
  CHECK(std::get<5>(merged).second.value() == 4);
}

TEST_CASE("a vector of bools is a nest like any other") {
  const auto merged = detail::as<detail::merged_t, std::vector<bool>>({true, false});
  CHECK(merged.at(0).local());
  CHECK_FALSE(merged.at(1).local());
  CHECK(detail::as<detail::local_t, std::vector<bool>>({true, false}) == std::vector<bool>{true, false});
}

TEST_CASE("arguments are copied or moved into a merge function's arguments, as their own types") {
  std::string text = "moved";
  const int number = 5;
  auto arguments = args(number, std::move(text), "literal");
  static_assert(same<decltype(arguments), detail::Args<int, std::string, const char*>>);
  CHECK(std::get<0>(arguments.values) == 5);
  CHECK(std::get<1>(arguments.values) == "moved");
  static_assert(same<decltype(args()), detail::Args<>>);
}

TEST_CASE("a nest goes to its leaves and back") {
  CHECK(round_trip(7, 1) == 7);
  CHECK(round_trip(-0.5f, 1) == -0.5f);
  CHECK(round_trip(std::int64_t{1} << 60, 1) == std::int64_t{1} << 60);
  CHECK(round_trip(-1LL, 1) == -1LL);
  CHECK(round_trip(std::uint8_t{200}, 1) == 200);
  CHECK(round_trip(std::vector<double>{1, 2, 3}, 3) == std::vector<double>{1, 2, 3});
  CHECK(round_trip(std::vector<double>{}, 0).empty());
  CHECK(round_trip(std::tuple<>{}, 0) == std::tuple<>{});
  const std::tuple all{1, 2.5, std::pair{3.f, std::vector<std::vector<int>>{{}, {4, 5}, {6}}},
                       std::map<std::string, int>{{"b", 7}, {"a", 8}}, std::tuple{std::int64_t{9}}};
  CHECK(round_trip(all, 9) == all);
}

TEST_CASE("leaves keep their type and order: sequences by position, maps by key") {
  CHECK(flat_numbers<std::int32_t>(std::map<std::string, int>{{"b", 2}, {"c", 3}, {"a", 1}}) ==
        std::vector<std::int32_t>{1, 2, 3});
  CHECK(flat_numbers<std::int32_t>(std::pair{1, std::tuple{2, std::vector<int>{3, 4}, 5}}) ==
        std::vector<std::int32_t>{1, 2, 3, 4, 5});
  const std::tuple all{1, 1L, 1LL, 1.f, 1., std::uint8_t{1}, Tensor::zeros(DType::bf16, {2, 3})};
  const std::vector<detail::Leaf> leaves = detail::leaves_in(all);
  std::vector<DType> types;
  for (const detail::Leaf& leaf : leaves) types.push_back(std::get<Tensor>(leaf).dtype());
  CHECK(types ==
        std::vector<DType>{DType::i32, DType::i64, DType::i64, DType::f32, DType::f64, DType::u8, DType::bf16});
  CHECK(std::get<Tensor>(leaves[0]).shape().empty());
  CHECK(std::get<Tensor>(leaves[6]).shape() == Shape{2, 3});
}

TEST_CASE("structs are walked member by member, and keep what is not named", "[B-28]") {
  const IndexedSlices slices{Tensor::zeros(DType::f32, {1, 2}), Tensor::zeros(DType::i64, {1}), {4, 2}};
  const Outer outer{{0.5f, {3, 4}, "kept"}, slices};
  const Outer made = round_trip(outer, 4);
  CHECK(made.inner.loss == 0.5f);
  CHECK(made.inner.hits == std::vector<std::int64_t>{3, 4});
  CHECK(made.inner.note == "kept");
  CHECK(made.slices.values.view().data() == slices.values.view().data());
}

TEST_CASE("a nest with other leaves takes its values from them, its structure from the likeness") {
  const std::map<std::string, std::pair<int, Tensor>> like{{"a", {0, Tensor{}}}, {"b", {0, Tensor{}}}};
  const Tensor t = Tensor::from({1.f, 2.f}, {2});
  const auto made = with_leaves(like, {Tensor::scalar(1), t, Tensor::scalar(2), t});
  CHECK(made.at("a").first == 1);
  CHECK(made.at("b").first == 2);
  CHECK(made.at("b").second.view().data() == t.view().data());  // the leaf itself, no copy
  for (const Tensor& no_int : {Tensor::scalar(1.5), Tensor::zeros(DType::i32, {2})})
    CHECK_THROWS_AS(with_leaves(1, {no_int}), InvalidArgument);
}
