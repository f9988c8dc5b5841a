// Signals that reach a job from outside while it trains.
#include <csignal>
#include <optional>

#include <catch2/catch.hpp>

#include "faults/running_job.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

/// Sends a signal to one process of a job on `ranks` ranks; nothing may be left of it.
End send_to(std::optional<int> rank, int signal, int ranks) {
  return end_of(on_this_host(ranks), [&](RunningJob& job) { job.send(signal, rank); });
}

}  // namespace

TEST_CASE("a rank that is killed at any moment is named, and the job ends within 5 s", "[B-46][K-22]") {
  const int rank = GENERATE(0, 1, 2);
  const End end = send_to(rank, SIGKILL, 3);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == 137);
  CHECK(end.after < 5s);
  check_blames(end.outcome.err, rank, "is gone: its process ended");
}

TEST_CASE("a rank that is stopped at any moment is named, and the job ends within 5 s of the stall timeout", "[B-45]") {
  const int rank = GENERATE(0, 1);
  const End end = send_to(rank, SIGSTOP, 2);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == 5);
  CHECK(end.after > 1.5s);
  CHECK(end.after < 2s + 5s);
  check_blames(end.outcome.err, rank, "has stopped: no sign of life for 2 s");
}

TEST_CASE("a rank that is terminated alone is named") {
  const End end = send_to(1, SIGTERM, 3);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < 5s);
  check_blames(end.outcome.err, 1, "is gone: SIGTERM ended it");
}

TEST_CASE("mpirun that is interrupted or terminated takes the whole job along, and one line says in which step") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const End end = send_to(std::nullopt, signal, 3);
  INFO("signal: " << signal << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < 5s);
  check_interrupted(end.outcome.err);
}
