// The control plane of a simulated rank.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "sim/job.hpp"
#include "sim/planes.hpp"

namespace lockstep::sim {
namespace {

/// One that was started; `take` reads what the others brought.
class Started final : public ControlChannel::Exchange {
 public:
  using Take = std::function<void(std::uint64_t number)>;

  Started(Plane& plane, int rank, std::string what, Bytes bytes, Take take)
      : plane_{plane},
        rank_{rank},
        take_{std::move(take)},
        number_{plane.start_beside(rank, std::move(what), std::move(bytes))} {}

  bool advance() override {
    if (!take_) return true;
    if (!plane_.is_here(number_)) return false;
    std::exchange(take_, nullptr)(number_);
    plane_.leave(rank_, number_);
    return true;
  }

 private:
  Plane& plane_;
  int rank_;
  Take take_;
  std::uint64_t number_;
};

class Channel final : public ControlChannel {
 public:
  Channel(Plane& plane, int rank)
      : plane_{plane},
        texts_{plane.job().split(plane, 0, plane.members())},
        own_{rank},
        rank_{static_cast<int>(std::ranges::find(plane.members(), rank) - plane.members().begin())},
        size_{static_cast<int>(plane.members().size())} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    const auto mine = std::as_bytes(std::span{words});
    const auto number = plane_.start(own_, "max", {mine.begin(), mine.end()});
    plane_.finish(own_, number, {});
    raise(words, number);
    plane_.leave(own_, number);
    return words;
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const auto number = texts_.start(own_, gathering(mine), {mine.begin(), mine.end()});
    texts_.finish(own_, number, {});
    collect(mine.size(), all, number);
    texts_.leave(own_, number);
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const bool sends = rank_ == root;
    const auto number = texts_.start(own_, spreading(bytes, root), sends ? Bytes{bytes.begin(), bytes.end()} : Bytes{});
    texts_.finish(own_, number, {.from = sends ? Needs::From::nobody : Needs::From::one, .rank = job_rank(root)});
    if (!sends) std::ranges::copy(texts_.brought(number, job_rank(root)), bytes.begin());
    texts_.leave(own_, number);
  }

  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>& words) override {
    const auto mine = std::as_bytes(std::span{words});
    return std::make_unique<Started>(plane_, own_, "max", Bytes{mine.begin(), mine.end()},
                                     [this, &words](std::uint64_t number) { raise(words, number); });
  }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return std::make_unique<Started>(
        texts_, own_, gathering(mine), Bytes{mine.begin(), mine.end()},
        [this, size = mine.size(), all](std::uint64_t number) { collect(size, all, number); });
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) override {
    return std::make_unique<Started>(texts_, own_, spreading(bytes, root),
                                     rank_ == root ? Bytes{bytes.begin(), bytes.end()} : Bytes{},
                                     [this, bytes, root](std::uint64_t number) {
                                       if (rank_ != root)
                                         std::ranges::copy(texts_.brought(number, job_rank(root)), bytes.begin());
                                     });
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<Channel>(plane_.job().split(plane_, key, plane_.job_ranks(members)), own_);
  }

 private:
  static std::string gathering(std::span<const std::byte> mine) {
    return fmt::format("all_gather of {} bytes", mine.size());
  }
  std::string spreading(std::span<const std::byte> bytes, int root) const {
    return fmt::format("broadcast of {} bytes from replica {}", bytes.size(), job_rank(root));
  }

  void raise(std::array<std::uint64_t, 2>& words, std::uint64_t number) const {
    for (int from = 0; from < size_; ++from) {
      std::array<std::uint64_t, 2> others;
      std::memcpy(others.data(), plane_.brought(number, job_rank(from)).data(), sizeof others);
      words = {std::max(words[0], others[0]), std::max(words[1], others[1])};
    }
  }
  void collect(std::size_t size, std::span<std::byte> all, std::uint64_t number) const {
    for (int from = 0; from < size_; ++from)
      std::ranges::copy(texts_.brought(number, job_rank(from)), all.begin() + static_cast<std::ptrdiff_t>(size) * from);
  }

  int job_rank(int rank) const { return plane_.members()[static_cast<std::size_t>(rank)]; }

  Plane& plane_;
  Plane& texts_;  ///< the same ranks: all but maxima, which may be under way
  int own_;       ///< the job's number
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank) {
  return std::make_unique<Channel>(plane, rank);
}

}  // namespace lockstep::sim
