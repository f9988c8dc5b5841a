// What an attestation finds where replicas that should be equal are not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>

namespace lockstep {

/// A value that every replica holds, and that is not the same on all of them.
struct DriftedValue {
  std::string name;                    ///< "variable 'w'", "optimizer state 'w@momentum'"
  std::vector<std::uint64_t> digests;  ///< of the bytes that each replica holds, in their order
};

struct Drift {
  std::vector<DriftedValue> values;  ///< in the order in which they are compared; at least one
  /// The replicas outside of the majority on the first of the values, ascending; none where there is no majority.
  std::vector<int> blamed;
};

/// The AttestationError of the ranks, with all that they know: the same on every rank.
class DriftError : public AttestationError {
 public:
  DriftError(const std::string& what, Drift drift)
      : AttestationError{what}, drift_{std::make_shared<const Drift>(std::move(drift))} {}

  const Drift& drift() const { return *drift_; }

 private:
  std::shared_ptr<const Drift> drift_;  ///< shared: copies of an exception must not throw
};

}  // namespace lockstep
