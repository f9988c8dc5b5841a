// The answers of kernels, read by the host.
#pragma once

#include <cstddef>
#include <mutex>

#include <lockstep/base/error.hpp>

#include "device/device.hpp"

namespace lockstep::ops::cuda {

/// Reads small results from GPU memory. Threads may share it.
class Answers {
 public:
  explicit Answers(Stream& stream) : stream_{stream}, memory_{stream.allocate_pinned(most_bytes)} {}
  Answers(const Answers&) = delete;
  ~Answers() {
    try {
      if (is_under_way_) stream_.synchronize();  // a wait has failed, but the copy may not have
    } catch (const Error&) {
    }
  }

  /// The beginning of `answer`. Blocks the host until the work on the stream so far is done. The host waits for the GPU
  /// only here, and in trials of new shapes (Products::multiply).
  template <class Answer>
  Answer fetch(const Buffer& answer) const {
    static_assert(sizeof(Answer) <= most_bytes);
    const std::lock_guard lock{mutex_};
    is_under_way_ = true;
    stream_.copy(memory_.data(), answer.data(), sizeof(Answer));
    stream_.synchronize();
    is_under_way_ = false;
    return *reinterpret_cast<const Answer*>(memory_.data());
  }

 private:
  static constexpr std::size_t most_bytes = 64;

  Stream& stream_;
  mutable std::mutex mutex_;
  mutable bool is_under_way_ = false;
  Buffer memory_;  ///< pinned, so that the GPU writes to it directly, without an extra copy by the driver
};

}  // namespace lockstep::ops::cuda
