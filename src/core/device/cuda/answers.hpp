// The answers of kernels, on their way to the host.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/scratch.hpp"
#include "core/device/device.hpp"

namespace lockstep::detail::cuda {

/// Brings small results from GPU memory to the host. Threads may share it.
class Answers {
 public:
  /// Both must outlive it.
  Answers(Stream& stream, const Scratch& scratch) : stream_{stream}, scratch_{scratch} {}
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers() {
    try {
      if (!places_.empty()) stream_.synchronize();  // an answer that nobody has read may be on its way
    } catch (const Error&) {
      // The stream has failed and says so to whoever uses it next.
    }
  }

  /// A call of kernels that answer: a use of the scratch memory, which has the answer at its beginning.
  class Call {
   public:
    Call(const Answers& answers, std::size_t bytes) : answers_{answers}, memory_{answers.scratch_, bytes} {}

    std::byte* memory() const { return memory_.data(); }

    /// Where the host finds the answer when the work on the stream so far is done.
    template <class Answer>
    std::shared_ptr<const Answer> send() const {
      static_assert(sizeof(Answer) <= place_bytes);
      const std::shared_ptr<std::byte> place = answers_.free_place();
      answers_.stream_.copy(place.get(), memory(), sizeof(Answer));
      return {place, reinterpret_cast<const Answer*>(place.get())};
    }

   private:
    const Answers& answers_;
    Scratch::Use memory_;
  };

 private:
  static constexpr std::size_t place_bytes = 64;
  static constexpr std::size_t places_at_once = 64;

  /// A place that no answer uses. An earlier, unread answer cannot overwrite the new one, because its copy comes
  /// earlier on the stream. Call it only while a Call lives.
  std::shared_ptr<std::byte> free_place() const {
    for (const std::shared_ptr<std::byte>& place : places_)
      if (place.use_count() == 1) return place;
    const auto more = std::make_shared<Buffer>(inside(stream_).allocate_pinned(places_at_once * place_bytes));
    // Each has a count of its own users.
    for (std::size_t i = 0; i < places_at_once; ++i)
      places_.emplace_back(more->data() + i * place_bytes, [more](std::byte*) {});
    return places_.back();
  }

  Stream& stream_;
  const Scratch& scratch_;
  /// Of pinned memory, so that the GPU writes to it directly, without an extra copy by the driver.
  mutable std::vector<std::shared_ptr<std::byte>> places_;
};

}  // namespace lockstep::detail::cuda
