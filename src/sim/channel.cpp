// The control plane of a simulated rank.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "sim/job.hpp"
#include "sim/planes.hpp"

namespace lockstep::sim {
namespace {

class Channel final : public ControlChannel {
 public:
  Channel(Plane& plane, int rank)
      : plane_{plane},
        own_{rank},
        rank_{static_cast<int>(std::ranges::find(plane.members(), rank) - plane.members().begin())},
        size_{static_cast<int>(plane.members().size())} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    const auto mine = std::as_bytes(std::span{words});
    const auto number = plane_.start(own_, "max", {mine.begin(), mine.end()});
    plane_.finish(own_, number, {});
    for (int from = 0; from < size_; ++from) {
      std::array<std::uint64_t, 2> others;
      std::memcpy(others.data(), plane_.brought(number, job_rank(from)).data(), sizeof others);
      words = {std::max(words[0], others[0]), std::max(words[1], others[1])};
    }
    plane_.leave(own_, number);
    return words;
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const auto number =
        plane_.start(own_, fmt::format("all_gather of {} bytes", mine.size()), {mine.begin(), mine.end()});
    plane_.finish(own_, number, {});
    for (int from = 0; from < size_; ++from)
      std::ranges::copy(plane_.brought(number, job_rank(from)),
                        all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * from);
    plane_.leave(own_, number);
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const bool sends = rank_ == root;
    const auto number =
        plane_.start(own_, fmt::format("broadcast of {} bytes from replica {}", bytes.size(), job_rank(root)),
                     sends ? Bytes{bytes.begin(), bytes.end()} : Bytes{});
    plane_.finish(own_, number, {.from = sends ? Needs::From::nobody : Needs::From::one, .rank = job_rank(root)});
    if (!sends) std::ranges::copy(plane_.brought(number, job_rank(root)), bytes.begin());
    plane_.leave(own_, number);
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<Channel>(plane_.job().split(plane_, key, plane_.job_ranks(members)), own_);
  }

 private:
  int job_rank(int rank) const { return plane_.members()[static_cast<std::size_t>(rank)]; }

  Plane& plane_;
  int own_;  ///< the job's number
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank) {
  return std::make_unique<Channel>(plane, rank);
}

}  // namespace lockstep::sim
