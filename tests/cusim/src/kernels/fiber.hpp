// Stacks on which the threads of kernels run. All fibers of a process are made on demand and kept.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cusim {

/// One stack, and where what runs on it goes on. One operating-system thread at a time uses the fibers.
class Fiber {
 public:
  /// Runs on a fiber again and again; does not return, but leaves by `go_on` of another fiber when it is done.
  using Body = void (*)();

  static constexpr std::size_t bytes = 64 << 10;

  Fiber(std::byte* lowest, std::size_t colour, Body body);
  Fiber(const Fiber&) = delete;

  /// Lowest address of the stack.
  std::byte* lowest() const { return lowest_; }

  /// Leaves what runs now for this fiber. `from` is where somebody may go on with it.
  void go_on(std::jmp_buf& from) {
    if (_setjmp(from) == 0) _longjmp(context_, 1);
  }
  /// The same without return.
  [[noreturn]] void go_on() { _longjmp(context_, 1); }

  std::jmp_buf& context() { return context_; }

 private:
  std::byte* lowest_;
  std::jmp_buf context_;
};

/// The process's fibers, of one body.
class FiberPool {
 public:
  explicit FiberPool(Fiber::Body body) : body_{body} {}

  /// At least `count` fibers.
  void grow(std::size_t count);
  Fiber& operator[](std::size_t index) { return *fibers_[index]; }

  /// Whether the address is on the stack of any fiber.
  bool holds(const void* address) const;

 private:
  Fiber::Body body_;
  std::byte* stacks_ = nullptr;
  std::vector<Fiber*> fibers_;  ///< never deleted: the process may end on one
};

}  // namespace cusim
