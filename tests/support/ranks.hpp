// What the suites of tests/mpi say of their ranks. Under mpirun and on simulated ranks alike: support/mpi_main.hpp is
// the one of the program that is compiled.
#pragma once

#include <string>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "support/mpi_main.hpp"

namespace lockstep::test {

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
