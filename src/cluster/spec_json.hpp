// JSON that a user wrote: whatever is wrong with it comes out as one line that says where.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>

namespace lockstep::spec_json {

using Json = nlohmann::json;

/// The JSON object in `text`. ConfigError if it is empty, ends too early, is malformed (line and column), is
/// no object, or has an object with the same key twice (of which the library would silently keep the last).
Json parse_object(std::string_view text, std::string_view source);

/// `value` as JSON: on one line, control characters escaped, cut where it is long.
std::string shown(const Json& value);

/// "SOURCE: key "KEY": WHAT".
ConfigError error_at(std::string_view source, std::string_view key, std::string_view what);

}  // namespace lockstep::spec_json
