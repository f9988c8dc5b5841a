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

/// Parcels as one message to all: where each begins, and then their bytes.
Bytes pack(std::span<const Parcel> parcels) {
  std::vector<std::uint64_t> bounds{(parcels.size() + 1) * sizeof(std::uint64_t)};
  for (const Parcel& parcel : parcels) bounds.push_back(bounds.back() + parcel.sent.size());
  const auto head = std::as_bytes(std::span{bounds});
  Bytes bytes{head.begin(), head.end()};
  for (const Parcel& parcel : parcels) bytes.insert(bytes.end(), parcel.sent.begin(), parcel.sent.end());
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
    return plane_.is_here(number_);
  }

  void wait() override {
    plane_.finish(rank_, number_, {});
    const Bytes& own = plane_.brought(number_, rank_);
    for (std::size_t i = 0; i < parcels_.size(); ++i) {
      const int from = plane_.members()[i];
      if (!std::ranges::equal(unpack(own, i), parcels_[i].sent))
        throw CommError{fmt::format("a parcel for {} was written to before wait() returned", plane_.job().name(from))};
      if (from == rank_) continue;
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
    const std::uint64_t number =
        plane.start(rank_, fmt::format("an exchange of parcels among {} ranks", own.size()), pack(own));
    return Work{std::make_unique<UnderWay>(plane, rank_, number, own)};
  }

 private:
  std::vector<std::reference_wrapper<Plane>> lanes_;
  int rank_;
};

}  // namespace

std::unique_ptr<Messenger> make_messenger(Plane& plane, int rank) {
  return std::make_unique<SimMessenger>(plane, rank);
}

}  // namespace lockstep::sim
