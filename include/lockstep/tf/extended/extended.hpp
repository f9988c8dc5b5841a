// What tf.distribute calls `strategy.extended`: the methods of cross-replica context, and its answers about devices.
//
//   const double sum = context.merge_call(  // in replica context
//       [](Strategy& strategy, const PerReplica<double>& mine) {
//         return StrategyExtended{strategy}.reduce_to(ReduceOp::sum, mine);  // on every rank
//       },
//       args(my_part));
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>
#include <lockstep/sync/strategy/reduce_call.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

namespace detail {

/// True if a leaf of the nest T is PerReplica.
template <class T>
constexpr bool contains_per_replica() {
  if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (contains_per_replica<P>() || ...); });
  } else {
    return is_per_replica<T>;
  }
}

/// What `update` and `map` accept. A per-replica argument would let the replicas of a variable drift apart, so it does
/// not compile. Reduce it first.
template <class T>
concept SameOnEveryReplica = !contains_per_replica<std::remove_cvref_t<T>>();

/// A number, or a value of a type that no collective of StrategyExtended takes.
template <class T>
concept PlainHostValue = ReducibleNumber<T> || !(Reducible<T> || is_mirrored<T> || is_per_replica<T>);

/// What `map` returns.
template <class T>
class MapOutput {
 public:
  MapOutput(std::vector<T> values, std::int64_t items) : values_{std::move(values)}, items_{items} {}

  /// Of the items that this rank processed, in order.
  const std::vector<T>& values() const { return values_; }

  /// The number of items on all ranks together.
  std::int64_t items() const { return items_; }

 private:
  std::vector<T> values_;
  std::int64_t items_;
};

/// COLL. `first` points to this rank's `count` values. Writes the sum or mean of the `items` items of all ranks to the
/// first. InvalidArgument, before any communication, as StrategyExtended::reduce_to says.
LOCKSTEP_API void reduce_mapped(const ReduceCall& call, const Description& type, void* first, std::size_t count,
                                std::int64_t items);

template <class T>
struct Summand<PerReplica<MapOutput<T>>> {
  using type = T;
};

template <class T>
T reduced(const ReduceCall& call, const PerReplica<MapOutput<T>>& value) {
  std::vector<T> mine = value.local().values();
  if constexpr (ReducibleNumber<T>)
    if (mine.empty()) mine.push_back(0);
  reduce_mapped(call, description_of<T>(), mine.data(), mine.size(), value.local().items());
  return mine.front();
}

/// A function that `update` can call with a handle of type V and arguments of the types T, as local_t.
template <class Fn, class V, class... T>
concept UpdateFunctionFor = std::invocable<Fn, const V&, local_t<T>...>;

/// What `batch_reduce_to` takes: a range of std::pair<PerReplica<T>, V>, where V is a handle of any type and T is
/// Tensor, IndexedSlices, or std::variant<Tensor, IndexedSlices>.
template <class T>
concept ReduciblePairs =
    std::ranges::input_range<const T> && requires(const std::ranges::range_value_t<const T>& pair) {
      requires is_per_replica<std::remove_cvref_t<decltype(pair.first)>>;
      Leaf{pair.first.local()};
      static_cast<const Variable&>(pair.second);
    };

}  // namespace detail

/// A view of a strategy. It stays valid when the strategy is moved, and must not outlive it. Copies view the same one.
///
/// Unless its comment says otherwise, a method requires this strategy's cross-replica context or the default one:
/// elsewhere it throws ContextError, and for another strategy's variable InvalidArgument, before any communication.
///
/// Reductions and broadcasts are agreed: every rank throws MismatchError if operations, shapes or types differ, or if
/// one rank's tensors are on the host and another's on a GPU. The mean of integers and malformed slices (their parts do
/// not fit together, or an index is outside the rows) are an InvalidArgument before any communication. A method that
/// blocks returns when the ranks have agreed, with a result that is complete or, on a GPU, enqueued on
/// Strategy::stream().
class LOCKSTEP_API StrategyExtended {
 public:
  /// LOCAL, in any context.
  explicit StrategyExtended(Strategy& strategy) : address_{strategy} {}

  /// A destination: the only replica that gets the result.
  struct OneReplica {
    int id;
  };

  /// Reduces every leaf of `value` over the replicas; every rank gets the result. The type of `value` decides how:
  ///
  /// - A PerReplica<T>: COLL, blocking. The result is Mirrored<T>.
  /// - What `map` returns: COLL, blocking. Each rank first adds up the results of its own items, and a mean divides by
  ///   the number of items. InvalidArgument, before any communication, for slices, for items that differ in structure
  ///   or shape, for the mean of no items, and for fewer items than replicas unless they give numbers. The result is
  ///   Mirrored.
  /// - Any other: LOCAL. What happens depends on the type alone, so it is the same on every rank. The mean is the value
  ///   itself, not a copy, and of the same type. On one replica, the sum of a plain value is a copy, whose
  ///   tensors own their memory, on the same device. InvalidArgument for the sum of a Mirrored, and for the sum of a
  ///   plain value over several replicas: neither says what each replica contributes.
  template <detail::ReducibleValue T>
  auto reduce_to(ReduceOp op, const T& value, Here here = Here::current()) const {
    return on_all<T>(reduced(detail::ReduceCall{strategy(), "reduce_to", op, here}, value));
  }

  /// The same, to where `destination` lives. Every rank has a component of it, so every rank gets the result.
  template <detail::ReducibleValue T>
  auto reduce_to(ReduceOp op, const T& value, const Variable& destination, Here here = Here::current()) const {
    require_own(destination, "reduce_to", here);
    return on_all<T>(reduced(detail::ReduceCall{strategy(), "reduce_to", op, here, {}, beside(destination)}, value));
  }

  /// The same, to one replica; the others get nothing. InvalidArgument if there is no such replica.
  template <detail::ReducibleValue T>
  std::optional<detail::reduced_t<T>> reduce_to(ReduceOp op, const T& value, OneReplica destination,
                                                Here here = Here::current()) const {
    const bool here_it_is = is_here(destination, here);
    auto result = reduced(detail::ReduceCall{strategy(), "reduce_to", op, here, destination.id}, value);
    if (!here_it_is) return std::nullopt;
    return {std::move(result)};
  }

  /// COLL, blocking, one agreement for all. Reduces each value to where its variable lives. The results have the order
  /// of `pairs` and the type of its values. With std::variant<Tensor, IndexedSlices>, some values may be dense and
  /// others slices, but each must be the same kind on every rank; otherwise MismatchError. The values of a list in
  /// braces, `{{gradient, w}, …}`, are tensors.
  template <detail::ReduciblePairs Pairs = std::initializer_list<std::pair<PerReplica<Tensor>, Variable>>>
  auto batch_reduce_to(ReduceOp op, const Pairs& pairs, Here here = Here::current()) const {
    using Value = std::remove_cvref_t<decltype(std::ranges::begin(pairs)->first.local())>;
    detail::ReduceCall call{strategy(), "batch_reduce_to", op, here};
    std::vector<detail::Leaf> leaves;
    for (const auto& [value, destination] : pairs) {
      require_own(destination, call.name, here);
      leaves.emplace_back(value.local());
      call.destination += beside(destination);
    }
    call.reduce(leaves, {});
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

  /// COLL, blocking. Copies replica 0's value to every rank.
  template <detail::Reducible T>
  Mirrored<T> broadcast_to(const PerReplica<T>& value, Here here = Here::current()) const {
    T received = value.local();
    broadcast(received, here);
    return detail::MirroredAccess::make(std::move(received));
  }

  /// COLL, blocking. The same for a plain tensor, slices, or a nest: each rank's value is taken as its component.
  template <detail::Reducible T>
    requires(!detail::ReducibleNumber<T>)
  Mirrored<T> broadcast_to(const T& value, Here here = Here::current()) const {
    return broadcast_to(PerReplica<T>{value}, here);
  }

  /// LOCAL. Returns a Mirrored value unchanged.
  template <class T>
    requires detail::is_mirrored<T>
  T broadcast_to(const T& value, Here here = Here::current()) const {
    require_context("broadcast_to", here);
    return value;
  }

  /// A plain number does not say whether replica 0's value is meant or one that is the same on every rank already.
  template <detail::PlainHostValue T>
  void broadcast_to(const T&, Here = {}) const = delete;  // broadcast_object sends replica 0's, same_on_all compares

  /// LOCAL. Calls `fn(variable, …)` in update context, where an assignment writes to this rank's component:
  /// `update(w, fn, args(a, b))` calls `fn(w, a, b)`, with this rank's part of Mirrored arguments. `fn` gets the handle
  /// in its own type. Every rank must make the same update; per-replica arguments do not compile.
  template <std::derived_from<Variable> V, class Fn, detail::SameOnEveryReplica... T>
    requires detail::UpdateFunctionFor<Fn, V, T...>
  decltype(auto) update(const V& variable, Fn&& fn, detail::Args<T...> arguments = {},
                        Here here = Here::current()) const {
    require_own(variable, "update", here);
    const Scope updating = enter_update();
    return detail::invoke_as<detail::local_t, std::invoke_result_t<Fn, const V&, detail::local_t<T>...>>(
        std::forward<Fn>(fn), arguments, variable);
  }

  /// LOCAL. Calls `fn(…)` likewise, for state that belongs to the given variables but is not a variable itself.
  template <class Fn, detail::SameOnEveryReplica... T>
    requires std::invocable<Fn, detail::local_t<T>...>
  decltype(auto) update_non_slot(const detail::VariableList& variables, Fn&& fn, detail::Args<T...> arguments = {},
                                 Here here = Here::current()) const {
    require_context("update_non_slot", here);
    for (const Variable& variable : variables) require_own(variable, "update_non_slot", here);
    const Scope updating = enter_update();
    return detail::invoke_as<detail::local_t, std::invoke_result_t<Fn, detail::local_t<T>...>>(std::forward<Fn>(fn),
                                                                                               arguments);
  }

  /// LOCAL. Deals out `items`, which must be the same on every rank: replica r of N calls `fn(item, …)` for items
  /// r, r + N, r + 2 N, …, in cross-replica context. Arguments as for `update`. Nothing is sent. `reduce_to` takes the
  /// result; `local().values()` are the results of this rank.
  template <std::ranges::random_access_range Items, class Fn, detail::SameOnEveryReplica... T>
    requires(!std::is_void_v<
             detail::value_result_t<Fn&, std::ranges::range_reference_t<const Items>, detail::local_t<T>...>>)
  auto map(const Items& items, Fn&& fn, const detail::Args<T...>& arguments = {}, Here here = Here::current()) const {
    using Result = detail::value_result_t<Fn&, std::ranges::range_reference_t<const Items>, detail::local_t<T>...>;
    const Scope scope = enter("map", here);
    const auto count = std::ranges::ssize(items);
    std::vector<Result> results;
    for (auto i = static_cast<std::int64_t>(strategy().rank()); i < count; i += strategy().num_replicas_in_sync()) {
      detail::Args<T...> own = arguments;
      results.push_back(detail::invoke_as<detail::local_t, Result>(fn, own, std::ranges::begin(items)[i]));
    }
    return PerReplica{detail::MapOutput<Result>{std::move(results), count}};
  }

  /// LOCAL. No context needed. The strategy at its current address.
  Strategy& strategy() const { return address_.strategy(); }

  /// The variable's value as a host tensor; ContextError before the variable is initialized. For a mirrored variable
  /// LOCAL: a copy of this rank's component. For a sync-on-read variable COLL, as SyncOnReadVariable::read.
  Tensor read_var(const Variable& variable, Here here = Here::current()) const;

  /// The same for several variables, in their order: COLL if any is sync-on-read, with one agreement for all of those.
  std::vector<Tensor> read_vars(const detail::VariableList& variables, Here here = Here::current()) const;

  /// LOCAL, in any context of this strategy; ContextError elsewhere, also outside every scope. While the result lives,
  /// variables that this thread creates are on the devices of `variable`, and only in this strategy's contexts (else
  /// ContextError).
  [[nodiscard("the guard ends when this value goes: give it a name")]] auto colocate_vars_with(
      const Variable& variable, Here here = Here::current()) const {
    require_colocation(variable, here);
    return Colocation{variable};
  }

  /// LOCAL. No context needed. Whether this strategy created the variable.
  bool variable_created_in_scope(const Variable& variable) const;

  /// LOCAL. No context needed. For programs ported from tf.distribute: returns `value`. The container of a variable's
  /// component is the variable's handle itself; any other value is its own container.
  template <class T>
  T value_container(const T& value) const {
    return value;
  }

  /// LOCAL. No context needed. The device on which each replica computes and keeps its variables, by the name that it
  /// got at the start of the job: "/job:worker/task:1/device:GPU:0". Replicas of one task on the CPU have one device
  /// name. ContextError on the default strategy.
  std::vector<std::string> worker_devices() const;
  /// The same, as one list for each replica.
  std::vector<std::vector<std::string>> worker_devices_by_replica() const;
  /// Where variables live: on the same devices.
  std::vector<std::string> parameter_devices() const;

  /// LOCAL. No context needed. Where state that belongs to `variables` should live: on this rank's device. On the
  /// default strategy, on the device of the variable whose name sorts first; InvalidArgument if there are none.
  std::vector<std::string> non_slot_devices(const detail::VariableList& variables) const;

  /// LOCAL. No context needed. For programs ported from tf.distribute. True: every rank is a program of its own.
  bool between_graph() const { return true; }

  /// LOCAL. No context needed. For programs ported from tf.distribute. True: every rank initialises its component.
  bool should_init() const { return true; }

  /// LOCAL. No context needed. True on the chief, the only rank that writes checkpoints and summaries.
  bool should_checkpoint() const;
  bool should_save_summary() const;

 private:
  /// The guard that colocate_vars_with returns.
  class LOCKSTEP_API Colocation {
   public:
    explicit Colocation(const Variable& beside);
    Colocation(const Colocation&) = delete;  // a guard ends with its block
    Colocation& operator=(const Colocation&) = delete;
    ~Colocation();
  };
  void require_colocation(const Variable& variable, const Here& here) const;

  /// A result as `reduce_to` returns it: plain if the value was, else Mirrored.
  template <class T>
  static auto on_all(detail::reduced_t<T> result) {
    if constexpr (detail::is_mirrored<T> || detail::is_per_replica<T>) {
      return detail::MirroredAccess::make(std::move(result));
    } else {
      return result;
    }
  }

  /// Enters cross-replica context until the result is destroyed.
  Scope enter(std::string_view call, const Here& here) const;
  /// The same for update context.
  Scope enter_update() const;

  /// How a tag names a destination.
  static std::string beside(const Variable& destination);

  /// ContextError, which begins with the call, outside the strategy's cross-replica context and the default one.
  void require_context(std::string_view call, const Here& here) const;
  /// The same, and InvalidArgument for another strategy's variable.
  void require_own(const Variable& variable, std::string_view call, const Here& here) const;
  /// Whether this rank is the destination. ContextError as above; InvalidArgument if there is no such replica.
  bool is_here(OneReplica destination, const Here& here) const;
  void broadcast(detail::AnyValue nest, const Here& here) const;

  detail::StrategyAddress address_;
};

}  // namespace lockstep
