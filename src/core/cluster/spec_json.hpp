// A cluster spec as JSON. Every fault in it becomes one line that says where it is.
#pragma once

#include <string_view>

#include <lockstep/core/base/error.hpp>

#include "core/base/foreign_json.hpp"

namespace lockstep::spec_json {

using Json = OrderedJson;

/// The JSON object in `text`. ConfigError if the text is empty, ends too early, is malformed (giving line and column),
/// is not an object, or contains an object with a repeated key (the library would silently keep the last).
Json parse_object(std::string_view text, std::string_view source);

/// "SOURCE: key "KEY": WHAT", with `excerpt` of the key.
ConfigError error_at(std::string_view source, std::string_view key, std::string_view what);

}  // namespace lockstep::spec_json
