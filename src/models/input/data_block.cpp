#include "models/input/data_block.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

using BlockJson = nlohmann::json;

constexpr std::size_t cache_line_bytes = 64;

std::size_t aligned(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

BlockJson BlockWriter::add(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::size_t alignment) {
  static constexpr std::array<std::byte, cache_line_bytes> padding{};
  if (const std::size_t missing = aligned(part_bytes_, alignment) - part_bytes_; missing > 0) {
    parts_.push_back({nullptr, std::span{padding}.first(missing)});
    part_bytes_ += missing;
  }
  BlockJson place{part_bytes_, bytes.size()};
  parts_.push_back({std::move(owner), bytes});
  part_bytes_ += bytes.size();
  return place;
}

/// The length of the header, and the header as bytes of JSON: names may be in any encoding.
std::vector<std::byte> BlockWriter::front() const {
  const std::vector<std::uint8_t> text = BlockJson::to_cbor(header);
  const std::uint64_t length = text.size();
  std::vector<std::byte> front(aligned(sizeof length + text.size(), cache_line_bytes));
  std::memcpy(front.data(), &length, sizeof length);
  std::memcpy(front.data() + sizeof length, text.data(), text.size());
  return front;
}

// In braces, the header would become a list of itself.
BlockWriter::BlockWriter(const BlockReader& block)
    : header(block.header_), parts_{{block.owner_, block.parts_}}, part_bytes_{block.parts_.size()} {}

std::vector<std::byte> BlockWriter::copy() const {
  std::vector<std::byte> all = front();
  for (const Part& part : parts_) all.insert(all.end(), part.bytes.begin(), part.bytes.end());
  return all;
}

BlockReader BlockWriter::in_process() const {
  const std::vector<std::byte> all = copy();
  struct alignas(cache_line_bytes) Line {
    std::byte bytes[cache_line_bytes];
  };
  const auto memory = std::make_shared<std::vector<Line>>(aligned(all.size(), sizeof(Line)) / sizeof(Line));
  std::memcpy(memory->data(), all.data(), all.size());
  return {memory, {reinterpret_cast<const std::byte*>(memory->data()), all.size()}};
}

std::size_t BlockWriter::bytes() const {
  return front().size() + part_bytes_;
}

void BlockWriter::write(const std::function<void(std::span<const std::byte>)>& take) {
  take(front());
  for (Part& part : parts_) {
    take(part.bytes);
    part = {};
  }
}

BlockReader::BlockReader(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
    : owner_{std::move(owner)} {
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto* const text = reinterpret_cast<const std::uint8_t*>(bytes.data()) + sizeof length;
  header_ = BlockJson::from_cbor(text, text + length);
  parts_ = bytes.subspan(aligned(sizeof length + length, cache_line_bytes));
}

std::span<const std::byte> BlockReader::part(const BlockJson& place) const {
  return parts_.subspan(place.at(0).get<std::size_t>(), place.at(1).get<std::size_t>());
}

}  // namespace lockstep
