// Random numbers that are a function of what they are for, never of who asks: Philox4x32-10, a counter-based
// generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// What a random number is for. Streams of different purposes never overlap.
enum class RandomPurpose : std::uint8_t {
  initial_value = 1,
  sample_order = 2,
  dropout = 3,
  simulation = 4,
  generated_text = 5,
  kernel_trial = 6
};

/// Philox4x32-10 itself: 128 random bits for a 128-bit counter under a 64-bit key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// The random numbers of one (seed, purpose, step): a pure function of the global index. The same on every rank.
class RandomStream {
 public:
  /// `step` numbers the streams of one purpose: by epoch, by step, by the ordinal of a variable. Below 2^56.
  RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t step);

  /// 64 uniform random bits for `index`.
  std::uint64_t bits(std::uint64_t index) const;

  /// Uniform in [0, 1), a multiple of 2^-24: exact in float, so the same number at every precision.
  double uniform(std::uint64_t index) const;

  /// 32 uniform random bits for each of the indices from `first` on, four for the work of one by `bits`: word k is word
  /// k mod 4 of the block that `bits` takes its own from for the index k / 4. So a stream is read in one of both ways.
  void words(std::uint64_t first, std::span<std::uint32_t> out) const;

  /// Uniform in [0, bound), without bias (Lemire: "Fast random integer generation in an interval", 2019, with the
  /// rejected draws taken from further counters of the same index). `bound` is positive.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

 private:
  std::array<std::uint32_t, 4> block(std::uint64_t index, std::uint32_t attempt) const;

  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

}  // namespace lockstep
