#include "core/cluster/address.hpp"

#include <algorithm>
#include <array>

#include <arpa/inet.h>

#include "core/base/decimal.hpp"
#include "core/base/lower_case.hpp"

namespace lockstep {
namespace {

// Not <cctype>: the characters of a host name do not depend on the locale.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_host_character(char c) {
  return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_';
}

bool is_port(std::string_view text) {
  int port = 0;
  return !text.starts_with('0') && std::ranges::all_of(text, is_digit) && parse_decimal(text, port) && port <= 65535;
}

std::optional<std::string> normalised_name(std::string_view name) {
  if (name.empty() || name.front() == '.' || name.front() == '-' || name.find("..") != std::string_view::npos ||
      !std::all_of(name.begin(), name.end(), is_host_character))
    return std::nullopt;
  return lower_case(name);
}

/// `text` is the part between the brackets. A zone ("fe80::1%eth0") is kept as it is.
std::optional<std::string> normalised_ipv6(std::string_view text) {
  const std::size_t zone = text.find('%');
  const std::string digits{text.substr(0, zone)};
  in6_addr bytes{};
  std::array<char, INET6_ADDRSTRLEN> shortest{};
  if (inet_pton(AF_INET6, digits.c_str(), &bytes) != 1 ||
      !inet_ntop(AF_INET6, &bytes, shortest.data(), shortest.size()))
    return std::nullopt;
  std::string address = shortest.data();
  if (zone != std::string_view::npos) {
    const std::string_view name = text.substr(zone + 1);
    if (name.empty() || !std::all_of(name.begin(), name.end(), is_host_character)) return std::nullopt;
    address.append("%").append(name);
  }
  return "[" + address + "]";
}

}  // namespace

std::optional<std::string> normalised_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !is_port(text.substr(colon + 1))) return std::nullopt;
  const std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  std::optional<std::string> normal =
      bracketed ? normalised_ipv6(host.substr(1, host.size() - 2)) : normalised_name(host);
  if (normal) normal->append(text.substr(colon));
  return normal;
}

}  // namespace lockstep
