// JSON that anybody may have written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// JSON whose objects have their keys in the order of the text. It finds a key by comparing it with each in turn.
using OrderedJson = nlohmann::ordered_json;

struct JsonLimits {
  int levels = 32;  ///< of lists and objects inside one another
};

/// Why a text is refused. Its words follow the text's name: "has the key "w" twice in one object".
struct JsonFault : Error {
  enum class Kind : std::uint8_t { malformed, too_deep, repeated_key, too_large_number };

  JsonFault(const std::string& what, Kind what_kind, std::size_t where, std::string its_path)
      : Error{what}, kind{what_kind}, position{where}, path{std::move(its_path)} {}

  Kind kind;
  /// Of `malformed` and `too_large_number`: the number of bytes up to there, one more than there are at the end of the
  /// text.
  std::size_t position;
  std::string path;  ///< of the key where it shows, in JSON's words: "cluster.worker"; empty outside of objects
};

/// The value in `text`, in time that grows with the text and not faster. JsonFault for a text that is not JSON, is
/// nested deeper than `limits`, or has an object with a key twice, of which the parser alone would keep the last.
LOCKSTEP_PARTS_API OrderedJson parse_foreign_json(std::string_view text, const JsonLimits& limits = {});

/// Calls `member` for each key of the object in `text` and its value, in their order, without holding them all. Error,
/// as parse_foreign_json, at the latest after the last one, and for a text that is no object.
using JsonMember = std::function<void(const std::string& key, const OrderedJson& value)>;
void parse_foreign_members(std::string_view text, const JsonMember& member, const JsonLimits& limits = {});

/// `value` as JSON for a message: on one line and in ASCII, as `excerpt` has it.
LOCKSTEP_PARTS_API std::string shown(const OrderedJson& value);

}  // namespace lockstep
