#include "reduce/messages.hpp"

#include <numeric>

namespace lockstep::detail {
namespace {

std::optional<TensorView> contiguous(std::span<const TensorView> parts, std::int64_t count) {
  const std::byte* end = parts.front().data();
  for (const TensorView& part : parts) {
    if (part.data() != end) return std::nullopt;
    end += part.bytes();
  }
  return TensorView{parts.front().data(), {count}, parts.front().dtype(), parts.front().device()};
}

}  // namespace

TensorView Scratch::take(Communicator& communicator, DType dtype, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
  if (buffer_.bytes() < bytes) {
    buffer_ = communicator.allocate(bytes);
    // The gaps between tensors are sent too. Later they hold what an earlier message left there, but are never
    // uninitialised.
    communicator.stream().fill_zero(buffer_.data(), buffer_.bytes());
  }
  return {buffer_.data(), {count}, dtype, communicator.stream().kind()};
}

Message::Message(std::vector<TensorView> parts, Communicator& communicator, Scratch& memory)
    : parts_{std::move(parts)}, stream_{communicator.stream()} {
  const std::int64_t count = std::accumulate(parts_.begin(), parts_.end(), std::int64_t{0},
                                             [](std::int64_t sum, const auto& part) { return sum + part.count(); });
  if (const auto whole = contiguous(parts_, count)) {
    flat_ = *whole;
    return;
  }
  is_packed_ = true;
  flat_ = memory.take(communicator, parts_.front().dtype(), count);
  for_each_part([&](const TensorView& there, const TensorView& part) { copy(part, there, stream_); });
}

void Message::unpack() const {
  if (is_packed_) for_each_part([&](const TensorView& there, const TensorView& part) { copy(there, part, stream_); });
}

template <class Body>
void Message::for_each_part(Body&& body) const {
  std::int64_t first = 0;
  for (const TensorView& part : parts_) {
    body(flat_.slice(first, part.count()), part);
    first += part.count();
  }
}

}  // namespace lockstep::detail
