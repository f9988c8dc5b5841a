// The seam between lockstep-train and liblockstep-tensorboard.so, which alone links protobuf: a process that loads
// LibTorch's wheels has another one. It is opened when somebody asks for event files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct TensorBoardEvent {
  enum class Kind : std::uint8_t {
    file_version,   ///< the first of each file
    session_start,  ///< from `step` on, what earlier files hold does not count
    scalars,
  };

  Kind kind = Kind::scalars;
  double wall_time = 0;  ///< seconds since 1970
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> scalars = {};  ///< tags and values
};

/// What the library offers.
struct EventRecords {
  /// Of lockstep. Always the first member, for readers of another version.
  const char* version;
  /// The record of an event: length, masked CRC-32C of the length, the message, masked CRC-32C of the message.
  std::string (*record_of)(const TensorBoardEvent& event);
};

inline constexpr const char* event_records_symbol = "lockstep_event_records";
using FindEventRecords = const EventRecords*();

}  // namespace lockstep
