// A warp in one of the functions that its lanes call together.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cusim_device.hpp"
#include "kernels/shadow.hpp"

namespace cusim {

/// What a lane has called and waits in.
struct LaneCall {
  enum class Kind : std::uint8_t { none, barrier, shuffle, ballot };

  Kind kind = Kind::none;
  std::uint32_t mask = 0;
  std::uint64_t value = 0;  ///< what the others may read, and later the result
  device::Shuffle shuffle = device::Shuffle::index;
  unsigned operand = 0;
  unsigned width = 32;
  device::Place place{};
};

class Warp {
 public:
  /// Begins with lanes 0 to `lanes` - 1.
  void begin(unsigned lanes);

  /// Notes what a lane calls. Returns what is wrong about it, else "".
  std::string call(unsigned lane, const LaneCall& call);
  /// Whether the lanes that `lane` waits for are all there.
  bool is_complete(unsigned lane) const;
  /// Gives each lane of `lane`'s call its result. Returns them, and what is wrong in `wrong`.
  std::uint32_t complete(unsigned lane, std::string& wrong);
  /// The result for a lane whose call is complete.
  std::uint64_t result(unsigned lane) const { return calls_[lane].value; }

  void end(unsigned lane) { present_ &= ~(1u << lane); }
  std::uint32_t present() const { return present_; }
  /// Lanes that wait in a call.
  std::uint32_t waiting() const { return waiting_; }
  const LaneCall& call_of(unsigned lane) const { return calls_[lane]; }

  WarpOrder order;

 private:
  std::uint64_t read_by(unsigned lane, std::string& wrong) const;

  std::uint32_t present_ = 0;  ///< lanes that exist and have not ended
  std::uint32_t waiting_ = 0;
  std::array<LaneCall, 32> calls_;
};

/// "__syncwarp" and so on.
const char* name_of(LaneCall::Kind kind);
/// "file.cu:12".
std::string text_of(device::Place place);

}  // namespace cusim
