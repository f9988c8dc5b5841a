// Data that one process has read, as one piece of memory from which others have them without reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/input/fixed_array.hpp"

namespace lockstep {

/// Collects what a block is made of: a header, and arrays that the header places.
class BlockWriter {
 public:
  BlockWriter() = default;
  /// The same block again.
  explicit BlockWriter(const class BlockReader& block);

  nlohmann::json header = nlohmann::json::object();
  std::unordered_map<const void*, std::size_t> numbers = {};  ///< of objects that are in the header already

  /// Adds an array. Returns its place, for the header.
  template <class T>
  nlohmann::json add(const FixedArray<T>& array) {
    return add(array.owner(), std::as_bytes(std::span{array.begin(), array.end()}), alignof(T));
  }

  std::size_t bytes() const;

  /// A copy of all of it, as bytes, or to be read in this process.
  std::vector<std::byte> copy() const;
  class BlockReader in_process() const;

  /// Gives all of it away in order, in pieces that lie one after the other and add up to `bytes()`. Lets go of each
  /// array after `take` has had it. Call it once.
  void write(const std::function<void(std::span<const std::byte> piece)>& take);

 private:
  struct Part {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> bytes;
  };

  nlohmann::json add(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::size_t alignment);
  std::vector<std::byte> front() const;

  std::vector<Part> parts_;
  std::size_t part_bytes_ = 0;
};

/// Reads a block. What it returns shares the memory, and keeps it.
class BlockReader {
 public:
  /// The whole block is `bytes`, in memory that lives as long as `owner` and starts at a multiple of 64.
  BlockReader(std::shared_ptr<const void> owner, std::span<const std::byte> bytes);

  const nlohmann::json& header() const { return header_; }

  template <class T>
  FixedArray<T> array(const nlohmann::json& place) const {
    const std::span<const std::byte> bytes = part(place);
    return {owner_, {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}};
  }

 private:
  friend class BlockWriter;
  std::span<const std::byte> part(const nlohmann::json& place) const;

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> parts_;
  nlohmann::json header_;
};

}  // namespace lockstep
