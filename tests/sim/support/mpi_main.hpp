// Stands in for tests/support/mpi_main.hpp where a suite of tests/mpi is compiled for simulated ranks: the same tests,
// each of them on every rank of several jobs of sim::run.
#pragma once

#include <catch2/catch.hpp>

#include <lockstep/sim/sim.hpp>

namespace lockstep::test {

/// What the tests use of a Runtime, for the rank that runs.
class SimRuntime {
 public:
  explicit SimRuntime(Strategy& strategy) : strategy_{strategy} {}

  Strategy& strategy() { return strategy_; }
  Strategy make_strategy(Here here = Here::current()) { return make_strategy({}, here); }
  Strategy make_strategy(const ReductionOptions& reductions, Here here = Here::current()) {
    return lockstep::make_strategy(strategy_.group(), reductions, here);
  }
  int rank() const { return strategy_.group().rank(); }
  int size() const { return strategy_.group().size(); }
  bool is_chief() const { return rank() == 0; }

 private:
  Strategy& strategy_;
};

SimRuntime& runtime();

/// Runs `body` on the ranks of one job after the other, each of another size.
void on_ranks_of_several_jobs(void (*body)());

}  // namespace lockstep::test

#define LOCKSTEP_TEST_ON_RANKS(body, ...)              \
  static void body();                                  \
  INTERNAL_CATCH_TESTCASE(__VA_ARGS__) {               \
    ::lockstep::test::on_ranks_of_several_jobs(&body); \
  }                                                    \
  static void body()

#undef TEST_CASE
#define TEST_CASE(...) LOCKSTEP_TEST_ON_RANKS(INTERNAL_CATCH_UNIQUE_NAME(on_each_rank), __VA_ARGS__)
