// From the digests of all replicas to a sentence; what the ranks do about it is the strategy suite's.
#include <catch2/catch.hpp>

#include <lockstep/strategy/strategy.hpp>

#include "strategy/attestation.hpp"

using namespace lockstep;
using detail::Attestation;
using detail::judge_drift;

namespace {

const std::vector<std::string> variables{"'dense/weights'", "'dense/bias'"};

std::vector<std::string> replicas(int count) {
  std::vector<std::string> names;
  for (int r = 0; r < count; ++r)
    names.push_back("replica " + std::to_string(r) + " (worker:" + std::to_string(r) + ", host b)");
  return names;
}

/// `digests` are those of the weights; the biases are equal.
Verdict judged(const std::vector<std::uint64_t>& digests) {
  std::vector<std::uint64_t> all;
  for (const std::uint64_t each : digests) all.insert(all.end(), {each, 77});
  return judge_drift(variables, all, replicas(static_cast<int>(digests.size())));
}

}  // namespace

TEST_CASE("the replica outside of the majority is blamed") {
  const Verdict verdict = judged({5, 5, 6});
  CHECK(verdict.rank == 2);
  CHECK(verdict.code == ExitCode::replicas_differ);
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
  CHECK(judged({5, 6}).code == ExitCode::replicas_differ);
}

TEST_CASE("the first variable that differs is named, and how many there are") {
  CHECK(judge_drift(variables, std::vector<std::uint64_t>{1, 2, 1, 3, 1, 2}, replicas(3)).sentence ==
        "replica 1 (worker:1, host b) differs from the others in variable 'dense/bias'");
  CHECK(judge_drift(variables, std::vector<std::uint64_t>{1, 2, 1, 3, 4, 2}, replicas(3)).sentence ==
        "replica 2 (worker:2, host b) differs from the others in variable 'dense/weights', the first of 2 that differ");
}

TEST_CASE("the text of an attestation follows every byte of every sealed mirrored variable, and nothing else") {
  const auto group = make_local_group();
  Strategy strategy{*group};
  const auto text = [&] { return Attestation{strategy.store()}.text(); };
  const std::string none = text();
  const auto a = strategy.create_variable({.name = "a"}, [] { return Tensor::from({1.0F, 2.0F}, {2}); });
  const auto b = strategy.create_variable({.name = "b"}, [] { return Tensor::scalar(std::int64_t{3}); });
  const auto own = strategy.create_sync_on_read({.name = "own"}, [] { return Tensor::scalar(1.0); });
  CHECK(text() == none);
  strategy.seal();
  const std::string begin = text();
  CHECK(begin != none);
  own.assign(Tensor::scalar(2.0));
  CHECK(text() == begin);
  for (const Variable& variable : {Variable{a}, Variable{b}}) {
    for (std::size_t byte = 0; byte < variable.local().bytes(); ++byte) {
      variable.local().data()[byte] ^= std::byte{1};
      CHECK(text() != begin);
      variable.local().data()[byte] ^= std::byte{1};
    }
  }
  CHECK(text() == begin);
}
