#include "core/cluster/spec_json.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/excerpt.hpp"

namespace lockstep::spec_json {
namespace {

constexpr int deepest = 100;

constexpr std::string_view expected_shape = R"(expected an object like {"cluster": {"worker": ["host:2222"]}})";

/// On one line, in ASCII.
std::string text_of(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

/// Follows the parser through the text: knows the key it is at, and the first key that an object repeats.
class KeyWatch {
 public:
  void see(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start) {
      objects_.emplace_back();
    } else if (event == Event::object_end) {
      objects_.pop_back();
    } else if (event == Event::key) {
      Level& object = objects_.back();
      object.current = parsed.get<std::string>();
      if (!object.seen.insert(object.current).second && !repeated_) repeated_ = path();
    }
  }

  const std::optional<std::string>& repeated() const { return repeated_; }

  /// "cluster.worker"; empty before the first key.
  std::string path() const {
    std::vector<std::string> keys;
    for (const Level& object : objects_) {
      // Keys appear in messages: escaped as in JSON, without the quotes.
      const std::string quoted = text_of(object.current);
      keys.push_back(quoted.substr(1, quoted.size() - 2));
    }
    return fmt::format("{}", fmt::join(keys, "."));
  }

 private:
  struct Level {
    std::set<std::string> seen;
    std::string current;
  };

  std::vector<Level> objects_;
  std::optional<std::string> repeated_;
};

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

std::string shown(const Json& value) {
  return excerpt(text_of(value));
}

Json parse_object(std::string_view text, std::string_view source) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw ConfigError{fmt::format("{}: there is nothing in it; {}", source, expected_shape)};

  KeyWatch watch;
  Json root;
  try {
    root = Json::parse(text, [&](int depth, Json::parse_event_t event, Json& parsed) {
      // The parser itself can handle any depth, but formatting a value for a message recurses into it.
      const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
      if (opens && depth >= deepest)
        throw ConfigError{fmt::format("{}: nested more than {} levels deep; {}", source, deepest, expected_shape)};
      watch.see(event, parsed);
      return true;
    });
  } catch (const Json::parse_error& error) {
    // The parser counts bytes from 1 and counts the end of the text as one more byte.
    const std::size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    if (offset >= text.size())
      throw ConfigError{
          fmt::format("{}: the text ends too early, at {}; {}", source, place_of(text, text.size()), expected_shape)};
    throw ConfigError{fmt::format("{}: not valid JSON at {}; {}", source, place_of(text, offset), expected_shape)};
  } catch (const Json::out_of_range&) {  // 1e999 is well formed, but not a number
    const std::string key = watch.path();
    if (key.empty()) throw ConfigError{fmt::format("{}: a number is too large; {}", source, expected_shape)};
    throw error_at(source, key, "the number is too large; expected one below 1e308");
  }
  if (!root.is_object()) throw ConfigError{fmt::format("{}: {}, got {}", source, expected_shape, shown(root))};
  if (watch.repeated())
    throw error_at(source, *watch.repeated(), "given twice in the same object; expected every key once");
  return root;
}

}  // namespace lockstep::spec_json
