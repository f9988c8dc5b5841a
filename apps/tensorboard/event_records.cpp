// Messages of protobuf, framed as TFRecord has it.
#include "apps/tensorboard/event_records.hpp"

#include <cstddef>
#include <string_view>

#include <boost/crc.hpp>

#include "events.pb.h"

namespace lockstep {
namespace {

void append_little_endian(std::string& bytes, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
}

/// The CRC-32C of `bytes`, changed so that the CRC of bytes that hold one is not itself special.
std::uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const std::uint32_t value = crc.checksum();
  return (value >> 15 | value << 17) + 0xa282ead8;
}

std::string framed(const std::string& message) {
  std::string record;
  append_little_endian(record, message.size(), 8);
  append_little_endian(record, masked_crc(record), 4);
  record += message;
  append_little_endian(record, masked_crc(message), 4);
  return record;
}

std::string record_of(const TensorBoardEvent& event) {
  tensorboard::Event message;
  message.set_wall_time(event.wall_time);
  message.set_step(event.step);
  switch (event.kind) {
    // From the second version on, readers heed the start of a session.
    case TensorBoardEvent::Kind::file_version: message.set_file_version("brain.Event:2"); break;
    case TensorBoardEvent::Kind::session_start:
      message.mutable_session_log()->set_status(tensorboard::SessionLog::START);
      break;
    case TensorBoardEvent::Kind::scalars:
      for (const auto& [tag, value] : event.scalars) {
        tensorboard::Summary::Value& scalar = *message.mutable_summary()->add_value();
        scalar.set_tag(tag);
        scalar.set_simple_value(static_cast<float>(value));
      }
      break;
  }
  return framed(message.SerializeAsString());
}

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) const lockstep::EventRecords* lockstep_event_records() {
  static const lockstep::EventRecords records{LOCKSTEP_VERSION, lockstep::record_of};
  return &records;
}
