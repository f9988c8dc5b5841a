// The control plane of a simulated rank.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "sim/planes.hpp"

namespace lockstep::sim {
namespace {

class Channel final : public ControlChannel {
 public:
  Channel(Plane& plane, int rank, int size) : plane_{plane}, rank_{rank}, size_{size} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    const auto mine = std::as_bytes(std::span{words});
    const auto number = plane_.start(rank_, "max", {mine.begin(), mine.end()});
    plane_.finish(rank_, number, {});
    for (int from = 0; from < size_; ++from) {
      std::array<std::uint64_t, 2> others;
      std::memcpy(others.data(), plane_.brought(number, from).data(), sizeof others);
      words = {std::max(words[0], others[0]), std::max(words[1], others[1])};
    }
    plane_.leave(rank_, number);
    return words;
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const auto number =
        plane_.start(rank_, fmt::format("all_gather of {} bytes", mine.size()), {mine.begin(), mine.end()});
    plane_.finish(rank_, number, {});
    for (int from = 0; from < size_; ++from)
      std::ranges::copy(plane_.brought(number, from), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * from);
    plane_.leave(rank_, number);
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const bool sends = rank_ == root;
    const auto number = plane_.start(rank_, fmt::format("broadcast of {} bytes from replica {}", bytes.size(), root),
                                     sends ? Bytes{bytes.begin(), bytes.end()} : Bytes{});
    plane_.finish(rank_, number, {.from = sends ? Needs::From::nobody : Needs::From::one, .rank = root});
    if (!sends) std::ranges::copy(plane_.brought(number, root), bytes.begin());
    plane_.leave(rank_, number);
  }

 private:
  Plane& plane_;
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank, int size) {
  return std::make_unique<Channel>(plane, rank, size);
}

}  // namespace lockstep::sim
