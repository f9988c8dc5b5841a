// Random numbers as a pure function of their purpose and index, independent of which rank asks: Philox4x32-10, a
// counter-based generator (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

class PhiloxWords;

/// The random numbers of one (seed, purpose, step), as a pure function of a global index. The same on every rank.
class LOCKSTEP_API RandomStream {
 public:
  /// What a random number is for. Streams of different purposes never overlap.
  enum class Purpose : std::uint8_t {
    initial_value = 1,
    sample_order = 2,
    dropout = 3,
    simulation = 4,
    generated_text = 5,
    fault = 6,
    kernel_trial = 7,
    augmentation = 8,
    audit = 10,
    program = 9  ///< whatever a program of yours draws
  };

  /// `step` numbers the streams of one purpose: by epoch, by step, or by a variable's ordinal. It must be below 2^56.
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t step);

  /// 64 uniform random bits for `index`.
  std::uint64_t bits(std::uint64_t index) const;

  /// Uniform in [0, 1). A multiple of 2^-24, so it is exact in float and the same number at every precision.
  double uniform(std::uint64_t index) const;

  /// Fills `out` with 32 uniform random bits for each index from `first` on. Word k is word k mod 4 of the block that
  /// `bits` uses for the index k / 4, so four words cost as much as one call of `bits`. Read a stream with `words` or
  /// with the other methods, not with both.
  void words(std::uint64_t first, std::span<std::uint32_t> out) const;

  /// Uniform in [0, bound), without bias (Lemire: "Fast random integer generation in an interval", 2019, with rejected
  /// draws replaced from further counters of the same index). InvalidArgument for a bound of 0.
  std::uint64_t below(std::uint64_t bound, std::uint64_t index) const;

 private:
  friend class PhiloxWords;  // computes `words` on a GPU

  std::array<std::uint32_t, 4> block(std::uint64_t index, std::uint32_t attempt) const;

  std::array<std::uint32_t, 2> key_;
  std::uint64_t stream_;
};

}  // namespace lockstep
