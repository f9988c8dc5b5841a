// The control plane of a simulated rank.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "job/sim/job.hpp"
#include "job/sim/planes.hpp"

namespace lockstep::sim {
namespace {

/// A collective, as one rank sees it.
struct Part {
  Plane& plane;
  std::string what;
  Bytes bytes;  ///< for the others
  Needs needs;
  std::function<void(std::uint64_t number)> take;  ///< reads what the others brought
};

class Started final : public ControlChannel::Exchange {
 public:
  Started(int rank, Part part)
      : rank_{rank},
        part_{std::move(part)},
        number_{part_.plane.start_beside(rank, part_.what, std::move(part_.bytes))} {}

  bool advance() override {
    if (!part_.take) return true;
    if (!part_.plane.is_here(number_)) return false;
    std::exchange(part_.take, nullptr)(number_);
    part_.plane.leave(rank_, number_);
    return true;
  }

 private:
  int rank_;
  Part part_;
  std::uint64_t number_;
};

class Channel final : public ControlChannel {
 public:
  Channel(Plane& plane, int rank)
      : plane_{plane},
        texts_{plane.job().split(plane, 0, plane.members())},
        own_{rank},
        rank_{plane.place_of(rank)},
        size_{static_cast<int>(plane.members().size())} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    make(maximum(words));
    return words;
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { make(gathering(mine, all)); }
  void broadcast(std::span<std::byte> bytes, int root) override { make(spreading(bytes, root)); }

  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>& words) override { return begin(maximum(words)); }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return begin(gathering(mine, all));
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) override {
    return begin(spreading(bytes, root));
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    return std::make_unique<Channel>(plane_.job().split(plane_, key, plane_.ranks_at(members)), own_);
  }

 private:
  void make(Part part) {
    const auto number = part.plane.start(own_, std::move(part.what), std::move(part.bytes));
    part.plane.finish(own_, number, part.needs);
    part.take(number);
    part.plane.leave(own_, number);
  }
  std::unique_ptr<Exchange> begin(Part part) const { return std::make_unique<Started>(own_, std::move(part)); }

  Part maximum(std::array<std::uint64_t, 2>& words) const {
    const auto mine = std::as_bytes(std::span{words});
    return {plane_, "max", {mine.begin(), mine.end()}, {}, [this, &words](std::uint64_t number) {
              for (const int from : plane_.members()) {
                std::array<std::uint64_t, 2> others;
                std::memcpy(others.data(), plane_.brought(number, from).data(), sizeof others);
                words = {std::max(words[0], others[0]), std::max(words[1], others[1])};
              }
            }};
  }
  Part gathering(std::span<const std::byte> mine, std::span<std::byte> all) const {
    return {texts_,
            fmt::format("all_gather of {} bytes", mine.size()),
            {mine.begin(), mine.end()},
            {},
            [this, all](std::uint64_t number) {
              auto to = all.begin();
              for (const int from : plane_.members()) to = std::ranges::copy(texts_.brought(number, from), to).out;
            }};
  }
  Part spreading(std::span<std::byte> bytes, int root) const {
    const int from = plane_.rank_at(root);
    const std::string what = fmt::format("broadcast of {} bytes from replica {}", bytes.size(), from);
    if (own_ == from)
      return {texts_, what, {bytes.begin(), bytes.end()}, {.from = Needs::From::nobody}, [](std::uint64_t) {}};
    return {texts_, what, {}, {.from = Needs::From::one, .rank = from}, [this, bytes, from](std::uint64_t number) {
              std::ranges::copy(texts_.brought(number, from), bytes.begin());
            }};
  }

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
