// The generator below RandomStream, for the host and for kernels of a GPU.
#pragma once

#include <array>
#include <cstdint>

#include <lockstep/core/base/philox.hpp>

#include "core/base/host_device.hpp"

namespace lockstep {

/// Philox4x32-10 itself: replaces a 128-bit counter by 128 random bits, under a 64-bit key.
inline LOCKSTEP_HOST_DEVICE void philox4x32(std::uint32_t (&counter)[4], std::uint32_t key_0, std::uint32_t key_1) {
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t product_0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product_1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter[0] = static_cast<std::uint32_t>(product_1 >> 32) ^ counter[1] ^ key_0;
    counter[1] = static_cast<std::uint32_t>(product_1);
    counter[2] = static_cast<std::uint32_t>(product_0 >> 32) ^ counter[3] ^ key_1;
    counter[3] = static_cast<std::uint32_t>(product_0);
    key_0 += 0x9E3779B9;
    key_1 += 0xBB67AE85;
  }
}

/// The same of arrays.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// A stream as kernels of a GPU take it, for RandomStream::words.
class PhiloxWords {
 public:
  explicit PhiloxWords(const RandomStream& stream)
      : key_{stream.key_[0], stream.key_[1]},
        stream_{static_cast<std::uint32_t>(stream.stream_), static_cast<std::uint32_t>(stream.stream_ >> 32)} {}

  /// The words from 4 * `index` on.
  LOCKSTEP_HOST_DEVICE void block(std::uint64_t index, std::uint32_t (&words)[4]) const {
    words[0] = static_cast<std::uint32_t>(index);
    words[1] = static_cast<std::uint32_t>(index >> 32);
    words[2] = stream_[0];
    words[3] = stream_[1];
    philox4x32(words, key_[0], key_[1]);
  }

 private:
  std::uint32_t key_[2];
  std::uint32_t stream_[2];
};

}  // namespace lockstep
