// How much of a sum between nodes is under way at a time.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep::detail {

/// How soon a rank looks again at what it has under way: when it has computed more, or at once, as it only waits.
enum class Looks : std::uint8_t { between_computations, while_waiting };

/// As many bytes as the network carries until the rank looks again. More would only wait in queues, and so would the
/// acknowledgements of what comes the other way. A sender that goes by round trips then holds back (Cardwell et al.:
/// "BBR: congestion-based congestion control", 2016). docs/measurements.md has what it costs.
///
/// The network's rate is the highest of those that this rank has met lately while it only waited. Not thread-safe.
class Window {
 public:
  using Seconds = std::chrono::duration<double>;

  /// Never more than `most` bytes.
  explicit Window(std::int64_t most) : most_{most} {}

  /// How long a message takes with nothing before it. A guess until it is set.
  void set_latency(Seconds latency) { latency_ = latency; }

  /// Of one direction of a sum. Until a rate is known, `most` between computations.
  std::int64_t bytes(Looks looks) const;

  /// Tells that `carried` bytes, of both directions, have come since the last look. `is_busy` says whether more are
  /// under way.
  void look(Seconds now, Looks looks, std::int64_t carried, bool is_busy);

 private:
  void take_sample();

  std::int64_t most_;
  Seconds latency_{0.010};
  double rate_ = 0;  ///< bytes per second; 0 until one is known
  Seconds last_look_{0};
  bool waits_ = false;  ///< since the last look
  Seconds waited_{0};   ///< for what has been carried since the last sample
  std::int64_t carried_ = 0;
};

}  // namespace lockstep::detail
