// The programming model across processes. Inputs differ on every rank; sums are exact in every type.
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Tensor of(std::initializer_list<float> values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> times(float factor, std::vector<float> values) {
  for (float& value : values) value *= factor;
  return values;
}

/// `depth` runs in one another, each with as many merge_calls as it is from the innermost; every one of them reduces.
int sum_of_nested(Strategy& strategy, int depth) {
  if (depth == 0) return 0;
  const auto sums = strategy.run([&](ReplicaContext& context) {
    int sum = 0;
    for (int i = 0; i < depth; ++i)
      sum += context.merge_call(
          [&](Strategy& merged, const PerReplica<int>& value) {
            const int inner = sum_of_nested(merged, depth - 1);
            return merged.reduce(ReduceOp::sum, value) + inner;
          },
          args(rank() + 1));
    return sum;
  });
  return sums.local();
}

}  // namespace

TEST_CASE("each replica knows its id and how many there are", "[A-41][A-66][B-10][H-16]") {
  const PerReplica<int> id = runtime().strategy().run([](ReplicaContext& context) {
    CHECK(context.num_replicas_in_sync() == ranks());
    return context.replica_id_in_sync_group();
  });
  CHECK(id.local() == rank());
  CHECK(runtime().strategy().local_results(id) == std::vector<int>{rank()});
}

TEST_CASE("run hands each replica its own component and keeps the result's type", "[A-35][A-36][A-37][A-58][B-2]") {
  Strategy& strategy = runtime().strategy();
  const PerReplica<int> mine{rank() + 1};
  const Mirrored<double> alike = strategy.same_on_all(2.5);
  int calls = 0;
  const auto result = strategy.run(
      [&](ReplicaContext& context, int component, double same, const std::string& plain) {
        ++calls;
        CHECK(&Strategy::current() == &strategy);
        CHECK(ReplicaContext::current() == &context);
        CHECK(&context.strategy() == &strategy);
        return std::pair{component * same, plain};
      },
      args(mine, alike, std::string{"text"}));
  CHECK(calls == 1);
  CHECK(result.local() == std::pair{(rank() + 1) * 2.5, std::string{"text"}});
  CHECK_FALSE(Strategy::has_current());
  strategy.run([](ReplicaContext&) {});
}

TEST_CASE("merge_call runs its function on every rank, in cross-replica context", "[A-76][B-14][B-15]") {
  Strategy& strategy = runtime().strategy();
  const auto sum = strategy.run([&](ReplicaContext& context) {
    CHECK(ReplicaContext::current() == &context);
    const int result = context.merge_call(
        [&](Strategy& merged, const PerReplica<int>& value) {
          CHECK(&merged == &strategy);
          CHECK(Strategy::in_cross_replica_context());
          CHECK(ReplicaContext::current() == nullptr);
          CHECK(value.local() == rank() + 1);
          return StrategyExtended{merged}.reduce_to(ReduceOp::sum, value);
        },
        args(rank() + 1));
    CHECK(ReplicaContext::current() == &context);
    return result;
  });
  CHECK(sum.local() == triangle());
}

TEST_CASE("merge_call keeps the locality of its arguments, in nests too", "[B-17][B-30][B-31]") {
  Strategy& strategy = runtime().strategy();
  const MirroredVariable variable = strategy.create_variable({.name = "kept"}, [] { return of({1}); });
  strategy.run([&](ReplicaContext& context) {
    const Mirrored<int> mirrored = strategy.same_on_all(7);
    context.merge_call(
        [](Strategy&, Mirrored<int> m, MirroredVariable v, std::vector<PerReplica<int>> list,
           std::map<std::string, PerReplica<float>> map, std::tuple<PerReplica<int>, Mirrored<int>> pair) {
          CHECK(m.value() == 7);
          CHECK(v.name() == "kept");
          CHECK(list.at(1).local() == 10 + rank());
          CHECK(map.at("a").local() == 0.5f);
          CHECK(std::get<1>(pair).value() == 7);
        },
        args(mirrored, variable, std::vector<int>{1, 10 + rank()}, std::map<std::string, float>{{"a", 0.5f}},
             std::tuple{1, mirrored}));
  });
}

TEST_CASE("any number of merge_calls, also in runs inside merge functions", "[B-21][B-22]") {
  Strategy& strategy = runtime().strategy();
  strategy.run([&](ReplicaContext& context) {
    for (int i = 1; i <= 3; ++i) {
      const int nested = context.merge_call([&](Strategy& merged) {
        return merged.run([&](ReplicaContext& inner) {
          return inner.merge_call(
              [](Strategy& innermost, const PerReplica<int>& value) {
                return StrategyExtended{innermost}.reduce_to(ReduceOp::sum, value);
              },
              args(i * (rank() + 1)));
        });
      });
      CHECK(nested == i * triangle());
    }
  });
}

TEST_CASE("runs and merge functions go on in one another", "[B-21][B-22]") {
  CHECK(sum_of_nested(runtime().strategy(), 3) == 3 * (1 + 2 * (1 + 1)) * triangle());
}

TEST_CASE("what a merge function returns is unwrapped leaf by leaf, on each rank to its own component",
          "[B-14][B-20]") {
  runtime().strategy().run([](ReplicaContext& context) {
    const std::tuple<int, int, std::string, std::map<std::string, int>> result = context.merge_call(
        [](Strategy& strategy, const PerReplica<int>& value) {
          return std::tuple{value, StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value), std::string{"plain"},
                            std::map<std::string, PerReplica<int>>{{"own", value}}};
        },
        args(rank() + 1));
    CHECK(result ==
          std::tuple{rank() + 1, triangle(), std::string{"plain"}, std::map<std::string, int>{{"own", rank() + 1}}});
  });
}

TEST_CASE("all_reduce keeps the structure of its nest", "[A-75][K-1][K-3]") {
  runtime().strategy().run([](ReplicaContext& context) {
    const std::map<std::string, std::vector<double>> nest{{"a", {1. * rank()}}, {"b", {40., 1. + rank()}}};
    const auto sum = context.all_reduce(ReduceOp::sum, nest);
    CHECK(sum.at("a") == std::vector<double>{1. * triangle() - ranks()});
    CHECK(sum.at("b") == std::vector<double>{40. * ranks(), 1. * triangle()});
    const auto mean = context.all_reduce(ReduceOp::mean, nest);
    CHECK(mean.at("b")[0] == 40.);
    const auto mixed = context.all_reduce(ReduceOp::sum, std::tuple{1, std::int64_t{rank()} << 40, of({1, 2})});
    CHECK(std::get<0>(mixed) == ranks());
    CHECK(std::get<1>(mixed) == std::int64_t{triangle() - ranks()} << 40);
    CHECK(std::get<2>(mixed).to_vector<float>() == times(static_cast<float>(ranks()), {1, 2}));
  });
}

TEST_CASE("reduce gives the result to every rank, sums of integers stay integers", "[A-38][K-8]") {
  Strategy& strategy = runtime().strategy();
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{rank() + 1}) == triangle());
  CHECK(strategy.reduce(ReduceOp::mean, PerReplica<double>{2. * rank()}) == ranks() - 1.);
  CHECK_THROWS_AS(strategy.reduce(ReduceOp::mean, PerReplica<int>{1}), InvalidArgument);
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());  // the refusal left no one behind
}

TEST_CASE("large tensors reduce exactly, whatever their length") {
  Strategy& strategy = runtime().strategy();
  // The last two are a bucket, and a bucket and a bit.
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{63}, std::int64_t{4097}, std::int64_t{1} << 20, (std::int64_t{1} << 20) + 17}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i % 1000) * (rank() + 1));
    const Tensor sum = strategy.reduce(ReduceOp::sum, PerReplica<Tensor>{Tensor::from(values, {count})});
    const auto got = sum.to_vector<float>();
    REQUIRE(got.size() == values.size());
    bool exact = true;
    for (std::size_t i = 0; i < got.size(); ++i) exact &= got[i] == static_cast<float>((i % 1000) * triangle());
    CHECK(exact);
  }
}

TEST_CASE("tensors without elements are agreed on and reduced like others, alone and among others", "[E-19]") {
  int collectives = 0;
  Strategy strategy = runtime().make_strategy({.around = [&](const std::function<void()>& collective) {
    ++collectives;
    collective();
  }});
  const auto reduced = [&](std::vector<Tensor> tensors) {
    return strategy.reduce(ReduceOp::sum, PerReplica{std::move(tensors)});
  };
  const Tensor none = Tensor::zeros(DType::f64, {0, 3});
  const auto before = inside(strategy).group().meeting().meetings();
  const std::vector<Tensor> alone = reduced({none});
  CHECK(inside(strategy).group().meeting().meetings() == before + 1);
  CHECK(collectives == 1);
  CHECK(describe(alone.at(0).view()) == "f64[0, 3]");
  const std::vector<Tensor> among = reduced({of({1.f + rank()}), none, Tensor::zeros(DType::f32, {0}), of({1, 2})});
  CHECK(collectives == 2);
  CHECK(among.at(0).to_vector<float>() == std::vector<float>{1.f * triangle()});
  CHECK(describe(among.at(1).view()) == "f64[0, 3]");
  CHECK(describe(among.at(2).view()) == "f32[0]");
  CHECK(among.at(3).to_vector<float>() == times(static_cast<float>(ranks()), {1, 2}));
  if (ranks() == 1) return;
  // A rank that has none of what the others reduce is no rank with nothing to say.
  CHECK_THAT(mismatch_of([&] {
               (void)reduced({odd_one() ? none : Tensor::zeros(DType::f64, {1, 3})});
             }),
             Catch::Contains("f64[0, 3]") && Catch::Contains("f64[1, 3]"));
  CHECK(collectives == 2);
}

TEST_CASE("reduce_to one replica gives it to that one alone", "[E-20]") {
  Strategy& strategy = runtime().strategy();
  for (int root = 0; root < ranks(); ++root) {
    const auto got = StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica<Tensor>{of({1.f + rank(), 2})},
                                                          StrategyExtended::OneReplica{root});
    REQUIRE(got.has_value() == (rank() == root));
    if (got) CHECK(got->to_vector<float>() == std::vector<float>{1.f * triangle(), 2.f * ranks()});
  }
  CHECK_THROWS_AS(
      StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica<int>{1}, StrategyExtended::OneReplica{ranks()}),
      InvalidArgument);
}

TEST_CASE("a reduction leaves the value it was given alone") {
  const Tensor mine = of({1, 2});
  (void)runtime().strategy().reduce(ReduceOp::sum, PerReplica<Tensor>{mine});
  CHECK(mine.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("batch_reduce_to reduces each value to its variable, types mixed", "[E-11]") {
  Strategy strategy = runtime().make_strategy();
  const Variable a = strategy.create_variable({.name = "a"}, [] { return of({0, 0}); });
  const Variable b = strategy.create_variable({.name = "b"}, [] { return Tensor::scalar(std::int64_t{0}); });
  const std::vector<std::pair<PerReplica<Tensor>, Variable>> batch{
      {PerReplica<Tensor>{of({1.f * rank(), 1})}, a}, {PerReplica<Tensor>{Tensor::scalar(std::int64_t{rank()})}, b}};
  const auto sums = StrategyExtended{strategy}.batch_reduce_to(ReduceOp::sum, batch);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].value().to_vector<float>() == std::vector<float>{1.f * (triangle() - ranks()), 1.f * ranks()});
  CHECK(sums[1].value().to_vector<std::int64_t>() == std::vector<std::int64_t>{triangle() - ranks()});
}

TEST_CASE("an update's function gets the handle that was given, of its own type", "[A-61]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  const SyncOnReadVariable own = strategy.create_sync_on_read(
      {.name = "own", .aggregation = Variable::Aggregation::sum}, [] { return Tensor::scalar(0.f); });
  strategy.seal();
  const StrategyExtended extended{strategy};
  const Mirrored<Tensor> sum = extended.reduce_to(ReduceOp::sum, PerReplica{Tensor::scalar(1.f + rank())}, w);
  extended.update(
      w, [](MirroredVariable variable, Tensor delta) { variable.assign_add(delta); }, args(sum));
  CHECK(w.local().to_vector<float>() == std::vector<float>{1.f + triangle()});
  extended.update(own, [](SyncOnReadVariable variable) { variable.assign(Tensor::scalar(1.f + rank())); });
  CHECK(own.read().to_vector<float>() == std::vector<float>{1.f * triangle()});
}

TEST_CASE("broadcast_to gives everyone replica 0's value", "[A-56][E-9][E-30]") {
  Strategy& strategy = runtime().strategy();
  const auto all = StrategyExtended{strategy}.broadcast_to(PerReplica<std::vector<int>>{{10 * (rank() + 1), rank()}});
  CHECK(all.value() == std::vector<int>{10, 0});
}

TEST_CASE("broadcast_to looks at its context before it looks at the value, and meets nobody", "[A-56]") {
  Strategy& strategy = runtime().strategy();
  const PerReplica<IndexedSlices> two_values_for_one_row{
      {Tensor::zeros(DType::f32, {2, 1}), Tensor::from<std::int64_t>({0}, {1}), {9, 1}}};
  const auto broadcast = [&] { (void)StrategyExtended{strategy}.broadcast_to(two_values_for_one_row); };
  strategy.run([&](ReplicaContext&) {
    const auto before = inside(strategy).group().meeting().meetings();
    CHECK_THROWS_AS(broadcast(), ContextError);
    CHECK(inside(strategy).group().meeting().meetings() == before);
  });
  CHECK_THROWS_AS(broadcast(), InvalidArgument);
}

TEST_CASE("a variable has replica 0's initial value on every rank", "[A-51][C-1][C-9][C-13]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return of({1.f * rank(), 5}); });
  const MirroredVariable v = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(rank() + 1); });
  CHECK_THROWS_AS(w.local(), ContextError);
  strategy.seal();
  CHECK(inside(strategy.store()).variables().size() == 2);  // of each variable this rank has its own component alone
  CHECK(w.local().to_vector<float>() == std::vector<float>{0, 5});
  CHECK(v.local().to_vector<std::int32_t>() == std::vector<std::int32_t>{1});
  CHECK(reinterpret_cast<std::uintptr_t>(w.local().data()) % 256 == 0);
  CHECK(StrategyExtended{strategy}.variable_created_in_scope(w));
  CHECK_FALSE(StrategyExtended{runtime().strategy()}.variable_created_in_scope(w));
}

TEST_CASE("variables created after a seal are laid out by the next run, and the others keep their memory") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable first = strategy.create_variable({.name = "first"}, [] { return of({1}); });
  strategy.seal();
  const std::byte* const home = first.local().data();
  const MirroredVariable second = strategy.create_variable({.name = "second"}, [] { return of({2.f + rank()}); });
  strategy.run([](ReplicaContext&) {});
  CHECK(second.local().to_vector<float>() == std::vector<float>{2});
  CHECK(first.local().data() == home);
}

TEST_CASE("update assigns on every rank, rebroadcast makes replica 0's values count again", "[K-16]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return of({1, 2}); });
  strategy.seal();
  const Mirrored<Tensor> sum =
      StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica<Tensor>{of({1, 1.f + rank()})}, w);
  StrategyExtended{strategy}.update(
      w, [](const Variable& v, const Tensor& delta) { v.assign_add(delta); }, args(sum));
  CHECK(w.local().to_vector<float>() == std::vector<float>{1.f + ranks(), 2.f + triangle()});
  w.assign_add(of({1.f * rank(), 0}));  // replicas drift
  strategy.rebroadcast();
  CHECK(w.local().to_vector<float>() == std::vector<float>{1.f + ranks(), 2.f + triangle()});
}

TEST_CASE("an update is this rank's alone: it has happened when it returns, with its function's result", "[H-4]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return of({1}); });
  strategy.seal();
  const auto before = inside(strategy).group().meeting().meetings();
  if (odd_one()) {
    const auto add = [](const Variable& component, float one) {
      component.assign_add(of({one}));
      return std::string{"added"};
    };
    CHECK(StrategyExtended{strategy}.update(w, add, args(1.f)) == "added");
    CHECK(w.local().to_vector<float>() == std::vector<float>{2});
  }
  CHECK(inside(strategy).group().meeting().meetings() == before);  // nobody waited for the others' updates
  strategy.rebroadcast();
  CHECK(w.local().to_vector<float>() == std::vector<float>{ranks() == 1 ? 2.f : 1.f});
}

TEST_CASE("the function of an initial value is called once on every rank, where the variable is created", "[C-40]") {
  Strategy strategy = runtime().make_strategy();
  int calls = 0;
  const auto initial = [&] {
    ++calls;
    return of({1.f * rank()});
  };
  const MirroredVariable w = strategy.create_variable({.name = "w"}, initial);
  CHECK(calls == 1);
  const SyncOnReadVariable c = strategy.create_sync_on_read({.name = "c"}, initial);
  CHECK(calls == 2);
  strategy.seal();
  CHECK(calls == 2);
  for (const Variable& variable : {Variable{w}, Variable{c}})
    CHECK(variable.local().to_vector<float>() == std::vector<float>{0});
}

TEST_CASE("an initial value that is there already is taken as it is at the creation, as one that is made would be",
          "[C-18][C-40]") {
  Strategy strategy = runtime().make_strategy();
  const Tensor ready = of({1.f + rank(), 5});
  const auto give = [&] { return ready; };
  const MirroredVariable given = strategy.create_variable({.name = "given"}, give);
  const SyncOnReadVariable own = strategy.create_sync_on_read({.name = "own"}, give);
  const MirroredVariable made = strategy.create_variable({.name = "made"}, [] { return of({1.f + rank(), 5}); });
  ready.view().elements<float>()[1] = 6;  // the caller's again
  strategy.seal();
  for (const Variable& variable : {Variable{given}, Variable{own}, Variable{made}})
    CHECK(variable.local().to_vector<float>() == std::vector<float>{1, 5});
  given.assign(of({3, 4}));
  CHECK(ready.to_vector<float>() == std::vector<float>{1.f + rank(), 6});
}

TEST_CASE("an assignment in replica context follows the variable's aggregation", "[C-20][C-21][C-22][C-23][E-9]") {
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name, Variable::Aggregation aggregation) {
    return strategy.create_variable({.name = name, .aggregation = aggregation}, [] { return of({100}); });
  };
  const MirroredVariable none = make("none", Variable::Aggregation::none);
  const MirroredVariable sum = make("sum", Variable::Aggregation::sum);
  const MirroredVariable mean = make("mean", Variable::Aggregation::mean);
  const MirroredVariable first = make("first", Variable::Aggregation::only_first_replica);
  strategy.run([&](ReplicaContext&) {
    const Tensor value = of({2.f * (rank() + 1)});
    CHECK_THROWS_WITH(none.assign(value), Catch::Contains("You must specify an aggregation method"));
    sum.assign(value);
    mean.assign_add(value);
    first.assign_sub(value);
  });
  CHECK(sum.local().to_vector<float>() == std::vector<float>{2.f * triangle()});
  CHECK(mean.local().to_vector<float>() == std::vector<float>{100.f + ranks() + 1});
  CHECK(first.local().to_vector<float>() == std::vector<float>{98});
}

TEST_CASE("scopes make a strategy current, and nest") {
  CHECK_FALSE(Strategy::has_current());
  CHECK(Strategy::current().num_replicas_in_sync() == 1);
  Strategy& strategy = runtime().strategy();
  {
    const Scope scope = strategy.scope();
    CHECK(Strategy::has_current());
    CHECK(Strategy::in_cross_replica_context());
    CHECK(&Strategy::current() == &strategy);
    const Scope again = strategy.scope();
    CHECK(&Strategy::current() == &strategy);
  }
  CHECK_FALSE(Strategy::has_current());
}

TEST_CASE("a scope that one rank enters alone is nobody else's business", "[A-20]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable unsealed = strategy.create_variable({.name = "w"}, [] { return of({1}); });
  const auto before = inside(strategy).group().meeting().meetings();
  if (odd_one()) {
    const Scope scope = strategy.scope();
    CHECK(&Strategy::current() == &strategy);
    CHECK(Strategy::in_cross_replica_context());
  }
  CHECK(inside(strategy).group().meeting().meetings() == before);
  CHECK_FALSE(unsealed.is_initialized());
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{rank() + 1}) == triangle());
}

TEST_CASE("the right method in the wrong context is a ContextError, and leaves the ranks in step", "[A-12][A-14]") {
  Strategy& strategy = runtime().strategy();
  Strategy other = runtime().make_strategy();
  strategy.run([&](ReplicaContext& context) {
    const auto before = inside(strategy).group().meeting().meetings();
    CHECK_THROWS_WITH(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}),
                      Catch::Contains("Method requires being in cross-replica context"));
    CHECK_THROWS_AS(strategy.scope(), ContextError);
    CHECK_THROWS_WITH(other.scope(), Catch::Contains("Mixing different Strategy objects"));
    context.merge_call([&](Strategy&) {
      CHECK_THROWS_WITH(context.merge_call([](Strategy&) {}), Catch::Contains("Need to be inside `Strategy::run()`"));
    });
    CHECK(inside(strategy).group().meeting().meetings() == before + 1);  // the one that was right
  });
  {
    const Scope scope = other.scope();
    CHECK_THROWS_WITH(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}), Catch::Contains("Mixing different Strategy"));
  }
  // On one rank alone, too.
  if (odd_one()) {
    const Scope scope = other.scope();
    CHECK_THROWS_AS(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}), ContextError);
  }
  expect_in_step();
}

TEST_CASE("two strategies of one process have stores of their own and share the ranks") {
  Strategy a = runtime().make_strategy();
  Strategy b = runtime().make_strategy();
  const MirroredVariable in_a = a.create_variable({.name = "w"}, [] { return of({1}); });
  const MirroredVariable in_b = b.create_variable({.name = "w"}, [] { return of({2}); });
  a.seal();
  b.seal();
  CHECK(in_a.local().to_vector<float>() != in_b.local().to_vector<float>());
  CHECK_THROWS_AS(StrategyExtended{a}.update(in_b, [](const Variable&) {}), InvalidArgument);
  CHECK(&StrategyExtended{a}.strategy() == &a);
  CHECK(&StrategyExtended{b}.strategy() == &b);
  Strategy moved = std::move(b);
  CHECK(moved.reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());
}

TEST_CASE("all_reduce of a nest is one merge_call, whatever its leaves: a run with one costs two agreements", "[K-1]") {
  Strategy& strategy = runtime().strategy();
  const IndexedSlices row{Tensor::zeros(DType::f32, {1, 2}), Tensor::from<std::int64_t>({rank()}, {1}), {9, 2}};
  const auto before = inside(strategy).group().meeting().meetings();
  strategy.run([&](ReplicaContext& context) {
    const std::map<std::string, std::vector<double>> nest{{"a", {1. + rank()}}, {"b", {40., 1.}}};
    const auto sum = context.all_reduce(ReduceOp::sum, std::tuple{nest, rank() + 1, of({1.f + rank(), 2}), row});
    CHECK(std::get<0>(sum).at("a") == std::vector<double>{1. * triangle()});
    CHECK(std::get<1>(sum) == triangle());
    CHECK(std::get<2>(sum).to_vector<float>() == std::vector<float>{1.f * triangle(), 2.f * ranks()});
    CHECK(std::get<3>(sum).indices.count() == ranks());
  });
  CHECK(inside(strategy).group().meeting().meetings() - before == 2);
}
