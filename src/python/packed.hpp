// Numbers and texts as bytes that travel between ranks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::python {

using Bytes = std::vector<std::uint8_t>;

class Packer {
 public:
  Packer& number(std::int64_t value) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    return *this;
  }
  Packer& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  Packer& bytes(std::span<const std::uint8_t> value) {
    return text({reinterpret_cast<const char*>(value.data()), value.size()});
  }

  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads what a Packer has written, in the same order. std::out_of_range beyond the end.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::uint8_t> bytes) : rest_{bytes} {}

  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto taken = take(static_cast<std::size_t>(number()));
    return {taken.begin(), taken.end()};
  }
  Bytes bytes() {
    const auto taken = take(static_cast<std::size_t>(number()));
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const std::uint8_t> take(std::size_t size) {
    if (size > rest_.size()) throw std::out_of_range{"a message ends early"};
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

  std::span<const std::uint8_t> rest_;
};

}  // namespace lockstep::python
