// What the types refuse: wrong programs that do not compile. Each is told from a right one that does.
#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

using namespace lockstep;

namespace {

template <class T>
concept Updates = requires(StrategyExtended& extended, const Variable& variable, T value) {
  extended.update(
      variable, [](const Variable&, const auto&) {}, args(value));
  extended.update_non_slot(
      {}, [](const auto&) {}, args(value));
};

template <class T>
concept MapsWith = requires(StrategyExtended& extended, const std::vector<int>& items, T value) {
  extended.map(
      items, [](int, const auto&) { return 1; }, args(value));
};

template <class T>
concept IsUpdated =
    requires(StrategyExtended& extended, T variable) { extended.update(variable, [](const Variable&) {}); };

template <class T>
concept ComparableOnAll = requires(Strategy& strategy, T value) { strategy.same_on_all(value); };

template <class Fn>
concept Merges = requires(ReplicaContext& context, Fn fn) { context.merge_call(fn, args(1)); };

template <class T>
concept Reduces = requires(Strategy& strategy, T value) { strategy.reduce(ReduceOp::sum, value); };

template <class T>
using Reduced = decltype(std::declval<StrategyExtended&>().reduce_to(ReduceOp::mean, std::declval<T>()));
template <class T>
using Broadcast = decltype(std::declval<StrategyExtended&>().broadcast_to(std::declval<T>()));

template <class T>
concept Broadcasts = requires(StrategyExtended& extended, T value) { extended.broadcast_to(value); };

template <class Fn>
concept Maps = requires(StrategyExtended& extended, std::vector<int> items, Fn fn) { extended.map(items, fn); };

template <class T>
concept BroadcastsObject = requires(Strategy& strategy, T value) { strategy.broadcast_object(value); };

template <class Op>
concept ReducesBy = requires(Strategy& strategy, Op op) {
  strategy.reduce(op, PerReplica<int>{1});
  StrategyExtended{strategy}.reduce_to(op, PerReplica<int>{1});
};

template <class Destination>
concept ReducesTo = requires(StrategyExtended& extended, Destination destination) {
  extended.reduce_to(ReduceOp::sum, PerReplica<int>{1}, destination);
};

template <class Pairs>
concept ReducesBatch =
    requires(StrategyExtended& extended, Pairs pairs) { extended.batch_reduce_to(ReduceOp::sum, pairs); };

template <class T>
concept InitialValue = requires(Strategy& strategy, T (*initial)()) { strategy.create_variable({}, initial); };

template <class T>
concept IsIndexed = requires(T value) { value[0]; };

}  // namespace

TEST_CASE("an argument that may differ by rank does not compile in update", "[H-3][K-15]") {
  STATIC_REQUIRE(Updates<int>);
  STATIC_REQUIRE(Updates<Mirrored<Tensor>>);
  STATIC_REQUIRE(Updates<std::vector<Mirrored<int>>>);
  STATIC_REQUIRE_FALSE(Updates<PerReplica<int>>);
  STATIC_REQUIRE_FALSE(Updates<std::vector<PerReplica<int>>>);
  STATIC_REQUIRE_FALSE(Updates<std::map<int, std::optional<PerReplica<int>>>>);
}

TEST_CASE("nor does it in map", "[H-14][K-15]") {
  STATIC_REQUIRE(MapsWith<int>);
  STATIC_REQUIRE(MapsWith<Mirrored<Tensor>>);
  STATIC_REQUIRE_FALSE(MapsWith<PerReplica<int>>);
  STATIC_REQUIRE_FALSE(MapsWith<std::vector<PerReplica<int>>>);
}

TEST_CASE("what maps an item has a result, and what runs may return a reference to its own") {
  using ToNumber = int (*)(int);
  using ToNothing = void (*)(int);
  STATIC_REQUIRE(Maps<ToNumber>);
  STATIC_REQUIRE_FALSE(Maps<ToNothing>);
  using OfValue = int (*)(int&&);  // of an item that its range makes
  STATIC_REQUIRE(
      std::same_as<decltype(std::declval<StrategyExtended&>().map(std::views::iota(0, 3), std::declval<OfValue>())),
                   PerReplica<detail::MapOutput<int>>>);
  using ToReference = const Tensor& (*)(ReplicaContext&);
  STATIC_REQUIRE(
      std::same_as<decltype(std::declval<Strategy&>().run(std::declval<ToReference>())), PerReplica<Tensor>>);
}

TEST_CASE("only variables are updated", "[H-1]") {
  STATIC_REQUIRE(IsUpdated<MirroredVariable>);
  STATIC_REQUIRE(IsUpdated<SyncOnReadVariable>);
  STATIC_REQUIRE_FALSE(IsUpdated<Tensor>);
  STATIC_REQUIRE_FALSE(IsUpdated<Mirrored<Tensor>>);
}

TEST_CASE("nobody but a collective makes a Mirrored of a PerReplica, and nothing asks for another rank's component",
          "[C-34][K-15]") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<PerReplica<int>, Mirrored<int>>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<Mirrored<int>, int>);
  STATIC_REQUIRE_FALSE(IsIndexed<PerReplica<std::vector<int>>>);
  STATIC_REQUIRE_FALSE(IsIndexed<MirroredVariable>);
}

TEST_CASE("a pointer is no value to compare between processes") {
  STATIC_REQUIRE(ComparableOnAll<int>);
  STATIC_REQUIRE(ComparableOnAll<std::string>);
  STATIC_REQUIRE(ComparableOnAll<std::optional<double>>);
  STATIC_REQUIRE(ComparableOnAll<std::map<std::pair<int, double>, std::vector<std::string>>>);
  STATIC_REQUIRE_FALSE(ComparableOnAll<int*>);
  STATIC_REQUIRE_FALSE(ComparableOnAll<const char*>);
  STATIC_REQUIRE_FALSE(ComparableOnAll<std::optional<int*>>);
  STATIC_REQUIRE_FALSE(ComparableOnAll<std::map<int, std::vector<int*>>>);
  STATIC_REQUIRE_FALSE(ComparableOnAll<std::tuple<int, const void*>>);
  STATIC_REQUIRE_FALSE(Reduces<PerReplica<std::map<const char*, int>>>);
}

TEST_CASE("a merge function takes the strategy, and its arguments as what they are after merging", "[K-15]") {
  STATIC_REQUIRE(Merges<void (*)(Strategy&, PerReplica<int>)>);
  STATIC_REQUIRE_FALSE(Merges<void (*)(Strategy&, int)>);
  STATIC_REQUIRE_FALSE(Merges<void (*)(Strategy&)>);
}

TEST_CASE("what is reduced says so in its type, and so does how and where to", "[A-59][E-8]") {
  STATIC_REQUIRE(Reduces<PerReplica<int>>);
  STATIC_REQUIRE(Reduces<int>);
  STATIC_REQUIRE(Reduces<Mirrored<int>>);
  STATIC_REQUIRE_FALSE(Reduces<PerReplica<bool>>);
  STATIC_REQUIRE_FALSE(Reduces<bool>);
  STATIC_REQUIRE_FALSE(Reduces<std::string>);
  STATIC_REQUIRE_FALSE(Reduces<MirroredVariable>);
  STATIC_REQUIRE_FALSE(Reduces<std::vector<PerReplica<int>>>);
  STATIC_REQUIRE(ReducesBy<ReduceOp>);
  STATIC_REQUIRE_FALSE(ReducesBy<Variable::Aggregation>);
  STATIC_REQUIRE_FALSE(ReducesBy<int>);
  STATIC_REQUIRE(ReducesTo<StrategyExtended::OneReplica>);
  STATIC_REQUIRE(ReducesTo<MirroredVariable>);
  STATIC_REQUIRE_FALSE(ReducesTo<int>);
  STATIC_REQUIRE_FALSE(ReducesTo<std::string>);
  STATIC_REQUIRE_FALSE(ReducesTo<std::vector<Variable>>);
}

TEST_CASE("what a reduction or broadcast proves the same on every rank is Mirrored, and nothing else is",
          "[E-1][E-3][E-5][E-29]") {
  STATIC_REQUIRE(std::is_same_v<Reduced<PerReplica<int>>, Mirrored<int>>);
  STATIC_REQUIRE(std::is_same_v<Reduced<Mirrored<int>>, Mirrored<int>>);
  STATIC_REQUIRE(std::is_same_v<Reduced<int>, int>);
  STATIC_REQUIRE(std::is_same_v<Reduced<std::vector<Tensor>>, std::vector<Tensor>>);
  STATIC_REQUIRE(std::is_same_v<Broadcast<PerReplica<int>>, Mirrored<int>>);
  STATIC_REQUIRE(std::is_same_v<Broadcast<Mirrored<std::string>>, Mirrored<std::string>>);
  STATIC_REQUIRE(std::is_same_v<Broadcast<Tensor>, Mirrored<Tensor>>);
  STATIC_REQUIRE(std::is_same_v<Broadcast<IndexedSlices>, Mirrored<IndexedSlices>>);
  STATIC_REQUIRE(std::is_same_v<Broadcast<std::vector<int>>, Mirrored<std::vector<int>>>);
}

TEST_CASE("a plain number is not broadcast as if it were the same on every rank", "[E-29]") {
  STATIC_REQUIRE(Broadcasts<PerReplica<int>>);
  STATIC_REQUIRE(Broadcasts<Tensor>);
  STATIC_REQUIRE_FALSE(Broadcasts<int>);
  STATIC_REQUIRE_FALSE(Broadcasts<double>);
  STATIC_REQUIRE_FALSE(Broadcasts<std::size_t>);
  STATIC_REQUIRE_FALSE(Broadcasts<std::string>);
}

TEST_CASE("what is sent as an object means the same in another process") {
  struct Plain {
    int number;
    char letter;
  };
  STATIC_REQUIRE(BroadcastsObject<int>);
  STATIC_REQUIRE(BroadcastsObject<std::size_t>);
  STATIC_REQUIRE(BroadcastsObject<Plain>);
  STATIC_REQUIRE(BroadcastsObject<const char*>);  // a text, as std::string_view
  STATIC_REQUIRE(BroadcastsObject<std::string_view>);
  STATIC_REQUIRE(BroadcastsObject<std::map<std::string, std::vector<std::optional<Plain>>>>);
  STATIC_REQUIRE(BroadcastsObject<std::string (*)()>);  // what replica 0 calls
  STATIC_REQUIRE_FALSE(BroadcastsObject<int*>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<std::array<int*, 2>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<std::optional<int*>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<std::tuple<int, const void*>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<std::vector<std::string_view>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<std::span<int>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<PerReplica<int>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<Mirrored<int>>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<Tensor>);
  STATIC_REQUIRE_FALSE(BroadcastsObject<MirroredVariable>);
}

TEST_CASE("a batch is a sequence of pairs of a value and its destination", "[E-27]") {
  using Pair = std::pair<PerReplica<Tensor>, Variable>;
  STATIC_REQUIRE(ReducesBatch<std::vector<Pair>>);
  STATIC_REQUIRE(ReducesBatch<std::span<const Pair>>);
  STATIC_REQUIRE(ReducesBatch<std::vector<std::pair<PerReplica<Tensor>, MirroredVariable>>>);
  STATIC_REQUIRE(ReducesBatch<std::vector<std::pair<PerReplica<IndexedSlices>, Variable>>>);
  STATIC_REQUIRE(ReducesBatch<std::vector<std::pair<PerReplica<std::variant<Tensor, IndexedSlices>>, Variable>>>);
  STATIC_REQUIRE_FALSE(ReducesBatch<std::vector<std::pair<PerReplica<std::string>, Variable>>>);
  STATIC_REQUIRE_FALSE(ReducesBatch<std::vector<std::pair<Mirrored<Tensor>, Variable>>>);
  STATIC_REQUIRE_FALSE(ReducesBatch<Pair>);
  STATIC_REQUIRE_FALSE(ReducesBatch<std::vector<PerReplica<Tensor>>>);
  STATIC_REQUIRE_FALSE(ReducesBatch<std::vector<std::tuple<PerReplica<Tensor>, Variable, Variable>>>);
}

TEST_CASE("a variable begins with a tensor, never with another variable", "[C-12]") {
  STATIC_REQUIRE(InitialValue<Tensor>);
  STATIC_REQUIRE_FALSE(InitialValue<MirroredVariable>);
  STATIC_REQUIRE_FALSE(InitialValue<SyncOnReadVariable>);
}

TEST_CASE("a strategy is moved, never copied", "[A-45]") {
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<Strategy>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<Strategy>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<Strategy>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<ReplicaContext>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<Scope>);
}
