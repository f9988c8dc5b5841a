// The bytes of a text in a file that stays where it is: those wanted are read each time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "base/descriptor.hpp"
#include "input/stored_file.hpp"
#include "input/token_pieces.hpp"
#include "input/tokens.hpp"

namespace lockstep {

class BytesOnDisk final : public TokenSequence {
 public:
  BytesOnDisk(Descriptor file, std::filesystem::path path, std::int64_t count)
      : file_{std::move(file)}, path_{std::move(path)}, count_{count} {}

  std::int64_t count() const override { return count_; }
  bool are_bytes() const override { return true; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    require_tokens(first, std::ssize(to), count_);
    std::vector<std::uint8_t> bytes(to.size());
    read_again(file_, path_, static_cast<std::uint64_t>(first), bytes);
    std::ranges::copy(bytes, to.begin());
  }

 private:
  Descriptor file_;
  std::filesystem::path path_;
  std::int64_t count_;
};

}  // namespace lockstep
