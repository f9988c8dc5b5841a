#include "models/input/tokens.hpp"

#include <algorithm>
#include <utility>

#include "models/input/token_pieces.hpp"
#include "models/input/tokens_of_numbers.hpp"

namespace lockstep {
namespace {

template <class Number>
class TokensInMemory final : public TokenSequence {
 public:
  explicit TokensInMemory(FixedArray<Number> tokens) : tokens_{std::move(tokens)} {}

  std::int64_t count() const override { return static_cast<std::int64_t>(tokens_.size()); }
  bool are_bytes() const override { return sizeof(Number) == 1; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count());
    std::copy_n(tokens_.begin() + first, to.size(), to.begin());
  }

 private:
  FixedArray<Number> tokens_;
};

}  // namespace

std::shared_ptr<const TokenSequence> tokens_of_bytes(FixedArray<std::uint8_t> bytes) {
  return std::make_shared<TokensInMemory<std::uint8_t>>(std::move(bytes));
}

std::shared_ptr<const TokenSequence> tokens_of_text(std::vector<std::uint8_t> bytes) {
  return tokens_of_bytes(std::move(bytes));
}

std::shared_ptr<const TokenSequence> tokens_of_numbers(std::vector<std::int32_t> numbers) {
  return std::make_shared<TokensInMemory<std::int32_t>>(std::move(numbers));
}

}  // namespace lockstep
