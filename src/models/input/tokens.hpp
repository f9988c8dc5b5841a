// Tokens in order: the bytes of a text, or the numbers that a tokenizer made of one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// A sequence of tokens that never changes. LOCAL; several threads may read at once.
class TokenSequence {
 public:
  virtual ~TokenSequence() = default;

  virtual std::int64_t count() const = 0;

  /// Whether the tokens are the bytes of a text, from 0 to 255.
  virtual bool are_bytes() const = 0;

  /// Writes the tokens from `first` on into `to`. InvalidArgument if there are not as many; ConfigError if they are in
  /// a file that can no longer be read.
  virtual void read(std::int64_t first, std::span<std::int32_t> to) const = 0;

  /// As SampleSource has it.
  virtual void require_unchanged() const {}
};

/// The bytes of a text that is in memory.
std::shared_ptr<const TokenSequence> tokens_of_text(std::vector<std::uint8_t> bytes);

}  // namespace lockstep
