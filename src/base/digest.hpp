// A 64-bit digest of bytes (xxHash64, seed 0), for comparing values between ranks and runs. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

/// Digests bytes incrementally. The result depends on their sequence, not on how it was split into updates.
class Digest {
 public:
  Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  Digest& update(std::span<const std::byte> bytes);
  Digest& update(std::string_view text) { return update(std::as_bytes(std::span{text})); }

  /// The digest of all bytes so far. More updates may follow.
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of one piece of memory.
std::uint64_t digest_of(std::span<const std::byte> bytes);
std::uint64_t digest_of(std::string_view text);

}  // namespace lockstep
