#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/hex.hpp>
#include <lockstep/strategy/host_values.hpp>

#include "base/digest.hpp"
#include "tensor/digest.hpp"

namespace lockstep::detail {
namespace {

std::string comparable_digest(std::string_view type, std::uint64_t digest) {
  return fmt::format("{} of digest {}", type, to_hex(digest));
}

}  // namespace

std::string comparable_text(double value) {
  return fmt::format("{}", value);
}
std::string comparable_text(long long value) {
  return fmt::format("{}", value);
}
std::string comparable_text(std::string_view value) {
  // A quote inside could make two texts read alike, and a control character would not be shown as it is.
  const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) { return c >= ' ' && c != '\''; });
  return plain && value.size() < 100 ? fmt::format("'{}'", value) : comparable_digest("text", digest_of(value));
}
std::string comparable_text(const Tensor& value) {
  return comparable_digest(describe(value.view()), digest_of_elements(value.view()));
}
std::string comparable_list(const std::vector<std::string>& texts) {
  const std::string all = fmt::format("[{}]", fmt::join(texts, " "));
  return all.size() < 100 ? all : comparable_digest("values", digest_of(all));
}
std::string comparable_bytes(std::span<const std::byte> value) {
  return comparable_digest("value", digest_of(value));
}

}  // namespace lockstep::detail
