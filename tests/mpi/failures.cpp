// Disagreement and failure: the same verdict on every rank, and a job that goes on afterwards.
#include <stdexcept>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("an exception in replica code goes on where it was thrown, and is a PeerError elsewhere",
          "[B-11][B-36][B-37][B-38]") {
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    const auto step = [&] {
      runtime().strategy().run([&](ReplicaContext& context) {
        if (rank() == culprit) throw std::out_of_range{"the cat ate sample 7"};
        (void)context.all_reduce(ReduceOp::sum, 1.0);
      });
    };
    if (rank() == culprit) {
      CHECK_THROWS_AS(step(), std::out_of_range);
    } else {
      try {
        step();
        FAIL("no error");
      } catch (const PeerError& error) {
        CHECK(error.rank() == culprit);
        CHECK_THAT(error.what(), Catch::StartsWith("replica " + std::to_string(culprit) + " (worker:") &&
                                     Catch::EndsWith("failed: the cat ate sample 7"));
      }
    }
    expect_in_step();
  }
}

TEST_CASE("a long message reaches every rank whole, on one line") {
  if (ranks() == 1) return;
  const std::string text(3000, 'x');
  const auto step = [&] {
    runtime().strategy().run([&](ReplicaContext&) {
      if (odd_one()) throw std::runtime_error{"begin\n" + text + "end"};
    });
  };
  if (odd_one()) {
    CHECK_THROWS_AS(step(), std::runtime_error);
  } else {
    CHECK_THAT(message_of<PeerError>(step), Catch::Contains("begin " + text + "end"));
  }
  expect_in_step();
}

TEST_CASE("a rank that makes one merge_call fewer is named on every rank", "[B-42][B-43]") {
  if (ranks() == 1) return;
  const std::string message = mismatch_of([&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      if (rank() != last()) context.merge_call([](Strategy&) {});
    });
  });
  CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " ("));
  CHECK_THAT(message, Catch::Contains("has finished "));
  CHECK_THAT(message, Catch::Contains("merge_call #1 (failures.cpp:"));
  CHECK_THAT(message, Catch::Contains("different number of collective calls"));
  expect_in_step();
}

TEST_CASE("another merge function at the same count is a mismatch", "[B-16]") {
  if (ranks() == 1) return;
  const std::string message = mismatch_of([&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      if (odd_one()) {
        context.merge_call([](Strategy&) {});
      } else {
        context.merge_call([](Strategy&) {});
      }
    });
  });
  CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " ("));
  expect_in_step();
}

TEST_CASE("another collective at another place is a mismatch that names both", "[B-16]") {
  if (ranks() == 1) return;
  const std::string message = mismatch_of([&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      const Tensor row = Tensor::zeros(DType::f32, {3});
      if (odd_one()) {
        (void)context.all_gather(row);
      } else {
        (void)context.all_reduce(ReduceOp::sum, row);
      }
    });
  });
  CHECK_THAT(message, Catch::Contains("at all_gather #1 (failures.cpp:") && Catch::Contains(" with f32[…]") &&
                          Catch::Contains("at all_reduce #1 (failures.cpp:") && Catch::Contains(" with sum of f32[3]"));
  expect_in_step();
}

TEST_CASE("another shape, type, operation or destination is a mismatch that shows both sides",
          "[A-59][E-20][E-31][E-33]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const bool odd = odd_one();
  const auto shape = mismatch_of(
      [&] { (void)strategy.reduce(ReduceOp::sum, PerReplica<Tensor>{Tensor::zeros(DType::f32, {odd ? 3 : 4})}); });
  CHECK_THAT(shape, Catch::Contains("f32[3]") && Catch::Contains("f32[4]"));
  const auto type = mismatch_of([&] {
    (void)strategy.reduce(ReduceOp::sum, PerReplica<Tensor>{Tensor::zeros(odd ? DType::f64 : DType::f32, {2})});
  });
  CHECK_THAT(type, Catch::Contains("f64[2]") && Catch::Contains("f32[2]"));
  const auto op =
      mismatch_of([&] { (void)strategy.reduce(odd ? ReduceOp::mean : ReduceOp::sum, PerReplica<double>{1}); });
  CHECK_THAT(op, Catch::Contains("mean of f64[]") && Catch::Contains("sum of f64[]"));
  const auto destination = mismatch_of([&] {
    (void)StrategyExtended{strategy}.reduce_to(ReduceOp::sum, PerReplica<int>{1},
                                               StrategyExtended::OneReplica{odd ? 1 : 0});
  });
  CHECK_THAT(destination, Catch::Contains("replica 1: sum") && Catch::Contains("replica 0: sum"));
  expect_in_step();
}

TEST_CASE("same_on_all refuses what differs and names the rank", "[B-30]") {
  if (ranks() == 1) return;
  const auto message = mismatch_of([&] { (void)runtime().strategy().same_on_all(odd_one() ? 0.2 : 0.1); });
  CHECK_THAT(message, Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("with 0.2") &&
                          Catch::Contains("with 0.1"));
  CHECK(runtime().strategy().same_on_all(std::string{"adam"}).value() == "adam");
}

TEST_CASE("variables that differ between ranks are refused at their creation", "[A-25][B-8][C-2][C-4]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto name = mismatch_of([&] {
    strategy.create_variable({.name = odd_one() ? "weight" : "weights"}, [] { return Tensor::scalar(1.f); });
  });
  CHECK_THAT(name, Catch::Contains("'weight'") && Catch::Contains("'weights'"));
  const auto shape = mismatch_of(
      [&] { strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {odd_one() ? 2 : 1}); }); });
  CHECK_THAT(shape, Catch::Contains("f32[2]") && Catch::Contains("f32[1]"));
  const auto type = mismatch_of([&] {
    strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(odd_one() ? DType::f64 : DType::f32, {1}); });
  });
  CHECK_THAT(type, Catch::Contains("f64[1]") && Catch::Contains("f32[1]"));
  const auto trainable = mismatch_of(
      [&] { strategy.create_variable({.name = "w", .trainable = odd_one()}, [] { return Tensor::scalar(1.f); }); });
  CHECK_THAT(trainable, Catch::Contains("(trainable") && Catch::Contains("(not trainable"));
  const auto aggregation = mismatch_of([&] {
    const auto other = odd_one() ? Variable::Aggregation::mean : Variable::Aggregation::sum;
    strategy.create_variable({.name = "w", .aggregation = other}, [] { return Tensor::scalar(1.f); });
  });
  CHECK_THAT(aggregation, Catch::Contains("aggregation mean") && Catch::Contains("aggregation sum"));
  CHECK_FALSE(inside(strategy.store()).has_unsealed());
}

TEST_CASE("ranks compare the name that a variable asks for, not the number that makes it unique", "[C-3][C-4]") {
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    return strategy.create_variable({.name = name}, [] { return Tensor::scalar(1.f); });
  };
  CHECK(make("w").name() == "w");
  CHECK(make(odd_one() ? "" : "Variable").name() == "Variable");
  if (ranks() == 1) return;
  const auto message = mismatch_of([&] { make(odd_one() ? "w" : "w_1"); });  // either is 'w_1' in the end
  CHECK_THAT(message, Catch::Contains("creating variable 'w' ") && Catch::Contains("creating variable 'w_1' "));
  CHECK(make("w").name() == "w_1");
}

TEST_CASE("variables in another order, in replica code too, are refused at the first that differs", "[B-8][C-2][C-4]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    strategy.create_variable({.name = name}, [] { return Tensor::scalar(1.f); });
  };
  const auto message = mismatch_of([&] {
    strategy.run([&](ReplicaContext&) {
      for (const char* name : {"a", "b", "c"}) make(odd_one() && *name != 'a' ? (*name == 'b' ? "c" : "b") : name);
    });
  });
  CHECK_THAT(message, Catch::Contains("creating variable 'b'") && Catch::Contains("creating variable 'c'"));
  CHECK(inside(strategy.store()).variables().size() == 1);
  expect_in_step();
}

TEST_CASE("a variable more on one rank is named, replica 0 or not", "[C-5]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  for (const int culprit : {0, last()}) {
    const auto message = mismatch_of([&] {
      strategy.run([&](ReplicaContext&) {
        if (rank() == culprit) strategy.create_variable({.name = "extra"}, [] { return Tensor::scalar(1.f); });
      });
    });
    CHECK_THAT(message, Catch::Contains("replica " + std::to_string(culprit) + " (") &&
                            Catch::Contains("creating variable 'extra' f32[]"));
  }
  CHECK(inside(strategy.store()).variables().empty());
  expect_in_step();
}

TEST_CASE("an initial value that throws on one rank fails the creation on all") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto create = [&] {
    strategy.create_variable({.name = "w"}, [] {
      if (odd_one()) throw std::domain_error{"no such file"};
      return Tensor::scalar(1.f);
    });
  };
  if (odd_one()) {
    CHECK_THROWS_AS(create(), std::domain_error);
  } else {
    CHECK_THAT(message_of<PeerError>(create), Catch::EndsWith("failed: no such file"));
  }
}

TEST_CASE("a verdict is sticky until the outermost run is over", "[B-35][B-44]") {
  if (ranks() == 1) return;
  int swallowed = 0;
  const auto step = [&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      if (odd_one()) throw std::runtime_error{"first"};
      for (int i = 0; i < 3; ++i) {
        try {
          (void)context.all_reduce(ReduceOp::sum, 1.0);
        } catch (const PeerError&) {
          ++swallowed;
        }
      }
    });
  };
  if (odd_one()) {
    CHECK_THROWS_WITH(step(), "first");
  } else {
    CHECK_THROWS_AS(step(), PeerError);  // though replica code swallowed it
    CHECK(swallowed == 3);
  }
  expect_in_step();
}

TEST_CASE("a merge function that throws on one rank is a failure of that rank", "[B-40]") {
  if (ranks() == 1) return;
  const auto step = [&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      context.merge_call([&](Strategy& strategy) {
        if (rank() == 0) throw std::runtime_error{"in the merge"};
        (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
      });
    });
  };
  if (rank() == 0) {
    CHECK_THROWS_WITH(step(), "in the merge");
  } else {
    CHECK_THAT(message_of<PeerError>(step), Catch::StartsWith("replica 0 ("));
  }
  expect_in_step();
}

TEST_CASE("an exception before, in or after a merge function is told to the others, whoever throws it",
          "[B-36][B-37][B-40]") {
  const std::string before = "before it", in = "in it", after_reduction = "in it, after a reduction",
                    after = "after it";
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    for (const std::string& place : {before, in, after_reduction, after}) {
      CAPTURE(culprit, place);
      const auto pass = [&](const std::string& here) {
        if (rank() == culprit && here == place) throw std::out_of_range{here};
      };
      const auto step = [&] {
        runtime().strategy().run([&](ReplicaContext& context) {
          pass(before);
          context.merge_call([&](Strategy& strategy) {
            pass(in);
            (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
            pass(after_reduction);
          });
          pass(after);
        });
      };
      if (rank() == culprit) {
        CHECK_THROWS_AS(step(), std::out_of_range);
      } else {
        CHECK_THAT(message_of<PeerError>(step), Catch::StartsWith("replica " + std::to_string(culprit) + " (") &&
                                                    Catch::EndsWith("failed: " + place));
      }
      expect_in_step();
    }
  }
}

TEST_CASE("of several replicas that fail in one step the lowest is told to the others", "[B-41]") {
  if (ranks() < 3) return;
  const auto step = [&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      if (rank() > 0) throw std::out_of_range{"sample " + std::to_string(rank())};
      (void)context.all_reduce(ReduceOp::sum, 1.0);
    });
  };
  if (rank() > 0) {
    CHECK_THROWS_WITH(step(), "sample " + std::to_string(rank()));
  } else {
    CHECK_THAT(message_of<PeerError>(step), Catch::StartsWith("replica 1 (") && Catch::EndsWith("failed: sample 1"));
  }
  expect_in_step();
}

TEST_CASE("a failure in a run inside a merge function leaves both runs", "[B-47]") {
  if (ranks() == 1) return;
  const auto step = [&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      context.merge_call([&](Strategy& strategy) {
        strategy.run([&](ReplicaContext&) {
          if (odd_one()) throw std::runtime_error{"deep"};
        });
      });
    });
  };
  if (odd_one()) {
    CHECK_THROWS_WITH(step(), "deep");
  } else {
    CHECK_THAT(message_of<PeerError>(step), Catch::EndsWith("failed: deep"));
  }
  CHECK(inside(runtime().strategy()).group().meeting().depth() == 0);
  CHECK_FALSE(Strategy::has_current());
  expect_in_step();
}

TEST_CASE("where every rank fails alike, each has its own exception") {
  CHECK_THROWS_WITH(runtime().strategy().run([](ReplicaContext&) { throw std::runtime_error{"all of us"}; }),
                    "all of us");
  expect_in_step();
}

TEST_CASE("a rank that made a run too few or too many is in step again after the verdict") {
  if (ranks() == 1) return;
  for (const bool more : {false, true}) {
    const auto message = mismatch_of([&] {
      const int runs = odd_one() ? (more ? 2 : 0) : 1;
      for (int i = 0; i < runs; ++i) runtime().strategy().run([](ReplicaContext&) {});
      (void)runtime().strategy().same_on_all(7);
    });
    CHECK_THAT(message, Catch::Contains("made a different number of collective calls"));
    expect_in_step();
    runtime().strategy().run([](ReplicaContext& context) { CHECK(context.all_reduce(ReduceOp::sum, 1) == ranks()); });
  }
}
