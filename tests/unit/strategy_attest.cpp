// From the digests of all replicas to a sentence; what the ranks do about it is the strategy suite's.
#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/exit_code.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/attestation.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using detail::Attestation;
using detail::judge_drift;

namespace {

const std::vector<detail::ComparedValue> values{{"variable 'dense/weights'"},
                                                {"optimizer state 'dense/weights@momentum'"}};

std::vector<std::string> replicas(int count) {
  std::vector<std::string> names;
  for (int r = 0; r < count; ++r)
    names.push_back("replica " + std::to_string(r) + " (worker:" + std::to_string(r) + ", host b)");
  return names;
}

/// `digests` are those of the weights; the momenta are equal.
Verdict judged(const std::vector<std::uint64_t>& digests) {
  std::vector<std::uint64_t> all;
  for (const std::uint64_t each : digests) all.insert(all.end(), {each, 77});
  return judge_drift(values, all, replicas(static_cast<int>(digests.size())));
}

}  // namespace

TEST_CASE("the replica outside of the majority is blamed") {
  const Verdict verdict = judged({5, 5, 6});
  CHECK(verdict.rank == 2);
  CHECK(verdict.code == Error::ExitCode::replicas_differ);
  CHECK_FALSE(verdict.failed);
  CHECK(verdict.sentence == "replica 2 (worker:2, host b) differs from the others in variable 'dense/weights'");
  CHECK(judged({6, 5, 5, 5}).rank == 0);
}

TEST_CASE("all that are outside of the majority are blamed, ascending, whether they agree among themselves or not") {
  for (const std::uint64_t other : {6U, 7U}) {
    const Verdict verdict = judged({5, other, 5, 6, 5});
    CHECK(verdict.rank == 1);
    CHECK(verdict.sentence ==
          "replica 1 (worker:1, host b) and replica 3 differ from the others in variable 'dense/weights'");
  }
  CHECK_THAT(judged({1, 5, 2, 5, 6, 5, 5}).sentence,
             Catch::StartsWith("replica 0 (worker:0, host b) and replicas 2, 4 differ from"));
}

TEST_CASE("without a majority the sentence says who holds what") {
  CHECK(judged({5, 0xabc}).sentence ==
        "replica 0 (worker:0, host b) holds digest 0000000000000005 of variable 'dense/weights', replica 1 (worker:1, "
        "host b) digest 0000000000000abc: no majority can be told");
  CHECK(
      judged({5, 6, 5, 6}).sentence ==
      "replica 0 (worker:0, host b) and replica 2 hold digest 0000000000000005 of variable 'dense/weights', replica 1 "
      "(worker:1, host b) and replica 3 digest 0000000000000006: no majority can be told");
  CHECK_THAT(judged({5, 5, 6, 7}).sentence, Catch::Contains("digest 0000000000000007: no majority can be told"));
  CHECK(judged({5, 6}).code == Error::ExitCode::replicas_differ);
  CHECK(judged({5, 6}).rank == 0);
}

TEST_CASE("the first value that differs is named, and how many there are") {
  CHECK(judge_drift(values, std::vector<std::uint64_t>{1, 2, 1, 3, 1, 2}, replicas(3)).sentence ==
        "replica 1 (worker:1, host b) differs from the others in optimizer state 'dense/weights@momentum'");
  CHECK(judge_drift(values, std::vector<std::uint64_t>{1, 2, 1, 3, 4, 2}, replicas(3)).sentence ==
        "replica 2 (worker:2, host b) differs from the others in variable 'dense/weights', the first of 2 that differ");
  CHECK(judge_drift(values, std::vector<std::uint64_t>{1, 2, 1, 3}, replicas(2)).sentence ==
        "replica 0 (worker:0, host b) holds digest 0000000000000002 of optimizer state 'dense/weights@momentum', "
        "replica 1 (worker:1, host b) digest 0000000000000003: no majority can be told");
}

TEST_CASE("the verdict's exception has all that differs, who holds what, and who is to blame") {
  const auto drift_of = [](const std::vector<std::uint64_t>& digests, int count) {
    const Verdict verdict = judge_drift(values, digests, replicas(count));
    try {
      std::rethrow_exception(verdict.exception);
    } catch (const DriftError& error) {
      CHECK(error.what() == verdict.sentence);
      CHECK(exit_code_of(error) == Error::ExitCode::replicas_differ);
      return error.drift();
    }
  };
  const DriftError::Drift both = drift_of({1, 2, 1, 3, 4, 2}, 3);
  REQUIRE(both.values.size() == 2);
  CHECK(both.values[0].name == values[0].name);
  CHECK(both.values[0].digests == std::vector<std::uint64_t>{1, 1, 4});
  CHECK(both.values[1].name == values[1].name);
  CHECK(both.values[1].digests == std::vector<std::uint64_t>{2, 3, 2});
  CHECK(both.blamed == std::vector<int>{2});

  const DriftError::Drift second = drift_of({1, 2, 1, 3, 1, 2, 1, 2, 1, 4}, 5);
  REQUIRE(second.values.size() == 1);
  CHECK(second.values[0].name == values[1].name);
  CHECK(second.blamed == std::vector<int>{1, 4});
  CHECK(drift_of({1, 2, 1, 3}, 2).blamed.empty());
}

namespace {

struct Attested {
  std::string text;
  std::uint64_t digest;
  bool operator==(const Attested&) const = default;
};

Attested attested(Strategy& strategy, const std::vector<SyncOnReadVariable>& alike = {}) {
  const Attestation attestation{strategy.store(), alike, Here::current()};
  return {attestation.text(), attestation.comparison().digest};
}

/// Changes each byte of `value` in turn, and back: each of them must show in the digest, and none in the text.
void check_every_byte(const TensorView& value, Strategy& strategy, const std::vector<SyncOnReadVariable>& alike) {
  const Attested begin = attested(strategy, alike);
  for (std::size_t byte = 0; byte < value.bytes(); ++byte) {
    value.data()[byte] ^= std::byte{1};
    const Attested changed = attested(strategy, alike);
    CHECK(changed.digest != begin.digest);
    CHECK(changed.digest != 0);
    CHECK(changed.text == begin.text);
    value.data()[byte] ^= std::byte{1};
  }
  CHECK(attested(strategy, alike) == begin);
}

}  // namespace

TEST_CASE("an attestation follows every byte of mirrored variables, optimizer state and what it is told to, only") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const Attested none = attested(strategy);
  CHECK(none.text.empty());
  const auto a = strategy.create_variable({.name = "a"}, [] { return Tensor::from({1.0F, 2.0F}, {2}); });
  const auto b =
      strategy.create_variable({.name = "b", .trainable = false}, [] { return Tensor::scalar(std::int64_t{3}); });
  const auto mean = strategy.create_sync_on_read({.name = "mean"}, [] { return Tensor::scalar(1.0); });
  const auto own = strategy.create_sync_on_read({.name = "own"}, [] { return Tensor::scalar(1.0); });
  CHECK(attested(strategy) == none);
  strategy.seal();
  CHECK(attested(strategy).text == "variable 'a', variable 'b'");
  const VariableStore::FlatRange range = strategy.store().ranges(std::vector<Variable>{a}).front();
  (void)range.slot("momentum");
  strategy.store().counter("optimizer@steps") = 4;

  CHECK(attested(strategy).text ==
        "variable 'a', variable 'b', optimizer state 'a@momentum', optimizer state 'optimizer@steps'");
  CHECK(attested(strategy, {mean}).text ==
        "variable 'a', variable 'b', variable 'mean', optimizer state 'a@momentum', optimizer state 'optimizer@steps'");
  const Attested begin = attested(strategy, {mean});
  own.assign(Tensor::scalar(2.0));
  CHECK(attested(strategy, {mean}) == begin);
  for (const Variable& variable : {Variable{a}, Variable{b}, Variable{mean}})
    check_every_byte(variable.local(), strategy, {mean});
  for (const detail::OptimizerState& state : inside(strategy.store()).optimizer_state())
    check_every_byte(state.value, strategy, {mean});
}

TEST_CASE("a variable of another strategy, or without memory, cannot be attested") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group), another = strategy_on(*group);
  const auto make = [](Strategy& its) {
    return its.create_sync_on_read({.name = "mean"}, [] { return Tensor::scalar(1.0); });
  };
  const auto early = make(strategy);
  const auto foreign = make(another);
  another.seal();
  CHECK_THROWS_WITH(strategy.attest({early}), Catch::Contains("variable 'mean' has no memory yet"));
  strategy.seal();
  strategy.attest({early});
  CHECK_THROWS_WITH(strategy.attest({foreign}), Catch::EndsWith("variable 'mean' is another strategy's"));
  const auto run = [&] { strategy.run([&](ReplicaContext& context) { context.attest_at_end({foreign}); }); };
  CHECK_THROWS_WITH(run(), Catch::EndsWith("variable 'mean' is another strategy's"));
}

TEST_CASE("only replica code can ask for the end of its run") {
  CHECK_THROWS_WITH(ReplicaContext::current()->attest_at_end(),
                    Catch::StartsWith("attest_at_end (strategy_attest.cpp:") && Catch::Contains("outside of run()"));
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  strategy.run([&](ReplicaContext& context) {
    context.merge_call([&](Strategy&) { CHECK_THROWS_AS(context.attest_at_end(), ContextError); });
  });
}
