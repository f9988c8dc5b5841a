// What kernels tell the host.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include <lockstep/core/device/stream.hpp>

namespace lockstep::detail {

/// What a kernel tells the host. On the host it is known when the call returns; on a GPU, when the work on its stream
/// is done, so one wait is enough for the answers of many calls. Must not outlive what gave it.
template <class T>
class [[nodiscard]] Answer {
 public:
  /// Of the host, whose kernels throw when they are called.
  template <std::convertible_to<T> Known>
  Answer(Known known) : read_{[known = std::move(known)] { return known; }} {}
  Answer()
    requires std::is_void_v<T>
      : read_{[] {}} {}

  /// Of work on `stream`. `read` is called once that is done.
  Answer(Stream& stream, std::function<T()> read) : stream_{&stream}, read_{std::move(read)} {}

  /// The answer, for a caller that has waited for the stream since. Throws what the kernel found, such as an
  /// InvalidArgument for a label that is no class.
  T read() const { return read_(); }

  /// The same for one that has not: blocks the host on a GPU.
  T wait() const {
    if (stream_) stream_->synchronize();
    return read_();
  }

 private:
  Stream* stream_ = nullptr;  ///< null if the answer is known
  std::function<T()> read_;
};

}  // namespace lockstep::detail
