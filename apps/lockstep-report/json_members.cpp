#include "apps/lockstep-report/json_members.hpp"

#include <cmath>

#include "core/base/printable.hpp"

namespace lockstep::report {

const OrderedJson* member(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string{key});
  return found == object.end() ? nullptr : &*found;
}

std::string text_at(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = member(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

std::string shown(const OrderedJson& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string shown_at(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = member(object, key);
  return value ? shown(*value) : "";
}

std::optional<std::int64_t> integer_at(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = member(object, key);
  if (!value || !value->is_number_integer()) return std::nullopt;
  return value->get<std::int64_t>();
}

double seconds_at(const OrderedJson& object, std::string_view key) {
  const OrderedJson* const value = member(object, key);
  if (!value || !value->is_number()) return 0;
  const double seconds = value->get<double>();
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

std::string as_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t size = first < 0x80 ? 1 : character_bytes(text);
    if (size == 0)
      valid += "\xef\xbf\xbd";
    else
      valid += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

}  // namespace lockstep::report
