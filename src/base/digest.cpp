#include "base/digest.hpp"

#include <new>

#include <fmt/format.h>
#include <xxhash.h>
#if LOCKSTEP_HAS_WIDE_XXHASH
#include <xxh_x86dispatch.h>  // replaces XXH3's functions by those that ask for the processor
#endif

#include <lockstep/base/hex.hpp>

namespace lockstep {

struct Digest::State {
  XXH64_state_t* handle = XXH64_createState();

  State() {
    if (!handle) throw std::bad_alloc{};
    XXH64_reset(handle, 0);
  }
  State(const State&) = delete;
  ~State() { XXH64_freeState(handle); }
};

Digest::Digest() : state_{std::make_unique<State>()} {}
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

Digest& Digest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(state_->handle, bytes.data(), bytes.size());
  return *this;
}

std::uint64_t Digest::value() const {
  return XXH64_digest(state_->handle);
}

struct WideDigest::State {
  XXH3_state_t* handle = XXH3_createState();

  State() {
    if (!handle) throw std::bad_alloc{};
    XXH3_64bits_reset(handle);
  }
  State(const State&) = delete;
  ~State() { XXH3_freeState(handle); }
};

WideDigest::WideDigest() : state_{std::make_unique<State>()} {}
WideDigest::WideDigest(WideDigest&&) noexcept = default;
WideDigest& WideDigest::operator=(WideDigest&&) noexcept = default;
WideDigest::~WideDigest() = default;

WideDigest& WideDigest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state_->handle, bytes.data(), bytes.size());
  return *this;
}

std::uint64_t WideDigest::value() const {
  return XXH3_64bits_digest(state_->handle);
}

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  return XXH64(bytes.data(), bytes.size(), 0);
}
std::uint64_t digest_of(std::string_view text) {
  return XXH64(text.data(), text.size(), 0);
}

std::string to_hex(std::uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

}  // namespace lockstep
