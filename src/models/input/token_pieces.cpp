#include "models/input/token_pieces.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {

void require_tokens(std::int64_t first, std::int64_t wanted, std::int64_t count) {
  if (first < 0 || wanted > count - first)
    throw InvalidArgument{fmt::format("tokens {} to {} are not in a sequence of {}", first, first + wanted, count)};
}

void TokenPieces::append(std::shared_ptr<const TokenSequence> sequence, Range part) {
  if (part.size() > 0) pieces_.push_back({std::move(sequence), part, count() + part.size()});
}

void TokenPieces::read(std::int64_t first, std::span<std::int32_t> to) const {
  require_tokens(first, std::ssize(to), count());
  auto piece = std::ranges::upper_bound(pieces_, first, {}, &Piece::end);
  while (!to.empty()) {
    const std::int64_t taken = std::min(piece->end - first, std::ssize(to));
    piece->sequence->read(piece->part.first + first - piece->begin(), to.first(static_cast<std::size_t>(taken)));
    to = to.subspan(static_cast<std::size_t>(taken));
    first += taken;
    ++piece;
  }
}

std::shared_ptr<const TokenPieces> TokenPieces::slice(Range part) const {
  auto made = std::make_shared<TokenPieces>();
  for (const Piece& piece : pieces_) {
    const Range shared{std::max(part.first, piece.begin()), std::min(part.last, piece.end)};
    if (shared.first >= shared.last) continue;
    const std::int64_t offset = piece.part.first - piece.begin();
    made->append(piece.sequence, {shared.first + offset, shared.last + offset});
  }
  return made;
}

}  // namespace lockstep
