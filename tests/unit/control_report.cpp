// Which process of a job reports its end.
#include <cstdlib>

#include <catch2/catch.hpp>

#include "control/report_claim.hpp"
#include "support/child_process.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;
using lockstep::test::Table;

namespace {

/// A rank of the job of that name, started by this process as the others are, that claims the report and stays.
ChildProcess claiming_rank(const char* job) {
  return ChildProcess{[job] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    if (!claim_report(nullptr)) return 1;
    return ::pause();
  }};
}

/// What another rank of that job is told: 1 that it may report.
int claims(const char* job, PhaseTable* table = nullptr) {
  ChildProcess rank{[&] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    return claim_report(table) ? 1 : 0;
  }};
  return rank.wait();
}

bool is_claimed(const char* job) {
  ChildProcess rank{[&] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    return report_is_claimed() ? 1 : 0;
  }};
  return rank.wait() == 1;
}

}  // namespace

TEST_CASE("one rank of a job claims the report, until it is gone") {
  CHECK_FALSE(is_claimed("a job"));
  const ChildProcess first = claiming_rank("a job");
  REQUIRE(eventually([] { return is_claimed("a job"); }));
  CHECK(claims("a job") == 0);
  CHECK(claims("another job") == 1);
  first.signal(SIGKILL);
  first.wait_for_end();
  CHECK_FALSE(is_claimed("a job"));
}

TEST_CASE("a report that was claimed in the phase table stays claimed") {
  Table table;
  CHECK(claims("a job with a table", &table.rows) == 1);
  CHECK(claims("a job with a table", &table.rows) == 0);
  CHECK(table.rows.reported());
}

TEST_CASE("where the launcher names no job, the phase table decides alone") {
  REQUIRE(std::getenv("PMIX_NAMESPACE") == nullptr);
  Table table;
  CHECK(claim_report(&table.rows));
  CHECK_FALSE(claim_report(&table.rows));
  CHECK(claim_report(nullptr));
  CHECK_FALSE(report_is_claimed());
}
