// Finding replicas that drifted: one of them, or several, flip a bit in one variable.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Three mirrored variables of several types, and one that differs by nature.
struct Program {
  Strategy strategy = runtime().make_strategy();
  std::vector<MirroredVariable> variables;

  Program() {
    make("dense/weights", Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}, {2, 3}));
    make("steps", Tensor::scalar(std::int64_t{7}));
    make("dense/bias", Tensor::from({0.5F, -0.5F}, {2}));
    const auto counter = strategy.create_sync_on_read({.name = "counter"}, [] { return Tensor::scalar(1.0); });
    strategy.seal();
    counter.assign(Tensor::scalar(1.0 + rank()));
  }

  void flip_bit(std::size_t variable) {
    const TensorView home = variables[variable].local();
    const Tensor value = Tensor::on_host(home);
    value.view().data()[value.view().bytes() - 1] ^= std::byte{0x04};
    copy(value.view(), home, strategy.stream());
  }

  /// The words of the AttestationError, which are the same on every rank; empty where there was none.
  std::string attest() {
    return strategy.same_on_all(message_of<AttestationError>([&] { strategy.attest(); })).value();
  }

  std::uint64_t meetings() { return strategy.group().meeting().meetings(); }

 private:
  void make(const char* name, const Tensor& value) {
    variables.push_back(strategy.create_variable({.name = name}, [&] { return value; }));
  }
};

std::string replica(int rank) {
  return "replica " + std::to_string(rank) + " (";
}

}  // namespace

TEST_CASE("replicas that hold the same pass, for one agreement", "[C-36]") {
  Program program;
  const auto before = program.meetings();
  program.strategy.attest();
  CHECK(program.meetings() == before + 1);
}

TEST_CASE("one bit on any rank in any variable is an AttestationError that names both, and can be mended", "[C-36]") {
  if (ranks() == 1) return;
  Program program;
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    for (std::size_t variable = 0; variable < program.variables.size(); ++variable) {
      CAPTURE(culprit, variable);
      if (rank() == culprit) program.flip_bit(variable);
      const std::string words = program.attest();
      const std::string name{program.variables[variable].name()};
      if (ranks() > 2) {
        CHECK_THAT(words, Catch::StartsWith(replica(culprit)) &&
                              Catch::EndsWith(") differs from the others in variable '" + name + "'"));
      } else {
        CHECK_THAT(words, Catch::StartsWith(replica(0)) && Catch::Contains("of variable '" + name + "', replica 1 (") &&
                              Catch::EndsWith(": no majority can be told"));
      }
      if (rank() == culprit) program.flip_bit(variable);
      CHECK(program.attest() == "");
    }
  }
}

TEST_CASE("of several variables the first created is named, with how many there are", "[C-36]") {
  if (ranks() < 3) return;
  Program program;
  if (rank() == 1) program.flip_bit(2);
  if (rank() == 2) program.flip_bit(1);
  CHECK_THAT(program.attest(),
             Catch::StartsWith(replica(2)) && Catch::EndsWith("in variable 'steps', the first of 2 that differ"));
  program.strategy.rebroadcast();
  CHECK(program.attest() == "");
}

TEST_CASE("as many replicas on one side as on the other: the words say who holds what", "[C-36]") {
  if (ranks() != 4) return;
  Program program;
  if (rank() % 2 == 1) program.flip_bit(0);
  const std::string words = program.attest();
  CHECK_THAT(words, Catch::StartsWith(replica(0)) && Catch::Contains(") and replica 2 hold digest ") &&
                        Catch::Contains(" of variable 'dense/weights', " + replica(1)) &&
                        Catch::Contains(") and replica 3 digest ") && Catch::EndsWith(": no majority can be told"));
}

TEST_CASE("what is not sealed yet, and what is each replica's own, is not compared", "[C-36]") {
  Program program;
  (void)program.strategy.create_variable({.name = "late"}, [] { return Tensor::scalar(1.0F * rank()); });
  CHECK(program.attest() == "");
  program.strategy.seal();
  CHECK(program.attest() == "");
}

TEST_CASE("in a merge function the verdict ends the run, and the next one works", "[C-36]") {
  if (ranks() == 1) return;
  Program program;
  if (rank() == ranks() - 1) program.flip_bit(0);
  const auto attested = [&] {
    program.strategy.run(
        [&](ReplicaContext& context) { context.merge_call([](Strategy& strategy) { strategy.attest(); }); });
  };
  CHECK_THROWS_AS(attested(), AttestationError);
  program.strategy.rebroadcast();
  attested();
  program.strategy.run([&](ReplicaContext&) { CHECK_THROWS_AS(program.strategy.attest(), ContextError); });
}

TEST_CASE("a rank that attests alone is told so") {
  if (ranks() == 1) return;
  Program program;
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
