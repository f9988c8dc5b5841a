// The shared memory of the blocks that run at the same time. Each has a slot; red zones lie between its objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/shadow.hpp"
#include "runtime/gpu.hpp"

namespace cusim {

class BlockMemory {
 public:
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t slot_bytes = 1 << 20;
  static constexpr std::size_t bytes = slots * slot_bytes;
  /// What a block may declare.
  static constexpr std::size_t most_declared = gpu.shared_of_block;

  BlockMemory();
  BlockMemory(const BlockMemory&) = delete;

  bool holds(const void* address) const { return index_of(address) < bytes; }
  std::size_t index_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - memory_);
  }
  static std::size_t slot_of(std::size_t index) { return index / slot_bytes; }

  /// A new block has the slot: its objects are gone.
  void begin(std::size_t slot);
  /// The slot's object for a declaration; null if the block declares too much.
  void* object(std::size_t slot, const void* declaration, std::size_t bytes);

  /// A memory::State for each byte.
  std::uint8_t* states() { return states_.data(); }
  Shadow& shadow() { return shadow_; }

  /// Where `index` is, for a message.
  std::string describe(std::size_t index) const;

 private:
  struct Object {
    const void* declaration;
    std::size_t begin;  ///< index of its first byte
    std::size_t bytes;
  };

  std::byte* memory_;
  std::vector<std::uint8_t> states_;
  Shadow shadow_;
  std::vector<Object> objects_[slots];
};

}  // namespace cusim
