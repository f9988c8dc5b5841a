// The control plane of a simulated rank.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "job/sim/job.hpp"
#include "job/sim/mpi_routes.hpp"
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
  Route route = {};
};

class Started final : public ControlChannel::Exchange {
 public:
  Started(int rank, Part part)
      : rank_{rank},
        part_{std::move(part)},
        number_{part_.plane.start_beside(rank, part_.what, std::move(part_.bytes), part_.route)} {}

  bool advance() override {
    if (!part_.take) return true;
    if (!part_.plane.is_here(rank_, number_)) return false;
    std::exchange(part_.take, nullptr)(number_);
    part_.plane.leave(rank_, number_);
    return true;
  }

 private:
  int rank_;
  Part part_;
  std::uint64_t number_;
};

/// An agreement on a network: each round is a message, as over MPI (mpi_channel.cpp).
class Agreeing final : public ControlChannel::Exchange {
 public:
  Agreeing(Plane& plane, int rank, std::uint64_t number, Rounds::Words& words)
      : plane_{plane},
        rank_{rank},
        rounds_{plane.place_of(rank), static_cast<int>(plane.members().size())},
        number_{number},
        words_{words} {
    plane_.job().point(rank, "max");
    if (rounds_.count() > 0) tell();
  }

  bool advance() override {
    while (round_ < rounds_.count()) {
      const auto heard = plane_.hear(rank_, number_, round_);
      if (!heard) return false;
      Rounds::raise(words_, *heard);
      if (++round_ < rounds_.count()) tell();
    }
    return true;
  }

 private:
  void tell() { plane_.tell(rank_, rounds_.to(round_), number_, round_, words_); }

  Plane& plane_;
  int rank_;  ///< the job's number
  Rounds rounds_;
  std::uint64_t number_;
  Rounds::Words& words_;
  int round_ = 0;
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
    if (plane_.job().network())
      agree(words);
    else
      make(maximum(words));
    return words;
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { make(gathering(mine, all)); }
  void broadcast(std::span<std::byte> bytes, int root) override { make(spreading(bytes, root)); }

  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>& words) override {
    if (plane_.job().network()) return std::make_unique<Agreeing>(plane_, own_, agreements_++, words);
    return begin(maximum(words));
  }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return begin(gathering(mine, all));
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) override {
    return begin(spreading(bytes, root));
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) override {
    Plane& split = plane_.job().split(plane_, key, plane_.ranks_at(members));
    count_split(split, own_);
    return std::make_unique<Channel>(split, own_);
  }

 private:
  void make(Part part) {
    const auto number = part.plane.start(own_, std::move(part.what), std::move(part.bytes), part.route);
    part.plane.finish(own_, number, part.needs);
    part.take(number);
    part.plane.leave(own_, number);
  }
  void agree(Rounds::Words& words) {
    plane_.enter(own_, "max");
    Agreeing agreeing{plane_, own_, agreements_++, words};
    while (!agreeing.advance()) plane_.job().wait_for_news(own_);
    plane_.exit(own_);
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
            },
            all_gather_route(plane_, std::ssize(all), std::ssize(mine))};
  }
  Part spreading(std::span<std::byte> bytes, int root) const {
    const int from = plane_.rank_at(root);
    const std::string what = fmt::format("broadcast of {} bytes from replica {}", bytes.size(), from);
    if (own_ == from)
      return {texts_,
              what,
              {bytes.begin(), bytes.end()},
              {.from = Needs::From::nobody},
              [](std::uint64_t) {},
              broadcast_route(plane_, root, root, std::ssize(bytes))};
    return {
        texts_,
        what,
        {},
        {.from = Needs::From::one, .rank = from},
        [this, bytes, from](std::uint64_t number) { std::ranges::copy(texts_.brought(number, from), bytes.begin()); },
        broadcast_route(plane_, rank_, root, std::ssize(bytes))};
  }

  Plane& plane_;
  Plane& texts_;  ///< the same ranks: all but maxima, which may be under way
  int own_;       ///< the job's number
  int rank_;
  int size_;
  std::uint64_t agreements_ = 0;
};

}  // namespace

std::unique_ptr<ControlChannel> make_channel(Plane& plane, int rank) {
  return std::make_unique<Channel>(plane, rank);
}

}  // namespace lockstep::sim
