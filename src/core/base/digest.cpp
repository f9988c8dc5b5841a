#include "core/base/digest.hpp"

#include <new>

#include <fmt/format.h>
#include <xxhash.h>
#if LOCKSTEP_HAS_WIDE_XXHASH
#include <xxh_x86dispatch.h>  // replaces XXH3's functions by those that ask for the processor
#endif

#include <lockstep/core/base/hex.hpp>

namespace lockstep {

Digest::Digest() : state_{XXH64_createState(), [](XXH64_state_s* state) { (void)XXH64_freeState(state); }} {
  if (!state_) throw std::bad_alloc{};
  XXH64_reset(state_.get(), 0);
}

Digest& Digest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(state_.get(), bytes.data(), bytes.size());
  return *this;
}

std::uint64_t Digest::value() const {
  return XXH64_digest(state_.get());
}

WideDigest::WideDigest() : state_{XXH3_createState(), [](XXH3_state_s* state) { (void)XXH3_freeState(state); }} {
  if (!state_) throw std::bad_alloc{};
  XXH3_64bits_reset(state_.get());
}

WideDigest& WideDigest::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  return *this;
}

std::uint64_t WideDigest::value() const {
  return XXH3_64bits_digest(state_.get());
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
