// Finding replicas that drifted: one of them, or several, flip a bit in one variable.
#include <optional>
#include <string>
#include <utility>
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

/// Three mirrored variables of several types with optimizer state, a sync-on-read variable that is kept the same
/// everywhere, and one that differs by nature.
struct AttestedProgram {
  Strategy strategy = runtime().make_strategy();
  std::vector<MirroredVariable> variables;
  std::optional<SyncOnReadVariable> mean;

  AttestedProgram() {
    strategy.attest_first(0);  // these tests ask for each attestation themselves
    make("dense/weights", Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}, {2, 3}));
    make("steps", Tensor::scalar(std::int64_t{7}));
    make("dense/bias", Tensor::from({0.5F, -0.5F}, {2}));
    mean = strategy.create_sync_on_read({.name = "norm/mean"}, [] { return Tensor::from({0.25F, 4.0F}, {2}); });
    const auto counter = strategy.create_sync_on_read({.name = "counter"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    counter.assign(Tensor::scalar(1.0 + rank()));
    const std::vector<Variable> trained{variables[0], variables[2]};
    for (const VariableStore::FlatRange& range : strategy.store().ranges(trained)) (void)range.slot("momentum");
    strategy.store().counter("optimizer@steps") = 3;
  }

  void flip_bit(std::size_t variable) { flip_bit_of(variables[variable].local()); }

  void flip_bit_of(const TensorView& home) {
    const Tensor value = Tensor::on_host(home);
    value.view().data()[value.view().bytes() - 1] ^= std::byte{0x04};
    copy(value.view(), home, home.device() == DeviceKind::cpu ? Stream::host() : strategy.stream());
  }

  /// What is compared with `alike()`, each by its name in messages.
  std::vector<std::pair<std::string, TensorView>> compared() {
    std::vector<std::pair<std::string, TensorView>> all;
    for (const Variable& variable : variables)
      all.emplace_back("variable " + std::string{variable.label()}, variable.local());
    all.emplace_back("variable 'norm/mean'", mean->local());
    for (const detail::OptimizerState& state : inside(strategy.store()).optimizer_state())
      all.emplace_back("optimizer state '" + state.name + "'", state.value);
    return all;
  }
  std::vector<SyncOnReadVariable> alike() const { return {*mean}; }

  /// A run whose end attests, on the ranks where `asked`. Its result is different on every rank.
  void run(bool asked = true) {
    strategy.run([&](ReplicaContext& context) {
      if (asked) context.attest_at_end(alike());
      return context.all_reduce(ReduceOp::sum, rank()) + rank();
    });
  }

  /// The words of the DriftError, which are the same on every rank; empty where there was none.
  std::string attest() {
    return strategy.same_on_all(message_of<DriftError>([&] { strategy.attest(); })).value();
  }
  std::string attest_at_end() {
    return strategy.same_on_all(message_of<DriftError>([&] { run(); })).value();
  }

  std::uint64_t meetings() { return inside(strategy).group().meeting().meetings(); }

 private:
  void make(const char* name, const Tensor& value) {
    variables.push_back(strategy.create_variable({.name = name}, [&] { return value; }));
  }
};

std::string replica(int rank) {
  return "replica " + std::to_string(rank) + " (";
}

/// The words blame `culprit` for what is called `name`; on two ranks they say who holds what.
void check_blamed(const std::string& words, int culprit, const std::string& name) {
  if (ranks() > 2) {
    CHECK_THAT(words, Catch::StartsWith(replica(culprit)));
    CHECK_THAT(words, Catch::EndsWith(") differs from the others in " + name));
  } else {
    CHECK_THAT(words, Catch::StartsWith(replica(0)));
    CHECK_THAT(words, Catch::Contains("of " + name + ", " + replica(1)));
    CHECK_THAT(words, Catch::EndsWith(": no majority can be told"));
  }
}

}  // namespace

TEST_CASE("replicas that hold the same pass, for one agreement", "[C-36]") {
  AttestedProgram program;
  const auto before = program.meetings();
  program.strategy.attest();
  CHECK(program.meetings() == before + 1);
}

TEST_CASE("one bit on any rank in any variable is a DriftError that names both, and can be mended", "[C-36]") {
  if (ranks() == 1) return;
  AttestedProgram program;
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    for (std::size_t variable = 0; variable < program.variables.size(); ++variable) {
      CAPTURE(culprit, variable);
      if (rank() == culprit) program.flip_bit(variable);
      check_blamed(program.attest(), culprit, "variable " + std::string{program.variables[variable].label()});
      if (rank() == culprit) program.flip_bit(variable);
      CHECK(program.attest() == "");
    }
  }
}

TEST_CASE("of several variables the first created is named, with how many there are", "[C-36]") {
  if (ranks() < 3) return;
  AttestedProgram program;
  if (rank() == 1) program.flip_bit(2);
  if (rank() == 2) program.flip_bit(1);
  CHECK_THAT(program.attest(),
             Catch::StartsWith(replica(2)) && Catch::EndsWith("in variable 'steps', the first of 2 that differ"));
  program.strategy.rebroadcast();
  CHECK(program.attest() == "");
}

TEST_CASE("as many replicas on one side as on the other: the words say who holds what", "[C-36]") {
  if (ranks() != 4) return;
  AttestedProgram program;
  if (rank() % 2 == 1) program.flip_bit(0);
  const std::string words = program.attest();
  CHECK_THAT(words, Catch::StartsWith(replica(0)) && Catch::Contains(") and replica 2 hold digest ") &&
                        Catch::Contains(" of variable 'dense/weights', " + replica(1)) &&
                        Catch::Contains(") and replica 3 digest ") && Catch::EndsWith(": no majority can be told"));
}

TEST_CASE("what is not sealed yet, and what is each replica's own, is not compared", "[C-36]") {
  AttestedProgram program;
  (void)program.strategy.create_variable({.name = "late"}, [] { return Tensor::scalar(1.0F * rank()); });
  CHECK(program.attest() == "");
  program.strategy.seal();
  CHECK(program.attest() == "");
}

TEST_CASE("in a merge function the verdict ends the run, and the next one works", "[C-36]") {
  if (ranks() == 1) return;
  AttestedProgram program;
  if (rank() == ranks() - 1) program.flip_bit(0);
  const auto attested = [&] {
    program.strategy.run(
        [&](ReplicaContext& context) { context.merge_call([](Strategy& strategy) { strategy.attest(); }); });
  };
  CHECK_THROWS_AS(attested(), DriftError);
  program.strategy.rebroadcast();
  attested();
  program.strategy.run([&](ReplicaContext&) { CHECK_THROWS_AS(program.strategy.attest(), ContextError); });
}

TEST_CASE("a rank that attests alone is told so") {
  if (ranks() == 1) return;
  AttestedProgram program;
  if (rank() == 0) program.flip_bit(0);
  const std::string words = mismatch_of([&] {
    if (rank() == 1) {
      program.strategy.attest();
    } else {
      program.strategy.rebroadcast();
    }
  });
  CHECK_THAT(words, Catch::Contains("replica 1 (") && Catch::Contains("is at attest #") &&
                        Catch::Contains("the sealing of the variables"));
}

TEST_CASE("the end of a run attests without another agreement, run by run", "[C-36]") {
  AttestedProgram program;
  const auto agreements_of = [&](bool asked) {
    const auto before = program.meetings();
    program.run(asked);
    return program.meetings() - before;
  };
  const auto without = agreements_of(false);
  CHECK(without == 2);
  CHECK(agreements_of(true) == without);
  // The next run asks for itself.
  if (rank() == 0) program.flip_bit(0);
  CHECK(agreements_of(false) == without);
}

TEST_CASE("one bit on any rank of anything that is compared is found at the end of the run, and can be mended",
          "[C-36]") {
  if (ranks() == 1) return;
  AttestedProgram program;
  REQUIRE(program.compared().size() == 7);
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    for (const auto& [name, value] : program.compared()) {
      CAPTURE(culprit, name);
      if (rank() == culprit) program.flip_bit_of(value);
      check_blamed(program.attest_at_end(), culprit, name);
      if (rank() == culprit) program.flip_bit_of(value);
      program.run();
    }
  }
}

TEST_CASE("what is enqueued last in a run is in what its end compares") {
  if (ranks() == 1) return;
  AttestedProgram program;
  const Tensor ones = Tensor::from({1.0F, 1.0F}, {2});
  const auto assigning = [&](float own) {
    const Tensor value = Tensor::from({own, 1.0F}, {2});
    program.strategy.run([&](ReplicaContext& context) {
      context.attest_at_end(program.alike());
      copy(ones.view(), program.mean->local(), program.strategy.stream());
      copy(value.view(), program.mean->local(), program.strategy.stream());
    });
  };
  assigning(7);
  CHECK_THROWS_AS(assigning(7 + static_cast<float>(rank())), DriftError);
}

TEST_CASE("the error has what differs, who holds what, and who is to blame") {
  if (ranks() == 1) return;
  AttestedProgram program;
  const auto found = [&] {
    try {
      program.run();
    } catch (const DriftError& error) {
      return error.drift();
    }
    return DriftError::Drift{};
  };
  if (odd_one()) {
    program.flip_bit(1);
    program.flip_bit_of(program.mean->local());
  }
  const DriftError::Drift drift = found();
  REQUIRE(drift.values.size() == 2);
  CHECK(drift.values[0].name == "variable 'steps'");
  CHECK(drift.values[1].name == "variable 'norm/mean'");
  CHECK(drift.blamed == (ranks() > 2 ? std::vector{last()} : std::vector<int>{}));
  for (const DriftError::Value& value : drift.values) {
    REQUIRE(value.digests.size() == static_cast<std::size_t>(ranks()));
    for (int each = 0; each < ranks(); ++each) {
      const bool same = value.digests[static_cast<std::size_t>(each)] == value.digests.front();
      CHECK(same == (each != last()));
    }
    CHECK(program.strategy.same_on_all(value.digests).value() == value.digests);
  }
}

TEST_CASE("a rank that does not ask, or that alone does, is told apart from the others, whatever they hold") {
  if (ranks() == 1) return;
  AttestedProgram program;
  const std::string list =
      "variable 'dense/weights', variable 'steps', variable 'dense/bias', variable 'norm/mean', optimizer state '";
  for (const bool drifted : {false, true}) {
    CAPTURE(drifted);
    if (drifted && rank() == 0) program.flip_bit(0);
    CHECK_THAT(mismatch_of([&] { program.run(!odd_one()); }),
               Catch::Contains(" and returned i32") && Catch::Contains(", attesting " + list));
    CHECK_THAT(mismatch_of([&] { program.run(odd_one()); }), Catch::Contains(", attesting " + list));
    expect_in_step();
  }
}

TEST_CASE("ranks that attest other things than others are a mismatch") {
  if (ranks() == 1) return;
  AttestedProgram program;
  const auto attest = [&] { program.strategy.attest(odd_one() ? program.alike() : std::vector<SyncOnReadVariable>{}); };
  CHECK_THAT(mismatch_of(attest),
             Catch::Contains("is at attest #") && Catch::Contains("variable 'norm/mean', optimizer"));
  const auto run = [&] {
    program.strategy.run([&](ReplicaContext& context) {
      context.attest_at_end(odd_one() ? program.alike() : std::vector<SyncOnReadVariable>{});
    });
  };
  CHECK_THAT(mismatch_of(run), Catch::Contains("variable 'norm/mean', optimizer state"));
  if (odd_one()) (void)program.strategy.store().counter("another@steps");
  CHECK_THAT(mismatch_of([&] { program.run(); }),
             Catch::Contains("finished step ") && Catch::Contains(" and returned"));
  CHECK_THAT(mismatch_of([&] { program.strategy.attest(); }), Catch::Contains("bytes, digest "));
  expect_in_step();
}

TEST_CASE("a run that fails on one rank, or leaves out a merge_call, is that, whoever has drifted") {
  if (ranks() == 1) return;
  AttestedProgram program;
  if (rank() == 0) program.flip_bit(0);
  const auto failing = [&] {
    program.strategy.run([&](ReplicaContext& context) {
      context.attest_at_end();
      if (odd_one()) throw Error{"a rank on its own"};
    });
  };
  if (odd_one()) {
    CHECK_THROWS_WITH(failing(), "a rank on its own");
  } else {
    CHECK_THROWS_AS(failing(), PeerError);
  }
  const auto left_out = [&] {
    program.strategy.run([&](ReplicaContext& context) {
      context.attest_at_end();
      if (!odd_one()) (void)context.all_reduce(ReduceOp::sum, 1);
    });
  };
  CHECK_THAT(mismatch_of(left_out), Catch::Contains("some replicas made a different number of collective calls"));
  expect_in_step();
}

TEST_CASE("results of other structures are a mismatch where the run attests too") {
  if (ranks() == 1) return;
  AttestedProgram program;
  if (rank() == 0) program.flip_bit(0);
  const auto run = [&] {
    program.strategy.run([&](ReplicaContext& context) {
      context.attest_at_end();
      return std::vector<int>(odd_one() ? 3 : 2);
    });
  };
  CHECK_THAT(mismatch_of(run), Catch::Contains("returned ") && Catch::Contains(", attesting variable 'dense/weights'"));
}

TEST_CASE("a run inside of a merge function attests at its own end") {
  if (ranks() == 1) return;
  AttestedProgram program;
  if (odd_one()) program.flip_bit(2);
  const auto outer = [&](bool inner_asks) {
    program.strategy.run(
        [&](ReplicaContext& context) { context.merge_call([&](Strategy&) { program.run(inner_asks); }); });
  };
  outer(false);
  CHECK_THROWS_AS(outer(true), DriftError);
  expect_in_step();
}
