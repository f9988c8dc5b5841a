// The event files for TensorBoard, read back by the rules of TFRecord and of protobuf's wire format.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/reports/event_file.hpp"
#include "support/job.hpp"

using namespace lockstep;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;

namespace {

/// Bit by bit, unlike the library.
std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

template <typename Number>
Number taken(std::string_view& bytes) {
  Number number;
  REQUIRE(bytes.size() >= sizeof number);
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

bool has_crc(std::string_view bytes, std::uint32_t masked) {
  return std::rotl(masked - 0xa282ead8u, 15) == crc32c(bytes);
}

/// The messages in a file, up to a record that is cut.
std::vector<std::string> records_in(std::string_view bytes) {
  std::vector<std::string> records;
  while (bytes.size() >= 12) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const auto length = taken<std::uint64_t>(bytes);
    REQUIRE(has_crc(length_bytes, taken<std::uint32_t>(bytes)));
    if (bytes.size() < length + 4) break;
    records.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
    REQUIRE(has_crc(records.back(), taken<std::uint32_t>(bytes)));
  }
  return records;
}

struct Field {
  std::uint64_t number = 0;  ///< of a varint
  double real = 0;           ///< of 4 or 8 bytes
  std::string_view bytes = {};
};

std::uint64_t varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = taken<unsigned char>(bytes);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

/// A message by the numbers of its fields.
std::multimap<std::uint64_t, Field> fields_of(std::string_view message) {
  std::multimap<std::uint64_t, Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    Field field;
    switch (key & 7) {
      case 0: field.number = varint(message); break;
      case 1: field.real = taken<double>(message); break;
      case 2: {
        const std::uint64_t size = varint(message);
        REQUIRE(size <= message.size());
        field.bytes = message.substr(0, size);
        message.remove_prefix(size);
        break;
      }
      case 5: field.real = static_cast<double>(taken<float>(message)); break;
      default: FAIL("a type of field that events do not have");
    }
    fields.emplace(key >> 3, field);
  }
  return fields;
}

std::uint64_t step_in(std::string_view event) {
  const auto fields = fields_of(event);
  return fields.contains(2) ? fields.find(2)->second.number : 0;
}

/// The tags and values of an event.
std::map<std::string, double> scalars_in(std::string_view event) {
  std::map<std::string, double> scalars;
  const auto fields = fields_of(event);
  REQUIRE(fields.count(5) == 1);
  for (const auto& [number, value] : fields_of(fields.find(5)->second.bytes)) {
    REQUIRE(number == 1);
    const auto parts = fields_of(value.bytes);
    scalars[std::string{parts.find(1)->second.bytes}] = parts.find(2)->second.real;
  }
  return scalars;
}

}  // namespace

TEST_CASE("an event file holds a record for each step and evaluation as soon as it is reported") {
  REQUIRE(crc32c("123456789") == 0xe3069283);
  const TemporaryDirectory folder;
  EventFile file{folder.path() / "events"};
  CHECK_THAT(file.path().filename().string(), Catch::Matches(R"(events\.out\.tfevents\.\d{10,}\..+)"));
  const auto events = [&] { return records_in(read_file(file.path())); };
  REQUIRE(events().size() == 2);
  CHECK(fields_of(events()[0]).find(3)->second.bytes == "brain.Event:2");
  CHECK(fields_of(events()[0]).find(1)->second.real > 1.6e9);
  file.on_step({.step = 300, .loss = 2.5, .learning_rate = 0.25, .gradient_norm = 4, .samples_per_second = 1024});
  REQUIRE(events().size() == 3);
  CHECK(step_in(events()[2]) == 300);
  CHECK(scalars_in(events()[2]) == std::map<std::string, double>{{"train/loss", 2.5},
                                                                 {"train/learning_rate", 0.25},
                                                                 {"train/gradient_norm", 4},
                                                                 {"train/samples_per_second", 1024}});
  file.on_evaluation({.step = 300, .loss = 1.5, .accuracy = 0.75});
  CHECK(scalars_in(events().at(3)) ==
        std::map<std::string, double>{{"evaluation/loss", 1.5}, {"evaluation/accuracy", 0.75}});
  file.on_evaluation({.step = 300, .loss = 1.5, .r_squared = 0.5, .mean_absolute_error = 2});
  CHECK(scalars_in(events().at(4)) == std::map<std::string, double>{{"evaluation/loss", 1.5},
                                                                    {"evaluation/r2", 0.5},
                                                                    {"evaluation/mean_absolute_error", 2}});
}

TEST_CASE("an event file has the parts of a step as the mean of the ranks, and how late each rank was") {
  const TemporaryDirectory folder;
  EventFile file{folder.path()};
  Observer::Parts::Replica first{}, second{};
  first.replica = 0, first.name = "chief:0", first.data = 1, first.waiting = 4;
  second.replica = 1, second.name = "worker:0", second.data = 3, second.backward = 8, second.late = 0.5;
  file.on_parts({.step = 20, .steps = 4, .replicas = {first, second}});
  const auto events = records_in(read_file(file.path()));
  REQUIRE(events.size() == 3);
  CHECK(step_in(events[2]) == 20);
  CHECK(scalars_in(events[2]) == std::map<std::string, double>{{"parts/data", 0.5},
                                                               {"parts/forward", 0},
                                                               {"parts/backward", 1},
                                                               {"parts/optimizer", 0},
                                                               {"parts/checkpoint", 0},
                                                               {"parts/evaluation", 0},
                                                               {"parts/other", 0},
                                                               {"parts/waiting", 0.5},
                                                               {"late/0 chief:0", 0},
                                                               {"late/1 worker:0", 0.5}});
  file.on_parts({.step = 30, .steps = 0, .replicas = {first}});
  CHECK(records_in(read_file(file.path())).size() == 3);
}

TEST_CASE("a resumed run begins a later file, whose session starts at its first step") {
  const TemporaryDirectory folder;
  std::string first;
  {
    EventFile file{folder.path()};
    first = file.path().filename().string();
    for (const std::int64_t step : {1, 2, 3}) file.on_step({.step = step, .loss = 1});
  }
  // Killed in the middle of a record.
  const std::string bytes = read_file(folder.path() / first);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK(records_in(std::string_view{bytes}.substr(0, size)).size() < 5);
  EventFile file{folder.path(), nullptr, 2};
  CHECK(file.path().filename().string() > first);
  const auto events = records_in(read_file(file.path()));
  REQUIRE(events.size() == 2);
  const auto session = fields_of(events[1]);
  CHECK(step_in(events[1]) == 3);
  CHECK(fields_of(session.find(7)->second.bytes).find(1)->second.number == 1);
  CHECK(read_file(folder.path() / first) == bytes);
}

TEST_CASE("a folder that cannot be written is refused before the training") {
  const TemporaryDirectory folder;
  const auto file = folder.write("file", "x");
  CHECK_THROWS_AS(EventFile{file}, ConfigError);
  CHECK_THROWS_WITH(EventFile{file / "events"}, Catch::Contains("--tensorboard " + (file / "events").string()));
}
