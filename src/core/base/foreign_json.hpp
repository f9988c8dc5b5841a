// JSON that anybody may have written.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// JSON whose objects have their keys in the order of the text. It finds a key by comparing it with each in turn.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  int levels = 32;  ///< of lists and objects inside one another
};

/// The value in `text`, in time that grows with the text and not faster. Error for a text that is no JSON, is nested
/// deeper than `limits`, or has an object with a key twice, of which the parser alone would keep the last. Its words
/// follow the text's name: "has the key "w" twice in one object".
LOCKSTEP_PARTS_API OrderedJson parse_foreign_json(std::string_view text, const JsonLimits& limits = {});

/// Calls `member` for each key of the object in `text` and its value, in their order, without holding them all. Error
/// as parse_foreign_json, at the latest after the last one, and for a text that is no object.
using JsonMember = std::function<void(const std::string& key, const OrderedJson& value)>;
void parse_foreign_members(std::string_view text, const JsonMember& member, const JsonLimits& limits = {});

/// `value` as JSON for a message: on one line and in ASCII, as `excerpt` has it.
LOCKSTEP_PARTS_API std::string shown(const OrderedJson& value);

}  // namespace lockstep
