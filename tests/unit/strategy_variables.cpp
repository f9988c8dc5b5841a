// Creating and assigning variables, and what the ranks compare: on one replica, and against a script of others.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/channel.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "support/done_communicator.hpp"
#include "support/scripted_channel.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::DoneCommunicator;
using lockstep::test::Meeting;
using lockstep::test::Script;
using lockstep::test::ScriptedChannel;

namespace {

struct VariableFixture {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);

  MirroredVariable make(const Tensor& initial, Variable::Aggregation aggregation = Variable::Aggregation::none) {
    const MirroredVariable made =
        strategy.create_variable({.name = "w", .aggregation = aggregation}, [&] { return initial; });
    strategy.seal();
    return made;
  }
};

/// A strategy whose only other rank disagrees in all things, so that this one must show its tags.
struct Disagreeing {
  Script script{.size = 2};
  ReplicaGroup group{std::make_shared<Job>(std::make_unique<ScriptedChannel>(script),
                                           std::vector<std::string>{"replica 0", "replica 1"}),
                     make_local_communicator()};
  Strategy strategy = strategy_on(group);

  Tag tag_of(const std::function<void(Strategy&)>& collective) {
    Tag other;
    other.kind = TagKind::leave;
    script.meetings = {Meeting{.others = {{1, other}}}};
    CHECK_THROWS_AS(collective(strategy), MismatchError);
    return script.gathered.back();
  }
  std::string text_of(const std::function<void(Strategy&)>& collective) {
    return std::string{tag_of(collective).kept_text()};
  }
};

/// How a message of a method of variables begins that is called here.
auto called(const std::string& method) {
  return Catch::StartsWith(method + " (strategy_variables.cpp:");
}

template <class... T>
std::string signature(T... arguments) {
  std::tuple<T...> all{std::move(arguments)...};
  return detail::signature(all);
}

struct Plain {
  std::int32_t a, b;
};

/// With padding and a pointer: comparable by the members that its Nest names alone.
struct Setting {
  double rate;
  std::int32_t epochs;
  std::int64_t rows;
  std::optional<std::string> schedule = std::nullopt;
  const void* unnamed = nullptr;
};

}  // namespace

template <>
struct lockstep::Nest<Setting> {
  static constexpr auto members = std::tuple{&Setting::rate, &Setting::epochs, &Setting::rows, &Setting::schedule};
};

TEST_CASE("options that no mirrored variable can have are refused, before its initial value is asked for",
          "[C-28][C-29][C-30][C-31]") {
  VariableFixture f;
  const auto before = f.group->meeting().meetings();
  const auto create = [&](Variable::Options options) {
    options.name = "w";
    f.strategy.create_variable(options, []() -> Tensor { throw std::logic_error{"asked for the initial value"}; });
  };
  CHECK_THROWS_AS(create({.synchronization = Variable::Synchronization::none}), InvalidArgument);
  CHECK_THROWS_WITH(create({.synchronization = Variable::Synchronization::none}),
                    "`none` variable synchronization is not supported: every replica has a component of each "
                    "variable. Please change the `synchronization` for variable: w");
  CHECK_THROWS_AS(create({.synchronization = Variable::Synchronization::on_read}), InvalidArgument);
  CHECK_THROWS_WITH(create({.synchronization = Variable::Synchronization::on_read}),
                    Catch::StartsWith("variable 'w': `on_read` is not the synchronization of a mirrored variable"));
  CHECK_THROWS_WITH(create({.synchronization = static_cast<Variable::Synchronization>(9)}),
                    "Invalid variable synchronization mode: 9 for variable: w");
  CHECK_THROWS_WITH(create({.aggregation = static_cast<Variable::Aggregation>(9)}),
                    "Invalid variable aggregation mode: 9 for variable: w");
  // The synchronization is looked at first.
  CHECK_THROWS_WITH(create({.synchronization = Variable::Synchronization::none,
                            .aggregation = static_cast<Variable::Aggregation>(9)}),
                    Catch::StartsWith("`none` variable synchronization is not supported"));
  CHECK(f.group->meeting().meetings() == before);
  for (const auto synchronization : {Variable::Synchronization::automatic, Variable::Synchronization::on_write})
    CHECK_NOTHROW(f.strategy.create_variable({.synchronization = synchronization}, [] { return Tensor{}; }));
  CHECK(inside(f.strategy.store()).variables().size() == 2);
}

TEST_CASE("options that no sync-on-read variable can have are refused in the same words", "[C-28][C-29][C-30]") {
  VariableFixture f;
  const auto before = f.group->meeting().meetings();
  const auto create = [&](Variable::Options options) {
    options.name = "w";
    f.strategy.create_sync_on_read(options, []() -> Tensor { throw std::logic_error{"asked for the initial value"}; });
  };
  CHECK_THROWS_WITH(create({.synchronization = Variable::Synchronization::none}),
                    "`none` variable synchronization is not supported: every replica has a component of each "
                    "variable. Please change the `synchronization` for variable: w");
  CHECK_THROWS_WITH(
      create({.synchronization = Variable::Synchronization::on_write}),
      Catch::StartsWith("variable 'w': `on_write` is not the synchronization of a sync-on-read variable"));
  CHECK_THROWS_WITH(create({.synchronization = static_cast<Variable::Synchronization>(9),
                            .aggregation = static_cast<Variable::Aggregation>(9)}),
                    "Invalid variable synchronization mode: 9 for variable: w");
  CHECK_THROWS_WITH(create({.aggregation = static_cast<Variable::Aggregation>(9)}),
                    "Invalid variable aggregation mode: 9 for variable: w");
  CHECK(f.group->meeting().meetings() == before);
}

TEST_CASE("a strategy lists each variable once, in the order of creation, and leaves the options it was given alone",
          "[C-17][C-18]") {
  VariableFixture f;
  // Not const: a method that took them by reference could write to them.
  Variable::Options trained{.name = "a"}, counted{.name = "c", .trainable = true};
  f.strategy.create_variable(trained, [] { return Tensor::scalar(1.f); });
  f.strategy.create_variable({.name = "b", .trainable = false}, [] { return Tensor::scalar(1.f); });
  f.strategy.create_sync_on_read(counted, [] { return Tensor::scalar(1.f); });
  f.strategy.seal();
  std::vector<std::pair<std::string, bool>> listed;
  for (const auto& variable : inside(f.strategy.store()).variables())
    listed.emplace_back(variable->name, variable->trainable);
  CHECK(listed == std::vector<std::pair<std::string, bool>>{{"a", true}, {"b", false}, {"c", false}});
  CHECK(trained.name == "a");
  CHECK(trained.synchronization == Variable::Synchronization::automatic);
  CHECK(counted.name == "c");
  CHECK(counted.trainable);
  CHECK(counted.synchronization == Variable::Synchronization::automatic);
}

TEST_CASE("an initial value that throws makes no variable, and is announced") {
  VariableFixture f;
  CHECK_THROWS_WITH(f.strategy.create_variable({}, []() -> Tensor { throw std::domain_error{"no such file"}; }),
                    "no such file");
  REQUIRE(f.group->meeting().failure());
  CHECK_THAT(f.group->meeting().failure()->line,
             Catch::StartsWith("lockstep: error: no such file; this was before the first step, computing "
                               "(strategy_variables.cpp:"));
  CHECK(inside(f.strategy.store()).variables().empty());
  CHECK_NOTHROW(f.strategy.create_variable({}, [] { return Tensor{}; }));
}

TEST_CASE("names are unique in a strategy: the lowest number that is free, names that were asked for counted",
          "[C-3]") {
  VariableFixture f;
  Strategy other = strategy_on(*f.group);
  const auto name_of = [](Strategy& strategy, const char* asked) {
    return std::string{strategy.create_variable({.name = asked}, [] { return Tensor::scalar(1.f); }).name()};
  };
  CHECK(name_of(f.strategy, "") == "Variable");
  CHECK(name_of(f.strategy, "") == "Variable_1");
  CHECK(name_of(f.strategy, "w_1") == "w_1");
  CHECK(name_of(f.strategy, "w") == "w");
  CHECK(name_of(f.strategy, "w") == "w_2");
  CHECK(name_of(f.strategy, "w_1") == "w_1_1");
  const SyncOnReadVariable counter = f.strategy.create_sync_on_read({.name = "w"}, [] { return Tensor::scalar(1.f); });
  CHECK(counter.name() == "w_3");
  CHECK(counter.label() == "'w_3'");
  CHECK(f.strategy.create_sync_on_read({}, [] { return Tensor::scalar(1.f); }).name() == "Variable_2");
  CHECK(name_of(other, "w") == "w");
}

TEST_CASE("what ranks compare of a new variable: name, type, shape, options", "[A-25]") {
  Disagreeing d;
  CHECK(d.text_of([](Strategy& strategy) {
    strategy.create_variable({.name = "dense/w"}, [] { return Tensor::zeros(DType::f32, {2, 3}); });
  }) == "variable 'dense/w' f32[2, 3] (trainable, on_write, aggregation none)");
  CHECK(d.text_of([](Strategy& strategy) {
    strategy.create_variable(
        {.name = "n", .trainable = false, .aggregation = Variable::Aggregation::only_first_replica},
        [] { return Tensor::scalar(std::int64_t{1}); });
  }) == "variable 'n' i64[] (not trainable, on_write, aggregation only_first_replica)");
  CHECK(inside(d.strategy.store()).variables().empty());
}

TEST_CASE("what ranks compare of a reduction: method, operation, types and shapes; and where it is called") {
  Disagreeing d;
  const Here here = Here::current();
  const Tag tag = d.tag_of([&](Strategy& strategy) {
    (void)strategy.reduce(ReduceOp::mean, PerReplica<std::pair<float, Tensor>>{{1.f, Tensor::zeros(DType::f64, {2})}},
                          here);
  });
  CHECK(tag.kind == TagKind::reduce);
  CHECK(tag.kept_text() == "reduce: mean of f32[], f64[2] in f32 f64 tensor");
  CHECK(tag.site_text() == "strategy_variables.cpp:" + std::to_string(here.line()));
  CHECK(d.text_of([](Strategy& strategy) {
    (void)StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica<int>{1}, StrategyExtended::OneReplica{0});
  }) == "reduce_to replica 0: sum of i32[]");
  const auto broadcast = [](Strategy& strategy) { (void)StrategyExtended{strategy}.broadcast_to(PerReplica<int>{1}); };
  CHECK(d.tag_of(broadcast).kind == TagKind::broadcast);
  CHECK(d.text_of(broadcast) == "i32[]");
  CHECK(d.tag_of([](Strategy& strategy) { (void)strategy.broadcast_object(1); }).kind == TagKind::broadcast);
  const SyncOnReadVariable first = d.strategy.create_sync_on_read(
      {.name = "first", .aggregation = Variable::Aggregation::only_first_replica}, [] { return Tensor::scalar(1.f); });
  d.strategy.seal();
  CHECK(d.text_of([&](Strategy&) { (void)first.read(); }) ==
        "read variable 'first' (only_first_replica): f32[]");  // no sum
  CHECK(d.text_of([](Strategy& strategy) { strategy.seal(); }) !=
        d.text_of([](Strategy& strategy) { strategy.rebroadcast(); }));
}

TEST_CASE("two strategies of a process are told apart in their agreements") {
  Disagreeing d;
  Strategy second = strategy_on(d.group);
  const Tag of_first = d.tag_of([](Strategy& strategy) { strategy.seal(); });
  const Tag of_second = d.tag_of([&](Strategy&) { second.seal(); });
  CHECK(of_first.strategy == 0);
  CHECK(of_second.strategy == 1);
}

TEST_CASE("what ranks compare of a merge_call's arguments: structure and types, not values", "[B-27]") {
  VariableFixture f;
  const MirroredVariable w = f.make(Tensor::scalar(1.f));
  CHECK(signature() == "");
  CHECK(signature(1) == signature(2));
  CHECK(signature(1) != signature(1L));
  CHECK(signature(1) != signature(1.f));
  CHECK(signature(Tensor::scalar(1.f)) == signature(Tensor::zeros(DType::f32, {5})));
  CHECK(signature(Tensor::scalar(1.f)) != signature(Tensor::scalar(1.)));
  CHECK(signature(std::vector{1, 2}) == signature(std::vector{3, 4}));
  CHECK(signature(std::vector{1, 2}) != signature(std::vector{1}));
  CHECK(signature(std::map<std::string, int>{{"a", 1}}) != signature(std::map<std::string, int>{{"b", 1}}));
  CHECK(signature(std::map<int, int>{{1, 1}}) != signature(std::map<int, int>{{2, 1}}));
  CHECK(signature(std::optional<int>{}) != signature(std::optional<int>{1}));
  CHECK(signature(PerReplica<int>{1}) == signature(1));  // what a plain value becomes anyway
  CHECK(signature(f.strategy.same_on_all(1)) != signature(1));
  CHECK_THAT(signature(w), Catch::Contains("variable 'w' of strategy 0"));
  CHECK(signature(f.make(Tensor::scalar(1.f))) != signature(w));  // another one of that name
  CHECK(signature(std::vector<float>(1'000'000)).size() < 20);
  CHECK(signature(std::string{"a"}) == signature(std::string{"b"}));
  CHECK(signature(std::string{"a"}) != signature(1));
  CHECK(signature(std::pair{1, 2.f}) != signature(std::pair{1.f, 2}));
  CHECK_NOTHROW(signature(std::vector<bool>{true}, Plain{1, 2}));
  const int one = 1, two = 2;
  CHECK(signature(std::map<const int*, int>{{&one, 1}}) == signature(std::map<const int*, int>{{&two, 1}}));
}

TEST_CASE("same_on_all compares values: equal ones have one text, others another") {
  const auto text = [](auto value) { return detail::comparable_text(value); };
  CHECK(text(5) == "5");
  CHECK(text(0.1) == "0.1");
  CHECK(text(0.1f) != text(0.1));
  CHECK(text(0.1) != text(std::nextafter(0.1, 1.)));
  CHECK(text(0.) != text(-0.));
  CHECK(text(std::numeric_limits<double>::quiet_NaN()) == text(std::numeric_limits<double>::quiet_NaN()));
  CHECK(text(true) != text(false));
  CHECK(text(Variable::Aggregation::sum) != text(Variable::Aggregation::mean));
  CHECK(text(std::numeric_limits<std::uint64_t>::max()) != text(std::numeric_limits<std::uint64_t>::max() - 1));
  CHECK(text(std::string{"adam"}) == "'adam'");
  CHECK(text(std::string(200, 'x') + "a") != text(std::string(200, 'x') + "b"));
  CHECK(text(std::string(200, 'x')).size() < 60);
  CHECK(text(Tensor::from({1.f, 2.f}, {2})) == text(Tensor::from({1.f, 2.f}, {2})));
  CHECK(text(Tensor::from({1.f, 2.f}, {2})) != text(Tensor::from({1.f, 3.f}, {2})));
  CHECK(text(Tensor::from({1.f, 2.f}, {2})) != text(Tensor::from({1.f, 2.f}, {2, 1})));
  CHECK(text(Tensor::zeros(DType::f32, {1})) != text(Tensor::zeros(DType::i32, {1})));
  CHECK(text(Plain{1, 2}) == text(Plain{1, 2}));
  CHECK(text(Plain{1, 2}) != text(Plain{2, 1}));
  CHECK(text(std::map<int, int>{{1, 2}}) != text(std::map<int, int>{{1, 3}}));
}

TEST_CASE("same_on_all tells containers apart by their structure as well") {
  using Strings = std::vector<std::string>;
  using Ints = std::vector<std::vector<int>>;
  using Deep = std::vector<std::vector<std::vector<int>>>;
  const auto text = [](auto value) { return detail::comparable_text(value); };
  CHECK(text(std::vector{1, 2}) == text(std::vector{1, 2}));
  CHECK(text(std::vector{1, 2}) != text(std::vector{12}));
  CHECK(text(std::vector<int>{}) != text(std::vector{0}));
  CHECK(text(Strings{"a", "b"}) != text(Strings{"a' 'b"}));
  CHECK(text(Strings{"a\nb"}) != text(Strings{"a b"}));
  CHECK(text(Ints{{1}, {2}}) != text(Ints{{1, 2}}));
  CHECK(text(Ints{{1, 2}, {}}) != text(Ints{{1}, {2}}));
  CHECK(text(Deep{{{}}}) != text(Deep{{}, {}}));
  CHECK(text(std::vector<int>(1000, 1)) != text(std::vector<int>(1001, 1)));
  CHECK(text(std::vector<int>(1000, 1)).size() < 60);
}

TEST_CASE("same_on_all compares a struct by the members that its Nest names") {
  const auto text = [](auto value) { return detail::comparable_text(value); };
  const Setting setting{0.1, 3, 4, "cosine"};
  CHECK(text(setting) == "[0.1 3 4 ['cosine']]");
  CHECK(text(Setting{0.2, 3, 4, "cosine"}) != text(setting));
  CHECK(text(Setting{0.1, 4, 4, "cosine"}) != text(setting));
  CHECK(text(Setting{0.1, 3, 5, "cosine"}) != text(setting));
  CHECK(text(Setting{0.1, 3, 4, "step"}) != text(setting));
  CHECK(text(Setting{0.1, 3, 4}) != text(setting));
  CHECK(text(Setting{0.1, 3, 4, "cosine", &setting}) == text(setting));
  CHECK(text(std::vector{setting}) == "[" + text(setting) + "]");
}

TEST_CASE("same_on_all tells an optional without a value from every value") {
  const auto text = [](auto value) { return detail::comparable_text(value); };
  using Number = std::optional<int>;
  using Text = std::optional<std::string>;
  using Twice = std::optional<std::optional<int>>;
  CHECK(text(Number{}) == "nothing");
  CHECK(text(Number{5}) == "[5]");
  CHECK(text(Number{0}) != text(Number{}));
  CHECK(text(Number{5}) != text(Number{6}));
  CHECK(text(Text{""}) != text(Text{}));
  CHECK(text(Text{"nothing"}) != text(Text{}));
  CHECK(text(Twice{Number{}}) != text(Twice{}));
}

TEST_CASE("same_on_all works in every context of its strategy and gives the value back") {
  VariableFixture f;
  CHECK(f.strategy.same_on_all(std::string{"adam"}).value() == "adam");
  const Scope scope = f.strategy.scope();
  CHECK(f.strategy.same_on_all(std::vector<bool>{true, false}).value() == std::vector<bool>{true, false});
  f.strategy.run([&](ReplicaContext& context) {
    CHECK(f.strategy.same_on_all(7).value() == 7);
    context.merge_call([](Strategy& strategy) { CHECK(strategy.same_on_all(8).value() == 8); });
  });
}

TEMPLATE_TEST_CASE("outside of replica context an assignment goes straight to the component", "[C-50]", float, double,
                   std::int32_t, std::int64_t, std::uint8_t) {
  VariableFixture f;
  const auto of = [](TestType a, TestType b) { return Tensor::from({a, b}, {2}); };
  const MirroredVariable w = f.make(of(1, 2));
  const auto before = f.group->meeting().meetings();
  w.assign(of(10, 20));
  CHECK(w.local().template to_vector<TestType>() == std::vector<TestType>{10, 20});
  const Scope scope = f.strategy.scope();
  w.assign_add(of(5, 6));
  w.assign_sub(of(1, 1));
  CHECK(w.local().template to_vector<TestType>() == std::vector<TestType>{14, 25});
  CHECK(f.group->meeting().meetings() == before);
}

TEMPLATE_TEST_CASE("variables of 16-bit floats are assigned like others", "", Half, BFloat16) {
  VariableFixture f;
  const auto of = [](float value) { return Tensor::from({TestType{value}}, {1}); };
  const auto value_of = [](const Variable& variable) {
    return float{variable.local().template to_vector<TestType>().front()};
  };
  const MirroredVariable w = f.make(of(1));
  w.assign(of(10));
  w.assign_add(of(5));
  w.assign_sub(of(1));
  CHECK(value_of(w) == 14);
  const SyncOnReadVariable total = f.strategy.create_sync_on_read(
      {.name = "total", .aggregation = Variable::Aggregation::sum}, [&] { return of(1); });
  f.strategy.seal();
  total.assign(of(2.5f));
  CHECK(value_of(total) == 2.5f);
}

TEST_CASE("an assignment of another shape or type is refused with both") {
  VariableFixture f;
  const MirroredVariable w = f.make(Tensor::from({1.f, 2.f}, {2}));
  CHECK_THROWS_AS(w.assign(Tensor::zeros(DType::f32, {3})), InvalidArgument);
  CHECK_THROWS_WITH(w.assign(Tensor::zeros(DType::f32, {3})),
                    called("assign") && Catch::EndsWith("): variable 'w' is f32[2]; it cannot take f32[3]"));
  CHECK_THROWS_WITH(w.assign_add(Tensor::zeros(DType::f64, {2})),
                    called("assign_add") && Catch::EndsWith("it cannot take f64[2]"));
  CHECK_THROWS_WITH(w.assign_sub(Tensor::zeros(DType::f32, {2, 1})),
                    called("assign_sub") && Catch::EndsWith("it cannot take f32[2, 1]"));
  CHECK(w.local().to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("an assignment in replica context needs an aggregation, and goes by it", "[C-20]") {
  VariableFixture f;
  const auto make = [&](Variable::Aggregation aggregation) { return f.make(Tensor::scalar(100.f), aggregation); };
  const MirroredVariable none = make(Variable::Aggregation::none), sum = make(Variable::Aggregation::sum),
                         mean = make(Variable::Aggregation::mean),
                         first = make(Variable::Aggregation::only_first_replica);
  const MirroredVariable count = f.make(Tensor::scalar(1), Variable::Aggregation::mean);
  f.strategy.run([&](ReplicaContext&) {
    const auto before = f.group->meeting().meetings();
    CHECK_THROWS_AS(none.assign(Tensor::scalar(1.f)), InvalidArgument);
    CHECK_THROWS_WITH(
        none.assign(Tensor::scalar(1.f)),
        called("assign") && Catch::EndsWith("): You must specify an aggregation method to update a "
                                            "MirroredVariable in Replica Context: variable 'w' has none"));
    CHECK_THROWS_WITH(count.assign(Tensor::scalar(1)),
                      called("assign") && Catch::Contains("): the mean of i32 tensors is refused"));
    CHECK_THROWS_AS(sum.assign(Tensor::scalar(1.)), InvalidArgument);
    CHECK(f.group->meeting().meetings() == before);
    sum.assign(Tensor::scalar(1.f));
    mean.assign_add(Tensor::scalar(2.f));
    first.assign_sub(Tensor::scalar(3.f));
    CHECK(f.group->meeting().meetings() - before == 6);  // each a merge_call and its reduction
  });
  CHECK(none.local().to_vector<float>() == std::vector<float>{100});
  CHECK(sum.local().to_vector<float>() == std::vector<float>{1});
  CHECK(mean.local().to_vector<float>() == std::vector<float>{102});
  CHECK(first.local().to_vector<float>() == std::vector<float>{97});
}

TEST_CASE("a variable of one strategy is not assigned in another's context", "[C-50]") {
  VariableFixture f;
  Strategy other = strategy_on(*f.group);
  const MirroredVariable w = f.make(Tensor::scalar(1.f), Variable::Aggregation::sum);
  const std::string mixing = "Mixing different Strategy objects: variable 'w' was not created by strategy 1";
  CHECK_FALSE(StrategyExtended{other}.variable_created_in_scope(w));
  const Scope scope = other.scope();
  CHECK_THROWS_AS(w.assign(Tensor::scalar(2.f)), ContextError);
  CHECK_THROWS_WITH(w.assign(Tensor::scalar(2.f)), called("assign") && Catch::EndsWith(mixing));
  other.run([&](ReplicaContext&) {
    CHECK_THROWS_WITH(w.assign_add(Tensor::scalar(2.f)), called("assign_add") && Catch::EndsWith(mixing));
  });
  CHECK(w.local().to_vector<float>() == std::vector<float>{1});
}

TEST_CASE("options have the names that messages use") {
  CHECK(name_of(Variable::Synchronization::automatic) == "automatic");
  CHECK(name_of(Variable::Synchronization::none) == "none");
  CHECK(name_of(Variable::Synchronization::on_write) == "on_write");
  CHECK(name_of(Variable::Synchronization::on_read) == "on_read");
  CHECK(name_of(Variable::Aggregation::none) == "none");
  CHECK(name_of(Variable::Aggregation::sum) == "sum");
  CHECK(name_of(Variable::Aggregation::mean) == "mean");
  CHECK(name_of(Variable::Aggregation::only_first_replica) == "only_first_replica");
}

TEST_CASE("a data collective that fails ends the job: nobody can be told") {
  struct Broken final : DoneCommunicator {
    Broken() : DoneCommunicator{0, 1} {}
    Work broadcast(const TensorView&, int) override { throw CommError{"the cable is cut"}; }
  };
  struct JobEnded {
    std::exception_ptr cause;
  };
  ReplicaGroup group{std::make_shared<Job>(make_local_channel(), std::vector<std::string>{"replica 0"},
                                           [](std::exception_ptr cause) { throw JobEnded{std::move(cause)}; }),
                     std::make_unique<Broken>()};
  Strategy strategy = strategy_on(group);
  strategy.create_variable({}, [] { return Tensor::scalar(1.f); });
  try {
    strategy.seal();
    FAIL("the job went on");
  } catch (const JobEnded& end) {
    CHECK_THROWS_WITH(std::rethrow_exception(end.cause), "the cable is cut");
    CHECK_THROWS_AS(std::rethrow_exception(end.cause), CommError);
  }
}

TEST_CASE("what a program puts around its collectives is called in the place of each, and ends the job if it throws") {
  struct JobEnded {};
  ReplicaGroup group{std::make_shared<Job>(make_local_channel(), std::vector<std::string>{"replica 0"},
                                           [](std::exception_ptr) { throw JobEnded{}; }),
                     make_local_communicator()};
  int begun = 0, done = 0;
  bool fails = false;
  Strategy strategy = strategy_on(group, {.around = [&](const std::function<void()>& collective) {
                                    ++begun;
                                    if (fails) throw Error{"no more"};
                                    collective();
                                    ++done;
                                  }});
  const MirroredVariable weight = strategy.create_variable({}, [] { return Tensor::scalar(2.f); });
  strategy.seal();
  CHECK(begun == 1);
  CHECK(done == 1);
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{3}) == 3);
  CHECK(done == 2);
  CHECK(weight.local().to_vector<float>() == std::vector<float>{2});
  fails = true;
  CHECK_THROWS_AS(strategy.reduce(ReduceOp::sum, PerReplica<int>{3}), JobEnded);
}
