// Who holds a lock: LockHolder of lease.hpp.
#include <chrono>
#include <random>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <lockstep/core/base/hex.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/host_name.hpp"
#include "sync/checkpoint/lease.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

LockHolder LockHolder::self() {
  std::random_device random;
  const std::uint64_t key = (std::uint64_t{random()} << 32) | random();
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return {.host = host_name(),
          .process = ::getpid(),
          .since = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now))),
          .key = to_hex(key)};
}

std::string line_about(const LockHolder& holder) {
  const Json line{{"host", holder.host}, {"process", holder.process}, {"since", holder.since}, {"key", holder.key}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LockHolder> parse_holder(std::string_view text) {
  const Json line = Json::parse(text, nullptr, false);
  try {
    return LockHolder{line.at("host"), line.at("process"), line.at("since"), line.at("key")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string describe(const std::optional<LockHolder>& holder) {
  if (!holder) return "another process";
  return fmt::format("process {} on host {} since {}", holder->process, excerpt(holder->host), excerpt(holder->since));
}

}  // namespace lockstep
