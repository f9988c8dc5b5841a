// Counts the library's agreements over MPI.
#pragma once

#include <algorithm>
#include <cstdint>

#include "apps/lockstep-bench/agreement_listener.hpp"

namespace lockstep::bench {

/// Agreements of this rank, on any communicator.
struct Agreements {
  std::int64_t count = 0;
  std::int64_t smallest_bytes = 0;  ///< of a round; both 0 before the first
  std::int64_t largest_bytes = 0;
};

/// Adds the agreements made during its lifetime to `made`.
class AgreementCounter final : public AgreementListener {
 public:
  explicit AgreementCounter(Agreements& made) : made_{made} {}

  void on_begin(std::int64_t bytes) override {
    made_.smallest_bytes = made_.count == 0 ? bytes : std::min(made_.smallest_bytes, bytes);
    made_.largest_bytes = std::max(made_.largest_bytes, bytes);
    ++made_.count;
  }

 private:
  Agreements& made_;
};

}  // namespace lockstep::bench
