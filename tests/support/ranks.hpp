// What the suites of tests/mpi have at hand on each rank. They are compiled once and linked with either runner:
// support/mpi_main.cpp, for ranks under mpirun, or job/sim/sim_main.cpp, for simulated ranks.
#pragma once

#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep::test {

/// What the tests use of a Runtime.
class RankRuntime {
 public:
  explicit RankRuntime(Strategy& strategy) : strategy_{strategy} {}

  Strategy& strategy() { return strategy_; }
  Strategy make_strategy(Here here = Here::current()) { return make_strategy({}, here); }
  Strategy make_strategy(const ReductionOptions& reductions, Here here = Here::current()) {
    return strategy_.make_sibling(reductions, here);
  }
  int rank() const { return strategy_.rank(); }
  int size() const { return strategy_.num_replicas_in_sync(); }
  bool is_chief() const { return rank() == 0; }

 private:
  Strategy& strategy_;
};

/// The runtime of this rank.
RankRuntime& runtime();

/// Runs the body of a test on this rank, or on every rank of jobs that it starts.
void on_each_rank(void (*body)());

inline int ranks() {
  return runtime().size();
}
inline int rank() {
  return runtime().rank();
}

/// The rank that does otherwise than the others, where a test has one.
inline int last() {
  return ranks() - 1;
}
inline bool odd_one() {
  return rank() == last();
}

/// 1 + 2 + … + ranks.
inline int triangle() {
  return ranks() * (ranks() + 1) / 2;
}

/// What `body` throws on this rank; empty if nothing.
template <class Expected, class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  return {};
}
template <class Body>
std::string mismatch_of(Body&& body) {
  return message_of<MismatchError>(body);
}

/// The ranks still meet, whatever went wrong before.
inline void expect_in_step() {
  CHECK(runtime().strategy().reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());
}

}  // namespace lockstep::test

// Each TEST_CASE of a suite runs as its runner says.
#define LOCKSTEP_TEST_ON_EACH_RANK(body, ...) \
  static void body();                         \
  INTERNAL_CATCH_TESTCASE(__VA_ARGS__) {      \
    ::lockstep::test::on_each_rank(&body);    \
  }                                           \
  static void body()

#undef TEST_CASE
#define TEST_CASE(...) LOCKSTEP_TEST_ON_EACH_RANK(INTERNAL_CATCH_UNIQUE_NAME(on_ranks), __VA_ARGS__)
