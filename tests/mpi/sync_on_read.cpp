// Variables of which every replica has its own value. Components differ on every rank; sums are exact.
#include <string>
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

Tensor doubles(std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count});
}

/// One variable (1, 2), sealed.
struct CountingProgram {
  Strategy strategy = runtime().make_strategy();
  SyncOnReadVariable v;

  explicit CountingProgram(Variable::Aggregation aggregation)
      : v{strategy.create_sync_on_read({.name = "v", .aggregation = aggregation}, [] {
          return doubles({1.0 + rank(), 2});  // replica 0's counts
        })} {
    strategy.seal();
  }
  std::vector<double> component() const { return v.local().to_vector<double>(); }
  std::vector<double> read() const { return v.read().to_vector<double>(); }

  /// In replica context, each rank adds its number to the first element.
  void add_rank() {
    strategy.run([&](ReplicaContext&) { v.assign_add(doubles({1.0 * rank(), 0})); });
  }
};

}  // namespace

TEST_CASE("a sync-on-read variable begins with replica 0's value on every rank, and is not trainable", "[C-32]") {
  const CountingProgram program{Variable::Aggregation::sum};
  CHECK(program.component() == std::vector<double>{1, 2});
  CHECK_FALSE(program.v.trainable());
  CHECK(program.v.aggregation() == Variable::Aggregation::sum);
}

TEST_CASE("in replica context an assignment is this rank's alone, and costs no agreement", "[C-25][C-26][C-27][C-33]") {
  CountingProgram program{Variable::Aggregation::sum};
  program.strategy.run([&](ReplicaContext&) {
    const auto before = inside(program.strategy).group().meeting().meetings();
    program.v.assign(doubles({10.0 * rank(), 1}));
    program.v.assign_add(doubles({1, 1}));
    program.v.assign_sub(doubles({0, 0.5}));
    CHECK(inside(program.strategy).group().meeting().meetings() == before);
  });
  CHECK(program.component() == std::vector<double>{10.0 * rank() + 1, 1.5});
}

TEST_CASE("a read gives every rank the components combined, and leaves them as they are", "[C-25][C-26][C-27]") {
  const double others = triangle() - ranks();  // 0 + 1 + … + (ranks - 1)
  CountingProgram sum{Variable::Aggregation::sum};
  sum.add_rank();
  CHECK(sum.read() == std::vector<double>{1.0 * ranks() + others, 2.0 * ranks()});
  CHECK(sum.component() == std::vector<double>{1.0 + rank(), 2});

  CountingProgram mean{Variable::Aggregation::mean};
  mean.add_rank();
  CHECK(mean.read() == std::vector<double>{(ranks() + others) / ranks(), 2});

  CountingProgram first{Variable::Aggregation::only_first_replica};
  first.add_rank();
  CHECK(first.read() == std::vector<double>{1, 2});
  CHECK(first.component() == std::vector<double>{1.0 + rank(), 2});
}

TEST_CASE("read and read_var are one agreement, also in a scope and in a merge function", "[C-35]") {
  CountingProgram program{Variable::Aggregation::sum};
  program.add_rank();
  const auto expected = program.read();
  const Scope scope = program.strategy.scope();
  const auto before = inside(program.strategy).group().meeting().meetings();
  CHECK(StrategyExtended{program.strategy}.read_var(program.v).to_vector<double>() == expected);
  CHECK(inside(program.strategy).group().meeting().meetings() == before + 1);
  program.strategy.run([&](ReplicaContext& context) {
    CHECK_THROWS_AS(program.v.read(), ContextError);
    context.merge_call([&](Strategy&) { CHECK(program.read() == expected); });
  });
}

TEST_CASE("an assignment in cross-replica context is what the next read gives", "[C-38][C-39]") {
  CountingProgram sum{Variable::Aggregation::sum};
  sum.v.assign(doubles({12, 24}));
  CHECK(sum.component() == std::vector<double>{12.0 / ranks(), 24.0 / ranks()});
  CHECK(sum.read() == std::vector<double>{12, 24});

  CountingProgram mean{Variable::Aggregation::mean};
  mean.v.assign(doubles({12, 24}));
  CHECK(mean.component() == std::vector<double>{12, 24});
  CHECK(mean.read() == std::vector<double>{12, 24});
  CHECK_THROWS_AS(mean.v.assign_add(doubles({1, 1})), ContextError);
  CHECK_THROWS_WITH(mean.v.assign_sub(doubles({1, 1})),
                    Catch::StartsWith("assign_sub (sync_on_read.cpp:") &&
                        Catch::Contains("): Replica-local variables may only be assigned in a replica context"));
  StrategyExtended{mean.strategy}.update(
      mean.v, [](const Variable& component, const Tensor& delta) { component.assign_add(delta); },
      args(mean.strategy.same_on_all(doubles({1, 1}))));
  CHECK(mean.component() == std::vector<double>{13, 25});
}

TEST_CASE("integers are dealt to the components whole: the first replicas take what is left over", "[C-38]") {
  Strategy strategy = runtime().make_strategy();
  const auto counter = strategy.create_sync_on_read({.name = "counter", .aggregation = Variable::Aggregation::sum},
                                                    [] { return Tensor::scalar(std::int64_t{0}); });
  const auto average = strategy.create_sync_on_read({.name = "average", .aggregation = Variable::Aggregation::mean},
                                                    [] { return Tensor::scalar(std::int64_t{0}); });
  strategy.seal();
  strategy.run([&](ReplicaContext&) { counter.assign_add(Tensor::scalar(std::int64_t{rank() + 1})); });
  CHECK(counter.read().to_vector<std::int64_t>() == std::vector<std::int64_t>{triangle()});
  counter.assign(Tensor::scalar(std::int64_t{5} * ranks()));
  CHECK(counter.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{5});
  for (const std::int64_t sign : {1, -1}) {
    counter.assign(Tensor::scalar(sign * (3 * ranks() + ranks() / 2)));
    const std::int64_t part = rank() < ranks() / 2 ? 4 : 3;
    CHECK(counter.local().to_vector<std::int64_t>() == std::vector<std::int64_t>{sign * part});
    CHECK(counter.read().to_vector<std::int64_t>() == std::vector<std::int64_t>{sign * (3 * ranks() + ranks() / 2)});
  }
  CHECK_THROWS_AS(average.read(), InvalidArgument);
}

TEST_CASE("without an aggregation there is no reading, before any communication", "[C-24]") {
  CountingProgram program{Variable::Aggregation::none};
  program.add_rank();
  const auto before = inside(program.strategy).group().meeting().meetings();
  CHECK_THROWS_AS(program.v.read(), InvalidArgument);
  CHECK_THROWS_AS(StrategyExtended{program.strategy}.read_var(program.v), InvalidArgument);
  CHECK(inside(program.strategy).group().meeting().meetings() == before);
  CHECK(program.component() == std::vector<double>{1.0 + rank(), 2});
  CHECK_FALSE(program.v.trainable());
}

TEST_CASE("rebroadcast leaves every replica its own values") {
  CountingProgram program{Variable::Aggregation::sum};
  const auto mirrored = program.strategy.create_variable({.name = "m"}, [] { return doubles({7}); });
  program.add_rank();
  mirrored.assign(doubles({7.0 + rank()}));
  program.strategy.rebroadcast();
  CHECK(mirrored.local().to_vector<double>() == std::vector<double>{7});
  CHECK(program.component() == std::vector<double>{1.0 + rank(), 2});
}

TEST_CASE("ranks that read other variables, or make them of another kind, are told so", "[C-2][C-35]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    return strategy.create_sync_on_read({.name = name, .aggregation = Variable::Aggregation::sum},
                                        [] { return Tensor::scalar(1.0); });
  };
  const auto a = make("a"), b = make("b");
  strategy.seal();
  const std::string reading = mismatch_of([&] { (void)(rank() == 1 ? b : a).read(); });
  CHECK_THAT(reading, Catch::Contains("at read #") && Catch::Contains("with variable 'a'") &&
                          Catch::Contains("with variable 'b'"));
  const std::string creating = mismatch_of([&] {
    if (rank() == 1) {
      (void)strategy.create_variable({.name = "c", .trainable = false}, [] { return Tensor::scalar(1.0); });
    } else {
      (void)strategy.create_sync_on_read({.name = "c"}, [] { return Tensor::scalar(1.0); });
    }
  });
  CHECK_THAT(creating, Catch::Contains("on_read") && Catch::Contains("on_write"));
  CHECK(a.read().to_vector<double>() == std::vector<double>{1.0 * ranks()});
}

TEST_CASE("ranks that assign other variables in replica context are told so", "[B-32]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    return strategy.create_variable({.name = name, .aggregation = Variable::Aggregation::sum},
                                    [] { return Tensor::scalar(1.0); });
  };
  const auto a = make("a"), b = make("b");
  const std::string message =
      mismatch_of([&] { strategy.run([&](ReplicaContext&) { (rank() == 1 ? b : a).assign(Tensor::scalar(2.0)); }); });
  CHECK_THAT(message, Catch::Contains("'a'") && Catch::Contains("'b'"));
}

TEST_CASE("a variable whose strategy is gone cannot be read as one, but keeps its component", "[A-48]") {
  auto strategy = std::make_unique<Strategy>(runtime().make_strategy());
  const auto v = strategy->create_sync_on_read({.name = "v", .aggregation = Variable::Aggregation::sum},
                                               [] { return Tensor::scalar(1.0); });
  strategy->seal();
  Strategy moved{std::move(*strategy)};
  CHECK(v.read().to_vector<double>() == std::vector<double>{1.0 * ranks()});
  { const Strategy last{std::move(moved)}; }
  CHECK_THROWS_WITH(v.read(), Catch::StartsWith("read (sync_on_read.cpp:") &&
                                  Catch::EndsWith("): the strategy of variable 'v' is gone"));
  CHECK(v.local().to_vector<double>() == std::vector<double>{1});
}
