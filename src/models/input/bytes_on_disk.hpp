// The bytes of a text in a file that stays where it is: those wanted are read each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "models/input/file_kind.hpp"
#include "models/input/stored_file.hpp"
#include "models/input/token_pieces.hpp"
#include "models/input/tokens.hpp"

namespace lockstep {

class BytesOnDisk final : public TokenSequence {
 public:
  enum class May : std::uint8_t { be_any, be_text };

  /// ConfigError from the first reading of a byte that no text has, if it may only be one.
  BytesOnDisk(std::shared_ptr<const StoredFile> file, std::int64_t count, May may)
      : file_{std::move(file)}, count_{count}, may_{may} {}

  std::int64_t count() const override { return count_; }
  bool are_bytes() const override { return true; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count_);
    const bool is_first = !file_->was_read();
    std::vector<std::uint8_t> bytes(to.size());
    file_->read(static_cast<std::uint64_t>(first), bytes);
    if (is_first && may_ == May::be_text) require_no_zero_byte(file_->path(), bytes, first);
    std::ranges::copy(bytes, to.begin());
  }
  void require_unchanged() const override { file_->require_unchanged(); }

 private:
  std::shared_ptr<const StoredFile> file_;
  std::int64_t count_;
  May may_;
};

}  // namespace lockstep
