// How much of a sum is under way on wires of several rates.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/comm/messenger.hpp"
#include "support/done_communicator.hpp"
#include "sync/reduce/sums_under_way.hpp"

using namespace lockstep;
using namespace lockstep::test;
using lockstep::detail::Looks;
using lockstep::detail::SumsUnderWay;
using lockstep::detail::Window;

namespace {

using Seconds = Window::Seconds;

/// A rank's way to others that do all that it does, at the same time, in virtual time.
class Wire final : public Messenger {
 public:
  Wire(double bytes_per_second, Seconds latency) : rate_{bytes_per_second}, latency_{latency} {}

  Work start(std::span<const Parcel> parcels, Lane) override {
    struct Travelling final : Work::Pending {
      Travelling(Wire& its_wire, Seconds its_arrival, std::int64_t its_bytes)
          : wire{its_wire}, arrival{its_arrival}, bytes{its_bytes} {}
      bool advance() override { return wire.now_ >= arrival; }
      void wait() override {
        wire.now_ = std::max(wire.now_, arrival);
        wire.under_way_ -= bytes;
      }
      Wire& wire;
      Seconds arrival;
      std::int64_t bytes;
    };
    std::int64_t bytes = 0;
    for (const Parcel& parcel : parcels) bytes += std::ssize(parcel.sent);
    free_at_ = std::max(free_at_, now_) + Seconds{static_cast<double>(bytes) / rate_};
    most_ = std::max(most_, under_way_ += bytes);
    const bool is_here = here_ > 0;
    here_ -= bytes;
    return Work{std::make_unique<Travelling>(*this, is_here ? now_ : free_at_ + latency_, bytes)};
  }
  Seconds now() const override { return now_; }

  void compute(Seconds time) { now_ += time; }

  /// The others were ahead: so much of what they send next has come.
  void have_come(std::int64_t bytes) { here_ = bytes; }

  /// The most that was under way at a time since the last call.
  std::int64_t most() { return std::exchange(most_, under_way_); }

 private:
  double rate_;
  Seconds latency_;
  Seconds now_{100}, free_at_{0};
  std::int64_t under_way_ = 0, most_ = 0, here_ = 0;
};

constexpr int ranks = 4;

class WiredCommunicator final : public DoneCommunicator {
 public:
  explicit WiredCommunicator(Wire& wire) : DoneCommunicator{0, ranks}, wire_{wire} {}
  Messenger* messenger() override { return &wire_; }

 private:
  Wire& wire_;
};

struct Sums {
  Sums(double rate, Seconds latency)
      : wire{rate, latency},
        least{Seconds{2 * static_cast<double>(flat.bytes()) * (ranks - 1) / ranks / rate} + 2 * latency} {
    sums.measure_latency();
  }

  /// The time that a sum of 8 MB takes, over the least.
  double sum() {
    const Seconds begin = wire.now();
    const SumsUnderWay::Waiting waiting{&sums};
    sums.wait(*sums.start(flat));
    return (wire.now() - begin) / least;
  }

  std::vector<float> memory = std::vector<float>(2'000'000);
  TensorView flat{std::as_writable_bytes(std::span{memory}).data(), {std::ssize(memory)}, DType::f32};
  Wire wire;
  WiredCommunicator communicator{wire};
  SumsUnderWay sums{communicator, wire};
  Seconds least;
};

}  // namespace

TEST_CASE("as much is under way as a wire carries until the next look, however long the way is") {
  struct Case {
    double rate;
    Seconds latency;
    std::int64_t most;  ///< in both directions
  };
  const auto [rate, latency, most] =
      GENERATE(Case{11.4e6, Seconds{0.0002}, 500'000}, Case{11.4e6, Seconds{0.01}, 1'000'000},
               Case{11.4e6, Seconds{0.1}, 5'200'000}, Case{119e6, Seconds{0.0002}, 5'200'000},
               Case{119e6, Seconds{0.01}, 9'000'000}, Case{10e9, Seconds{0.00002}, 9'000'000});
  Sums sums{rate, latency};
  for (int i = 0; i < 5; ++i) (void)sums.sum();
  (void)sums.wire.most();
  const double ratio = sums.sum();
  CAPTURE(rate, latency.count(), ratio);
  CHECK(ratio < 1.03);
  CHECK(sums.wire.most() < most);
}

TEST_CASE("neither what has come before a late rank waits nor the time in which it computes is part of a rate") {
  Sums sums{11.4e6, Seconds{0.0002}};
  for (int i = 0; i < 5; ++i) (void)sums.sum();
  (void)sums.wire.most();
  for (int i = 0; i < 20; ++i) {
    sums.wire.have_come(700'000);
    (void)sums.sum();
    const std::int64_t most = sums.wire.most();
    CHECK(most < 500'000);
    CHECK(most > 300'000);
    const auto message = sums.sums.start(sums.flat);
    sums.wire.compute(Seconds{1});
    sums.sums.wait(*message);
    (void)sums.wire.most();
  }
}

TEST_CASE("a rank that only sends its slice to the root counts no more than that") {
  Sums sums{11.4e6, Seconds{0.0002}};
  for (int i = 0; i < 20; ++i) {
    const SumsUnderWay::Waiting waiting{&sums.sums};
    sums.sums.wait(*sums.sums.start_to_one(sums.flat, {}, 1));
  }
  (void)sums.wire.most();
  (void)sums.sum();
  CHECK(sums.wire.most() < 500'000);
}

TEST_CASE("a rank that computes gives the network what keeps it busy until it looks again") {
  Sums sums{11.4e6, Seconds{0.0002}};
  for (int i = 0; i < 5; ++i) (void)sums.sum();
  const auto message = sums.sums.start(sums.flat);
  (void)sums.wire.most();
  const Seconds begin = sums.wire.now();
  int looks = 0;
  for (; !message->is_done(); ++looks) {
    sums.wire.compute(Seconds{0.03});
    (void)sums.sums.advance();
  }
  CHECK(sums.wire.most() < 1'000'000);
  CHECK((sums.wire.now() - begin) / sums.least < 1.1);
  CHECK(looks > 20);
}

TEST_CASE("sums that are looked at all the time need no more than those for which a rank waits") {
  Wire wire{11.4e6, Seconds{0.0002}};
  WiredCommunicator communicator{wire};
  SumsUnderWay sums{communicator, wire, {Messenger::Lane::third, Messenger::Lane::fourth}, Looks::while_waiting};
  const Tensor memory = Tensor::zeros(DType::f32, {2'000'000});
  for (int i = 0; i < 5; ++i) {
    (void)wire.most();
    const auto message = sums.start(memory.view());
    while (!message->is_done()) {
      wire.compute(Seconds{0.0005});
      (void)sums.advance();
    }
  }
  CHECK(wire.most() < 900'000);
}
