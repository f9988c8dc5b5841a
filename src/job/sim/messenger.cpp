#include "core/comm/messenger.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "job/sim/job.hpp"
#include "job/sim/planes.hpp"

namespace lockstep::sim {
namespace {

/// Whether parcels of that size bring their contents; the same on the rank that sends one and on that which gets it.
bool is_carried(const Plane& plane, std::size_t bytes) {
  const Network* const network = plane.job().network();
  return !network || bytes * plane.members().size() <= network->links().carried_bytes;
}

/// Parcels as one message to all: where each begins, and then their bytes.
Bytes pack(std::span<const std::span<const std::byte>> parcels) {
  std::vector<std::uint64_t> bounds{(parcels.size() + 1) * sizeof(std::uint64_t)};
  for (const auto& parcel : parcels) bounds.push_back(bounds.back() + parcel.size());
  const auto head = std::as_bytes(std::span{bounds});
  Bytes bytes{head.begin(), head.end()};
  for (const auto& parcel : parcels) bytes.insert(bytes.end(), parcel.begin(), parcel.end());
  return bytes;
}

std::span<const std::byte> unpack(const Bytes& bytes, std::size_t number) {
  std::uint64_t bounds[2];
  std::memcpy(bounds, bytes.data() + number * sizeof(std::uint64_t), sizeof bounds);
  return std::span{bytes}.subspan(bounds[0], bounds[1] - bounds[0]);
}

class UnderWay final : public Work::Pending {
 public:
  UnderWay(Plane& plane, int rank, std::uint64_t number, std::span<const Parcel> parcels)
      : plane_{plane}, rank_{rank}, number_{number}, parcels_{parcels.begin(), parcels.end()} {}

  bool advance() override {
    plane_.job().point(rank_, "a look for messages");
    return plane_.is_here(rank_, number_);
  }

  void wait() override {
    plane_.finish(rank_, number_, {});
    const Bytes& own = plane_.brought(number_, rank_);
    for (std::size_t i = 0; i < parcels_.size(); ++i) {
      const int from = plane_.members()[i];
      if (is_carried(plane_, parcels_[i].sent.size()) && !std::ranges::equal(unpack(own, i), parcels_[i].sent))
        throw CommError{fmt::format("a parcel for {} was written to before wait() returned", plane_.job().name(from))};
      if (from == rank_ || !is_carried(plane_, parcels_[i].received.size())) continue;
      const auto came = unpack(plane_.brought(number_, from), static_cast<std::size_t>(plane_.place_of(rank_)));
      if (came.size() != parcels_[i].received.size())
        throw CommError{fmt::format("{} sent {} bytes to {}, which expected {}", plane_.job().name(from), came.size(),
                                    plane_.job().name(rank_), parcels_[i].received.size())};
      std::ranges::copy(came, parcels_[i].received.begin());
    }
    plane_.leave(rank_, number_);
  }

 private:
  Plane& plane_;
  int rank_;
  std::uint64_t number_;
  std::vector<Parcel> parcels_;
};

class SimMessenger final : public Messenger {
 public:
  SimMessenger(Plane& plane, int rank) : rank_{rank} {
    for (std::uint64_t lane = 0; lane < lanes; ++lane)
      lanes_.emplace_back(plane.job().split(plane, lane, plane.members()));
  }

  Work start(std::span<const Parcel> parcels, Lane lane) override {
    Plane& plane = lanes_[static_cast<std::size_t>(lane)];
    std::vector<Parcel> own{parcels.begin(), parcels.end()};
    own[static_cast<std::size_t>(plane.place_of(rank_))] = {};
    std::vector<std::span<const std::byte>> carried;
    for (const Parcel& parcel : own)
      carried.push_back(is_carried(plane, parcel.sent.size()) ? parcel.sent : std::span<const std::byte>{});
    const auto bytes_to = [&own](int place) { return std::ssize(own[static_cast<std::size_t>(place)].sent); };
    const std::uint64_t number = plane.start(rank_, fmt::format("an exchange of parcels among {} ranks", own.size()),
                                             pack(carried), {.bytes_to = bytes_to, .longest_message = piece_bytes});
    return Work{std::make_unique<UnderWay>(plane, rank_, number, own)};
  }

  std::chrono::duration<double> now() const override { return lanes_.front().get().job().now(); }

 private:
  std::vector<std::reference_wrapper<Plane>> lanes_;
  int rank_;
};

}  // namespace

std::unique_ptr<Messenger> make_messenger(Plane& plane, int rank) {
  return std::make_unique<SimMessenger>(plane, rank);
}

}  // namespace lockstep::sim
