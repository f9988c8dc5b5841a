// 64-bit digests of bytes, for comparing values between ranks and runs. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/parts.hpp"

// Of xxHash.
struct XXH64_state_s;
struct XXH3_state_s;

namespace lockstep {

/// Digests bytes incrementally (xxHash64, seed 0). The result depends on their sequence, not on how it was split into
/// updates.
class LOCKSTEP_PARTS_API Digest {
 public:
  Digest();

  Digest& update(std::span<const std::byte> bytes);
  Digest& update(std::string_view text) { return update(std::as_bytes(std::span{text})); }

  /// The digest of all bytes so far. More updates may follow.
  std::uint64_t value() const;

 private:
  std::unique_ptr<XXH64_state_s, void (*)(XXH64_state_s*)> state_;
};

/// The same by XXH3 (64 bits, seed 0), which is two or three times as fast where the processor has wide instructions:
/// for values that a step has just computed.
class LOCKSTEP_PARTS_API WideDigest {
 public:
  WideDigest();

  WideDigest& update(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

/// The digest of one piece of memory, as by Digest.
LOCKSTEP_PARTS_API std::uint64_t digest_of(std::span<const std::byte> bytes);
LOCKSTEP_PARTS_API std::uint64_t digest_of(std::string_view text);

}  // namespace lockstep
