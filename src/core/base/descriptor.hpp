// File descriptors, owned once.
#pragma once

#include <utility>

#include <unistd.h>

namespace lockstep {

/// A file descriptor, closed with the object. Negative: none, as a system call that failed returns it.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_{value} {}
  Descriptor(Descriptor&& other) noexcept : value_{std::exchange(other.value_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

}  // namespace lockstep
