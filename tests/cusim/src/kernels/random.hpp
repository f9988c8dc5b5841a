// Quick random numbers for one launch, from a seed that was drawn.
#pragma once

#include <cstdint>

namespace cusim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_{seed | 1} {}

  /// Below `bound`, which is at least 1.
  std::uint32_t below(std::uint32_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    const std::uint64_t high = state_ * 0x9e3779b97f4a7c15u >> 32;
    return static_cast<std::uint32_t>(high * bound >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace cusim
