// What a simulated job ended with: as a whole, and on each rank.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "core/control/exceptions.hpp"

namespace lockstep::test {

/// Exceptions are looked at from outside of the job: an assertion around a collective would catch what takes a rank
/// out of it.
struct SimOutcome {
  std::exception_ptr thrown;                ///< by run
  std::vector<std::exception_ptr> of_rank;  ///< what left the body; null for nothing, and for a rank that is gone
  std::vector<bool> ended;                  ///< whether anything did, or it returned
  std::string line;                         ///< what it reported

  bool failed() const { return thrown != nullptr; }

  /// Of run, or of a rank.
  std::string what(int rank = -1) const { return picked(rank) ? message_of(picked(rank)) : "nothing"; }

  template <class E>
  bool is(int rank = -1) const {
    try {
      if (picked(rank)) std::rethrow_exception(picked(rank));
    } catch (const E&) {
      return true;
    } catch (...) {
    }
    return false;
  }

 private:
  const std::exception_ptr& picked(int rank) const {
    return rank < 0 ? thrown : of_rank[static_cast<std::size_t>(rank)];
  }
};

/// For an expectation in a rank, whose exception ends the simulated job.
inline void expect(bool holds, const std::string& what) {
  if (!holds) throw Error{"expected " + what};
}

/// How sentences call a rank of a simulated job.
inline std::string replica_name(int rank) {
  return "replica " + std::to_string(rank) + " (worker:" + std::to_string(rank) + ", host sim)";
}

inline SimOutcome outcome_of(sim::Options options, const std::function<void(Strategy&, int)>& body) {
  SimOutcome outcome;
  outcome.of_rank.resize(static_cast<std::size_t>(options.ranks));
  outcome.ended.resize(outcome.of_rank.size());
  options.report = [&](std::string_view line) { outcome.line = line; };
  try {
    sim::run(std::move(options), [&](Strategy& strategy, int rank) {
      const auto index = static_cast<std::size_t>(rank);
      try {
        body(strategy, rank);
      } catch (const std::exception&) {
        outcome.of_rank[index] = std::current_exception();
        outcome.ended[index] = true;
        throw;
      }
      outcome.ended[index] = true;
    });
  } catch (...) {
    outcome.thrown = std::current_exception();
  }
  return outcome;
}

}  // namespace lockstep::test
