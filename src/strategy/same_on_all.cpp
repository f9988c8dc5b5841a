#include <fmt/format.h>

#include <lockstep/strategy/same_on_all.hpp>

namespace lockstep::detail {

std::string comparable_text(double value) {
  return fmt::format("{}", value);
}
std::string comparable_text(long long value) {
  return fmt::format("{}", value);
}
std::string comparable_text(std::string_view value) {
  return value.size() < 100 ? fmt::format("'{}'", value) : comparable_digest("text", digest_of(value));
}
std::string comparable_text(const Tensor& value) {
  return comparable_digest(describe(value.view()),
                           digest_of(std::span<const std::byte>{value.view().data(), value.view().bytes()}));
}
std::string comparable_digest(std::string_view type, std::uint64_t digest) {
  return fmt::format("{} of digest {}", type, to_hex(digest));
}

}  // namespace lockstep::detail
