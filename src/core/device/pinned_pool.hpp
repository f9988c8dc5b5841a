// Pinned memory that is used again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/device.hpp"

namespace lockstep::detail {

/// Pinned memory of the host, which takes long to allocate. Threads may share it.
class PinnedPool {
 public:
  using Pinned = std::shared_ptr<const Buffer>;

  /// Of the device of `stream`, which must outlive this object.
  explicit PinnedPool(Stream& stream) : stream_{stream} {}

  /// So many bytes, of unspecified content: of what was given back, or else new ones.
  Pinned take(std::size_t bytes);

  /// Once no copy uses them. Keeps the last 64: pieces of many sizes must not hold memory of each.
  void give_back(Pinned pinned);

 private:
  Stream& stream_;
  std::mutex mutex_;
  std::vector<Pinned> unused_;
};

}  // namespace lockstep::detail
