#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

#include "core/base/philox4x32.hpp"

namespace lockstep {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}
constexpr std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  std::uint32_t words[]{counter[0], counter[1], counter[2], counter[3]};
  philox4x32(words, key[0], key[1]);
  return std::to_array(words);
}

RandomStream::RandomStream(std::uint64_t seed, RandomStream::Purpose purpose, std::uint64_t step)
    : key_{low(seed), high(seed)}, stream_{std::uint64_t{static_cast<std::uint8_t>(purpose)} << 56 | step} {}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index, std::uint32_t attempt) const {
  // The attempt goes into the key, so it costs no counter bits, and attempt 0 is the plain stream of the seed.
  return philox4x32({low(index), high(index), low(stream_), high(stream_)}, {key_[0], key_[1] ^ attempt});
}

std::uint64_t RandomStream::bits(std::uint64_t index) const {
  const auto words = block(index, 0);
  return std::uint64_t{words[1]} << 32 | words[0];
}

void RandomStream::words(std::uint64_t first, std::span<std::uint32_t> out) const {
  for (std::size_t done = 0; done < out.size();) {
    const auto four = block((first + done) / 4, 0);
    for (auto word = (first + done) % 4; word < 4 && done < out.size(); ++word) out[done++] = four[word];
  }
}

double RandomStream::uniform(std::uint64_t index) const {
  return static_cast<double>(block(index, 0)[0] >> 8) * 0x1p-24;
}

std::uint64_t RandomStream::below(std::uint64_t bound, std::uint64_t index) const {
  if (bound == 0) throw InvalidArgument{"a random number below 0; expected a bound of 1 or more"};
  const std::uint64_t rejected = -bound % bound;  // 2^64 mod bound
  for (std::uint32_t attempt = 0;; ++attempt) {
    const auto words = block(index, attempt);
    const Wide product = Wide{std::uint64_t{words[1]} << 32 | words[0]} * bound;
    if (static_cast<std::uint64_t>(product) >= rejected) return static_cast<std::uint64_t>(product >> 64);
  }
}

}  // namespace lockstep
