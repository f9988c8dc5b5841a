// The methods of cross-replica context: reductions, broadcasts and updates.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/control/tag.hpp>
#include <lockstep/strategy/colocation.hpp>
#include <lockstep/strategy/context.hpp>
#include <lockstep/strategy/distributed_input.hpp>
#include <lockstep/strategy/named_values.hpp>
#include <lockstep/strategy/signature.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/map_output.hpp>
#include <lockstep/values/nest.hpp>

namespace lockstep {

class MultiStepContext;
class Strategy;

/// What `update` calls with a handle of the type V and arguments of the types T: each as this rank has it (local_t).
template <class Fn, class V, class... T>
concept UpdateFunctionFor = std::invocable<Fn, const V&, local_t<T>...>;

/// The same for `update_non_slot`, which has no variable to hand on.
template <class Fn, class... T>
concept NonSlotFunctionFor = std::invocable<Fn, local_t<T>...>;

/// What `map` calls with an item of Items and arguments of the types T. It has a result.
template <class Fn, class Items, class... T>
concept MapFunctionFor = std::invocable<Fn&, std::ranges::range_reference_t<const Items>, local_t<T>...> &&
    !std::is_void_v<detail::result_t<Fn&, std::ranges::range_reference_t<const Items>, local_t<T>...>>;

namespace detail {

template <class T>
inline constexpr bool is_reducible_pair = false;
template <class T, std::derived_from<Variable> V>
inline constexpr bool is_reducible_pair<std::pair<PerReplica<T>, V>> =
    std::same_as<T, Tensor> || std::same_as<T, IndexedSlices> || std::same_as<T, Leaf>;

}  // namespace detail

/// What `batch_reduce_to` takes: std::pair<PerReplica<T>, V> in order, where V is a handle of any type and T is Tensor,
/// IndexedSlices, or std::variant<Tensor, IndexedSlices>.
template <class T>
concept ReduciblePairs =
    std::ranges::input_range<const T> && detail::is_reducible_pair<std::ranges::range_value_t<const T>>;

/// What a loop of steps calls: `fn(context, input)`, with the PerReplica that the input gives.
template <class Fn, class Input>
concept StepFunction = std::invocable<Fn&, MultiStepContext&, step_input_t<Input>>;

/// What a loop of steps returns (StrategyExtended::run_steps_on_iterator).
struct StepsResult {
  std::int64_t steps_run = 0;     ///< fewer than asked for where the input came to its end
  NamedValues last_step_outputs;  ///< Mirrored<T> where they were reduced over the replicas, as they were set where not
  NamedValues non_tensor_outputs;
};

/// A destination: the replica that alone gets the result.
struct OneReplica {
  int id;
};

/// Every method requires this strategy's cross-replica context, or the default one; ContextError otherwise, before any
/// communication. Reductions are agreed: MismatchError on every rank when operations, shapes or types differ, or one
/// rank's tensors are on the host and another's on a GPU.
class StrategyExtended {
 public:
  StrategyExtended(const StrategyExtended&) = delete;
  StrategyExtended& operator=(const StrategyExtended&) = delete;

  /// COLL, blocking. Every leaf reduced over the replicas, on every rank.
  template <Reducible T>
  Mirrored<T> reduce_to(ReduceOp op, const PerReplica<T>& value, Here here = Here::current()) {
    return detail::MirroredAccess::make(
        combine(value, [&](Leaves& leaves) { all_reduce(op, leaves, structure(value), here); }));
  }

  /// COLL, blocking. The same, to wherever `destination` lives: every rank has a component of it.
  template <Reducible T>
  Mirrored<T> reduce_to(ReduceOp op, const PerReplica<T>& value, const Variable& destination,
                        Here here = Here::current()) {
    require_own(destination);
    return detail::MirroredAccess::make(
        combine(value, [&](Leaves& leaves) { all_reduce(op, leaves, structure(value) + beside(destination), here); }));
  }

  /// COLL, blocking. The result on one replica, nothing on the others. InvalidArgument if there is no such replica.
  template <Reducible T>
  std::optional<T> reduce_to(ReduceOp op, const PerReplica<T>& value, OneReplica destination,
                             Here here = Here::current()) {
    bool here_it_is = false;
    T result = combine(
        value, [&](Leaves& leaves) { here_it_is = reduce_to_one(op, leaves, destination, structure(value), here); });
    return here_it_is ? std::optional<T>{std::move(result)} : std::nullopt;
  }

  /// LOCAL, by the type alone, so every rank does the same. Of what is no PerReplica the mean is the value itself, not
  /// a copy, and what is plain stays so. InvalidArgument for the sum of a Mirrored, and of a plain value over several
  /// replicas: neither says what each replica adds. On one replica that sum is the value.
  template <NotPerReplica T>
  T reduce_to(ReduceOp op, const T& value, Here = Here::current()) {
    require_value_itself(op, is_mirrored<T> ? Kind::mirrored : Kind::plain);
    return value;
  }

  /// LOCAL. The same, to wherever `destination` lives.
  template <NotPerReplica T>
  T reduce_to(ReduceOp op, const T& value, const Variable& destination, Here = Here::current()) {
    require_own(destination);
    return reduce_to(op, value);
  }

  /// LOCAL. The same, on one replica, and nothing on the others.
  template <NotPerReplica T>
  std::optional<local_t<T>> reduce_to(ReduceOp op, const T& value, OneReplica destination, Here = Here::current()) {
    const bool here_it_is = is_here(destination);
    T result = reduce_to(op, value);
    return here_it_is ? std::optional{Locality<T>::to_local(std::move(result))} : std::nullopt;
  }

  /// COLL, blocking. What a `map` gave for all items, reduced leaf by leaf: each rank adds up its own first, and a mean
  /// divides by the number of items. InvalidArgument, before any communication, for slices, for items that differ in
  /// shape, for the mean of no items, and for fewer items than replicas where T is more than a number.
  template <Reducible T>
  Mirrored<T> reduce_to(ReduceOp op, const PerReplica<MapOutput<T>>& value, Here here = Here::current()) {
    return detail::MirroredAccess::make(combine_mapped(op, value, std::nullopt, {}, here));
  }

  /// COLL, blocking. The same, to wherever `destination` lives.
  template <Reducible T>
  Mirrored<T> reduce_to(ReduceOp op, const PerReplica<MapOutput<T>>& value, const Variable& destination,
                        Here here = Here::current()) {
    require_own(destination);
    return detail::MirroredAccess::make(combine_mapped(op, value, std::nullopt, beside(destination), here));
  }

  /// COLL, blocking. The same, on one replica, and nothing on the others.
  template <Reducible T>
  std::optional<T> reduce_to(ReduceOp op, const PerReplica<MapOutput<T>>& value, OneReplica destination,
                             Here here = Here::current()) {
    const bool here_it_is = is_here(destination);
    T result = combine_mapped(op, value, destination, {}, here);
    return here_it_is ? std::optional<T>{std::move(result)} : std::nullopt;
  }

  /// COLL, blocking, one agreement for all. Each value reduced to wherever its variable lives; the results are in the
  /// order of `pairs` and of the type of its values. That may be std::variant<Tensor, IndexedSlices>: then some are
  /// dense and some are slices, but each is the same on every rank; MismatchError otherwise. In braces,
  /// `{{gradient, w}, …}`, the values are tensors.
  template <ReduciblePairs Pairs = std::initializer_list<std::pair<PerReplica<Tensor>, Variable>>>
  auto batch_reduce_to(ReduceOp op, const Pairs& pairs, Here here = Here::current()) {
    using Value = std::remove_cvref_t<decltype(std::ranges::begin(pairs)->first.local())>;
    Leaves leaves;
    std::vector<Variable> destinations;
    for (const auto& [value, destination] : pairs) {
      leaves.emplace_back(value.local());
      destinations.push_back(destination);
    }
    batch_all_reduce(op, leaves, destinations, here);
    std::vector<Mirrored<Value>> results;
    for (const detail::Leaf& leaf : leaves) {
      if constexpr (std::same_as<Value, detail::Leaf>) {
        results.push_back(detail::MirroredAccess::make(leaf));
      } else {
        results.push_back(detail::MirroredAccess::make(std::get<Value>(leaf)));
      }
    }
    return results;
  }

  /// COLL, blocking. Replica 0's value on every rank.
  template <Reducible T>
  Mirrored<T> broadcast_to(const PerReplica<T>& value, Here here = Here::current()) {
    return detail::MirroredAccess::make(
        combine(value, [&](Leaves& leaves) { broadcast(leaves, structure(value), here); }));
  }

  /// COLL, blocking. The same of a plain tensor, slices, or a nest: each rank's is taken for its component.
  template <Reducible T>
  requires(!ReducibleNumber<T>) Mirrored<T> broadcast_to(const T& value, Here here = Here::current()) {
    return broadcast_to(PerReplica<T>{value}, here);
  }

  /// LOCAL. What is mirrored already, and a plain number, which stays plain: itself.
  template <class T>
  requires(ReducibleNumber<T> || is_mirrored<T>) T broadcast_to(const T& value, Here = Here::current()) {
    require_context();
    return value;
  }

  /// LOCAL. Calls `fn(variable, …)` on this rank's component, in update context: there an assignment goes straight to
  /// the component. `fn` gets the handle as it is given, so a MirroredVariable as one. Every rank must make the same
  /// update; arguments that may differ by rank do not compile.
  template <std::derived_from<Variable> V, class Fn, SameOnEveryReplica... T>
  requires UpdateFunctionFor<Fn, V, T...>
  auto update(const V& variable, Fn&& fn, const T&... arguments) -> detail::result_t<Fn, const V&, local_t<T>...> {
    require_own(variable);
    const Update update{*strategy_};
    return std::invoke(std::forward<Fn>(fn), variable, Locality<T>::to_local(arguments)...);
  }

  /// LOCAL. Calls `fn(…)` in update context, for state that is no variable itself but belongs to the ones given.
  template <class Fn, SameOnEveryReplica... T>
  requires NonSlotFunctionFor<Fn, T...>
  auto update_non_slot(const VariableList&, Fn&& fn, const T&... arguments) -> detail::result_t<Fn, local_t<T>...> {
    const Update update{*strategy_};
    return std::invoke(std::forward<Fn>(fn), Locality<T>::to_local(arguments)...);
  }

  /// LOCAL. Deals `items`, which are the same on every rank, to the replicas: calls `fn(item, …)` here for items r, r +
  /// N, r + 2 N, … of replica r of N, with this rank's component of Mirrored arguments. Nothing is sent.
  template <std::ranges::random_access_range Items, class Fn, SameOnEveryReplica... T>
  requires MapFunctionFor<Fn, Items, T...>
  auto map(const Items& items, Fn&& fn, const T&... arguments) {
    using Result = detail::value_result_t<Fn&, std::ranges::range_reference_t<const Items>, local_t<T>...>;
    const Scope scope = enter();
    const auto count = std::ranges::ssize(items);
    std::vector<Result> results;
    for (auto i = static_cast<std::int64_t>(replica()); i < count; i += replicas())
      results.push_back(std::invoke(fn, std::ranges::begin(items)[i], Locality<T>::to_local(arguments)...));
    return PerReplica{MapOutput<Result>{std::move(results), count}};
  }

  /// COLL. Calls `fn(context, input)` up to `steps` times, one after the other, in this strategy's scope: in
  /// cross-replica context, so `fn` calls Strategy::run itself. Each call has the next input of `input`. All ranks
  /// leave the loop at the same step, which is an earlier one where the input ends: then `steps_run` is smaller than
  /// `steps`.
  ///
  /// `initial` are outputs for as long as no step sets them. The number of steps is agreed on once, at the start:
  /// MismatchError where it differs, InvalidArgument where it is negative. An exception that leaves `fn` on one rank
  /// goes on there and is a PeerError on the others.
  template <DistributedInput Input, StepFunction<Input> Fn>
  StepsResult run_steps_on_iterator(Fn&& fn, Input& input, std::int64_t steps = 1, NamedValues initial = {},
                                    Here here = Here::current());

  /// COLL, one agreement, for library code that hands out input. Calls `offer` on this rank, in this strategy's scope;
  /// true on every rank if one of them has any. MismatchError where they offer other things; an exception that leaves
  /// `offer` on one rank goes on there and is a PeerError on the others.
  bool agree_on_input(const std::function<InputOffer()>& offer, Here here = Here::current());

  /// The strategy whose methods these are. This object stays where it is when that is moved.
  Strategy& strategy() const { return *strategy_; }

  /// The variable's value, as a tensor of the host. Of a mirrored variable LOCAL: a copy of this rank's component. Of a
  /// sync-on-read variable COLL, as SyncOnReadVariable::read.
  Tensor read_var(const Variable& variable, Here here = Here::current());

  /// The same of several variables, with one agreement for all that are sync-on-read: COLL if any of them is.
  std::vector<Tensor> read_vars(const VariableList& variables, Here here = Here::current());

  /// LOCAL, in any context of this strategy; ContextError in others, also outside of every scope. While the result
  /// lives, variables are created in contexts of this strategy alone, and live on the devices of `variable`.
  /// InvalidArgument for a variable of another strategy.
  [[nodiscard("the guard ends when this value goes: give it a name")]] Colocation colocate_vars_with(
      const Variable& variable) const;

  /// LOCAL. No context needed.
  bool variable_created_in_scope(const Variable& variable) const;

  /// LOCAL. No context needed. What `value` is a component of. A variable is one handle, on the whole and on this
  /// rank's component, and every other value stands for itself: always `value`.
  template <class T>
  T value_container(const T& value) const {
    return value;
  }

  /// LOCAL. No context needed. Which device each replica computes on and has its variables on, by the names that the
  /// job gave them at its start: "/job:worker/task:1/device:GPU:0". The replicas of a task share the name of their CPU.
  /// ContextError on the default strategy.
  std::vector<std::string> worker_devices() const;
  std::vector<std::vector<std::string>> worker_devices_by_replica() const;
  std::vector<std::string> parameter_devices() const;

  /// LOCAL. No context needed. Where state that belongs to `variables` is to live: on this rank's device. On the
  /// default strategy it is that of the variable with the smallest name; InvalidArgument if there is none.
  std::vector<std::string> non_slot_devices(const VariableList& variables) const;

  /// LOCAL. True: every rank is a program of its own.
  bool between_graph() const { return true; }

  /// LOCAL. True: every rank initialises its own component of a variable, with replica 0's value.
  bool should_init() const { return true; }

  /// LOCAL. True on the chief: the one rank that writes checkpoints and summaries.
  bool should_checkpoint() const;
  bool should_save_summary() const;

 private:
  friend class Strategy;
  explicit StrategyExtended(Strategy& strategy) : strategy_{&strategy} {}

  /// Update context, for as long as it lives.
  class Update {
   public:
    explicit Update(Strategy& strategy);
    Update(const Update&) = delete;
    ~Update();
  };

  using Leaves = std::vector<detail::Leaf>;

  /// Cross-replica context, for as long as the result lives.
  Scope enter() const;
  int replica() const;
  int replicas() const;

  template <Reducible T>
  static std::string structure(const PerReplica<T>& value) {
    return detail::structure_of(value.local());
  }

  /// Takes `value` apart, lets `collective` replace its leaves, and puts it together again.
  template <Reducible T, class Collective>
  T combine(const PerReplica<T>& value, Collective&& collective) {
    Leaves leaves = detail::leaves_of(value.local());
    collective(leaves);
    return detail::with_leaves(value.local(), leaves);
  }

  /// Adds up this rank's items, and the ranks' sums: on one replica, or on all where `destination` is none.
  template <Reducible T>
  T combine_mapped(ReduceOp op, const PerReplica<MapOutput<T>>& value, std::optional<OneReplica> destination,
                   std::string_view more, const Here& here) {
    const MapOutput<T>& mapped = value.local();
    std::vector<T> mine = mapped.values();
    if constexpr (ReducibleNumber<T>) {
      if (mine.empty()) mine.push_back(T{0});
    } else {
      require_item_each(mapped.items());
    }
    std::vector<Leaves> of_items;
    for (const T& each : mine) of_items.push_back(detail::leaves_of(each));
    const std::string text = detail::structure_of(mine.front()).append(more);
    const Leaves sums = reduce_mapped(op, of_items, mapped.items(), destination, text, here);
    return detail::with_leaves(mine.front(), sums);
  }

  /// What a tag says of a destination.
  static std::string beside(const Variable& destination);

  enum class Kind { mirrored, plain };

  /// ContextError outside of cross-replica context.
  void require_context() const;
  /// And InvalidArgument for another strategy's variable.
  void require_own(const Variable& variable) const;
  void require_value_itself(ReduceOp op, Kind kind) const;
  /// Whether this is the replica. ContextError as above, InvalidArgument if there is no such replica.
  bool is_here(OneReplica destination) const;
  void all_reduce(ReduceOp op, Leaves& leaves, std::string_view more, const Here& here);
  void batch_all_reduce(ReduceOp op, Leaves& leaves, std::span<const Variable> destinations, const Here& here);
  bool reduce_to_one(ReduceOp op, Leaves& leaves, OneReplica destination, std::string_view more, const Here& here);
  void broadcast(Leaves& leaves, std::string_view more, const Here& here);
  void require_item_each(std::int64_t items) const;
  Leaves reduce_mapped(ReduceOp op, std::span<const Leaves> of_items, std::int64_t items,
                       std::optional<OneReplica> destination, std::string_view more, const Here& here);

  /// Calls `step` until it returns false, `steps` times at most. How often it returned true.
  std::int64_t run_steps(std::int64_t steps, const std::function<bool()>& step, const Here& here);

  Strategy* strategy_;  ///< follows the strategy when that is moved
};

}  // namespace lockstep
