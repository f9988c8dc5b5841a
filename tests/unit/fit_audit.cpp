// From the results of an audit to a sentence.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "sync/strategy/audit_verdict.hpp"

using namespace lockstep;
using Digests = AuditedShard::Digests;

namespace {

const std::vector<std::string> values{"samples", "gradient of 'w'", "loss"};
const Digests right{1, 2, 3}, wrong{1, 9, 3}, misread{7, 8, 9};

std::vector<std::string> replicas(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t r = 0; r < count; ++r)
    names.push_back("replica " + std::to_string(r) + " (worker:" + std::to_string(r) + ", host b)");
  return names;
}

AuditError::Finding finding_of(const Verdict& verdict) {
  try {
    std::rethrow_exception(verdict.exception);
  } catch (const AuditError& error) {
    CHECK(error.what() == verdict.sentence);
    return error.finding();
  }
}

Verdict judged(const std::vector<AuditedShard>& shards) {
  return judge_audit(120, values, shards, replicas(shards.front().again.size()));
}

/// Shard 5 is replica 1's, and replica 0 audits it.
AuditedShard shard(const Digests& of_owner, const Digests& of_auditor, std::vector<Digests> again) {
  return {5, 1, 0, of_owner, of_auditor, std::move(again)};
}

}  // namespace

TEST_CASE("who gets another result than most is to blame") {
  const Verdict verdict = judged({shard(wrong, right, {right, wrong, right})});
  CHECK(verdict.sentence ==
        "replica 1 (worker:1, host b) computed shard 5 of step 120 wrong: gradient of 'w' differs from replicas 0 and "
        "2");
  CHECK(verdict.rank == 1);
  CHECK(verdict.code == Error::ExitCode::miscomputed);
  CHECK_FALSE(verdict.failed);
  const AuditError::Finding finding = finding_of(verdict);
  CHECK(finding.step == 120);
  CHECK(finding.shard == 5);
  CHECK(finding.value == "gradient of 'w'");
  CHECK(finding.blamed == std::vector{1});
}

TEST_CASE("an auditor may be wrong itself, and so may a rank that only judges") {
  const Verdict auditor = judged({shard(right, wrong, {wrong, right, right, right})});
  CHECK(auditor.rank == 0);
  CHECK_THAT(auditor.sentence, Catch::StartsWith("replica 0 (worker:0, host b) computed shard 5 of step 120 wrong"));
  CHECK_THAT(auditor.sentence, Catch::EndsWith("differs from replicas 1, 2 and 3"));
  CHECK(finding_of(judged({shard(wrong, right, {right, wrong, wrong, right, right})})).blamed == std::vector{1, 2});
}

TEST_CASE("a rank that was wrong once is to blame, and the sentence says that it was right afterwards") {
  for (const std::size_t ranks : {2U, 3U, 4U}) {
    const Verdict verdict = judged({shard(wrong, right, std::vector<Digests>(ranks, right))});
    CHECK(verdict.rank == 1);
    CHECK_THAT(verdict.sentence, Catch::Contains("gradient of 'w' differs from replica") &&
                                     Catch::EndsWith("; computed again, it was right"));
  }
}

TEST_CASE("other samples are named before what follows from them") {
  CHECK(judged({shard(misread, right, {right, misread, right})}).sentence ==
        "replica 1 (worker:1, host b) read other samples than replicas 0 and 2 for shard 5 of step 120");
  CHECK(judged({shard(misread, right, {right, right})}).sentence ==
        "replica 1 (worker:1, host b) read other samples than replica 0 for shard 5 of step 120; when it read them "
        "again, they were the same");
}

TEST_CASE("of two replicas that both repeat their results, nobody can tell which one is wrong") {
  const Verdict verdict = judged({shard(wrong, right, {right, wrong})});
  CHECK(finding_of(verdict).blamed.empty());
  CHECK(verdict.sentence ==
        "replica 0 (worker:0, host b) and replica 1 have different results for shard 5 of step 120, and get them "
        "again: gradient of 'w' differs; of two, nobody can tell which one is wrong");
}

TEST_CASE("of two replicas that read other samples again and again, samples differ") {
  CHECK_THAT(judged({shard(misread, right, {right, misread})}).sentence,
             Catch::Contains("and get them again: samples differ; of two, nobody"));
}

TEST_CASE("of two replicas, one that gets a third result is to blame, and so is one that gets two alone") {
  const Digests third{1, 2, 4};
  CHECK(judged({shard(wrong, right, {right, third})}).rank == 1);
  const Verdict alone =
      judge_audit(7, values, std::vector<AuditedShard>{{2, 0, 0, wrong, right, {right}}}, replicas(1));
  CHECK(alone.sentence ==
        "replica 0 (worker:0, host b) computed shard 2 of step 7 twice, with different results: gradient of 'w' "
        "differs");
  CHECK(finding_of(alone).blamed == std::vector{0});
}

TEST_CASE("a replica that is wrong about its own shard and another's is blamed once") {
  const AuditedShard own{5, 1, 0, wrong, right, {right, wrong, right}};
  const AuditedShard of_other{9, 2, 1, right, wrong, {right, wrong, right}};
  const AuditError::Finding finding = finding_of(judged({own, of_other}));
  CHECK(finding.blamed == std::vector{1});
  CHECK(finding.shard == 5);
}

TEST_CASE("of several that are wrong, the first is named with what is wrong, and the others after it") {
  const Verdict one_host = judged({shard(wrong, right, {right, wrong, wrong, right, right})});
  CHECK(one_host.sentence ==
        "replica 1 (worker:1, host b) computed shard 5 of step 120 wrong: gradient of 'w' differs from replicas 0, 3 "
        "and 4; replica 2 was wrong in this step too");
  const AuditedShard of_three{13, 3, 0, wrong, right, {right, right, right, right}};
  const Verdict two = judged({{5, 1, 0, misread, right, {right, misread, right, right}}, of_three});
  CHECK(
      two.sentence ==
      "replica 1 (worker:1, host b) read other samples than replicas 0, 2 and 3 for shard 5 of step 120; replica 3 was "
      "wrong in this step too");
  CHECK(finding_of(two).blamed == std::vector{1, 3});
}

TEST_CASE("a rank that cannot compute a shard again is neither right nor wrong") {
  const Digests none;
  CHECK(finding_of(judged({shard(wrong, right, {right, none, none, none})})).blamed == std::vector{1});
  CHECK(finding_of(judged({shard(wrong, right, {none, none})})).blamed.empty());
  CHECK(finding_of(judged({shard(wrong, right, {none, wrong, right, none, right})})).blamed == std::vector{1});
}

TEST_CASE("without a majority among more than two, the sentence does not speak of two") {
  CHECK_THAT(judged({shard(wrong, right, {right, wrong, right, wrong})}).sentence,
             Catch::EndsWith("; no result is that of most replicas"));
}
