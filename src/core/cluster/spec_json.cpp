#include "core/cluster/spec_json.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"

namespace lockstep::spec_json {
namespace {

constexpr int deepest = 100;

constexpr std::string_view expected_shape = R"(expected an object like {"cluster": {"worker": ["host:2222"]}})";

/// "line 3, column 14", the place of the byte at `offset`. Columns count bytes.
std::string place_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     1 + before.size() - line_start);
}

}  // namespace

ConfigError error_at(std::string_view source, std::string_view key, std::string_view what) {
  return ConfigError{fmt::format("{}: key \"{}\": {}", source, excerpt(key), what)};
}

Json parse_object(std::string_view text, std::string_view source) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw ConfigError{fmt::format("{}: there is nothing in it; {}", source, expected_shape)};

  Json root;
  try {
    root = parse_foreign_json(text, {.levels = deepest});
  } catch (const JsonFault& fault) {
    switch (fault.kind) {
      case JsonFault::Kind::too_deep:
        throw ConfigError{fmt::format("{}: nested more than {} levels deep; {}", source, deepest, expected_shape)};
      case JsonFault::Kind::repeated_key:
        throw error_at(source, fault.path, "given twice in the same object; expected every key once");
      case JsonFault::Kind::too_large_number:
        if (!fault.path.empty())
          throw error_at(source, fault.path, "the number is too large; expected one below 1e308");
        throw ConfigError{fmt::format("{}: a number is too large; {}", source, expected_shape)};
      case JsonFault::Kind::malformed: break;
    }
    // Bytes are counted from 1, and the end of the text is one more.
    const std::size_t offset = fault.position == 0 ? 0 : fault.position - 1;
    if (offset >= text.size())
      throw ConfigError{
          fmt::format("{}: the text ends too early, at {}; {}", source, place_of(text, text.size()), expected_shape)};
    throw ConfigError{fmt::format("{}: not valid JSON at {}; {}", source, place_of(text, offset), expected_shape)};
  }
  if (!root.is_object()) throw ConfigError{fmt::format("{}: {}, got {}", source, expected_shape, shown(root))};
  return root;
}

}  // namespace lockstep::spec_json
