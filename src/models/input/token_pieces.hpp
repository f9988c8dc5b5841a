// Parts of token sequences, one after the other, as one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>

#include "models/input/fixed_array.hpp"
#include "models/input/tokens.hpp"

namespace lockstep {

/// InvalidArgument unless there are `wanted` tokens from `first` on in a sequence of `count`.
void require_tokens(std::int64_t first, std::int64_t wanted, std::int64_t count);

/// As tokens_of_text.
std::shared_ptr<const TokenSequence> tokens_of_bytes(FixedArray<std::uint8_t> bytes);

class TokenPieces final : public TokenSequence {
 public:
  /// Puts the tokens of `part` behind those that are there. All sequences must hold the same kind of tokens.
  void append(std::shared_ptr<const TokenSequence> sequence, Range part);

  std::int64_t count() const override { return pieces_.empty() ? 0 : pieces_.back().end; }
  bool are_bytes() const override { return pieces_.empty() || pieces_.front().sequence->are_bytes(); }
  void read(std::int64_t first, std::span<std::int32_t> to) const override;
  void require_unchanged() const override {
    for (const Piece& piece : pieces_) piece.sequence->require_unchanged();
  }

  /// The tokens in `part`.
  std::shared_ptr<const TokenPieces> slice(Range part) const;

 private:
  struct Piece {
    std::shared_ptr<const TokenSequence> sequence;
    Range part;        ///< of that
    std::int64_t end;  ///< the number of tokens in all pieces up to and with this one

    std::int64_t begin() const { return end - part.size(); }
  };
  std::vector<Piece> pieces_;
};

}  // namespace lockstep
