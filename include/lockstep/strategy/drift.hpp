// What an attestation finds if replicas that should be equal are not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>

namespace lockstep {

/// The AttestationError that every rank throws, with all that the ranks know. The same on every rank.
class DriftError : public AttestationError {
 public:
  /// A value that every replica holds but that is not the same on all of them.
  struct Value {
    std::string name;                    ///< "variable 'w'", "optimizer state 'w@momentum'"
    std::vector<std::uint64_t> digests;  ///< of each replica's bytes, in replica order
  };

  /// All that the ranks know of the difference.
  struct Drift {
    std::vector<Value> values;  ///< in the order of comparison; at least one
    /// The replicas outside the majority on the first of `values`, ascending; empty if there is no majority.
    std::vector<int> blamed;
  };

  DriftError(const std::string& what, Drift drift)
      : AttestationError{what}, drift_{std::make_shared<const Drift>(std::move(drift))} {}

  const Drift& drift() const { return *drift_; }

 private:
  std::shared_ptr<const Drift> drift_;  ///< shared: copying an exception must not throw
};

}  // namespace lockstep
