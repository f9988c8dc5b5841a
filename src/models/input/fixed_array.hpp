// Arrays that never change once they are made, and that several objects, or several processes, may own together.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

template <class T>
class FixedArray {
 public:
  FixedArray() = default;
  FixedArray(std::vector<T> items) {
    auto kept = std::make_shared<const std::vector<T>>(std::move(items));
    items_ = *kept;
    owner_ = std::move(kept);
  }
  /// `items` lie in memory that lives as long as `owner`.
  FixedArray(std::shared_ptr<const void> owner, std::span<const T> items) : owner_{std::move(owner)}, items_{items} {}

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const T* data() const { return items_.data(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const T& operator[](std::size_t i) const { return items_[i]; }

  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const T> items_;
};

}  // namespace lockstep
