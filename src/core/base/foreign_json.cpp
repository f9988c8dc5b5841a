#include "core/base/foreign_json.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/excerpt.hpp"

namespace lockstep {
namespace {

/// On one line, in ASCII.
std::string text_of(const OrderedJson& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace);
}

/// Follows the parser through the text. The library's own builder looks for each key among those before it, so an
/// object would take the square of its size.
class JsonBuilder {
 public:
  /// With `member`, the members of the outermost object go there as they come.
  explicit JsonBuilder(const JsonLimits& limits, JsonMember member = {})
      : limits_{limits}, member_{std::move(member)} {}

  OrderedJson take() { return std::move(root_); }

  /// Gives up what there is without freeing it: that needs memory, too, and a destructor without it ends the process.
  void leave() {
    alignas(OrderedJson) thread_local std::byte place[sizeof(OrderedJson)];
    (void)new (place) OrderedJson(std::move(root_));
  }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(OrderedJson::number_integer_t value) { return add(value); }
  bool number_unsigned(OrderedJson::number_unsigned_t value) { return add(value); }
  bool number_float(OrderedJson::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(OrderedJson::binary_t& value) { return add(std::move(value)); }
  bool start_object(std::size_t) {
    open(OrderedJson::object()).get_ref<OrderedJson::object_t&>().reserve(usual_size);
    return true;
  }
  bool start_array(std::size_t) {
    open(OrderedJson::array()).get_ref<OrderedJson::array_t&>().reserve(usual_size);
    return true;
  }
  bool key(std::string& name) {
    object().emplace_back(std::move(name), nullptr);
    return true;
  }
  bool end_object() {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : object()) keys.push_back(key);
    if (open_.size() == 1) keys.insert(keys.end(), given_.begin(), given_.end());
    require_distinct(std::move(keys));
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int number_overflow = 406;  // 1e999 is well formed, but not a number
    throw JsonFault{fmt::format("is no JSON from byte {} on", position),
                    error.id == number_overflow ? JsonFault::Kind::too_large_number : JsonFault::Kind::malformed,
                    position, path()};
  }

 private:
  static constexpr std::size_t usual_size = 3;  ///< of the many objects in a large text

  OrderedJson::object_t& object() { return open_.back()->get_ref<OrderedJson::object_t&>(); }

  /// Returns where it is now, which stays its place until what it is in gets another value.
  OrderedJson& place(OrderedJson value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->get_ref<OrderedJson::array_t&>().emplace_back(std::move(value));
    return object().back().second = std::move(value);
  }
  bool add(OrderedJson value) {
    place(std::move(value));
    give_member();
    return true;
  }
  OrderedJson& open(OrderedJson container) {
    if (std::ssize(open_) == limits_.levels)
      throw JsonFault{fmt::format("is nested more than {} levels deep", limits_.levels), JsonFault::Kind::too_deep, 0,
                      path()};
    return *open_.emplace_back(&place(std::move(container)));
  }
  bool close() {
    open_.pop_back();
    give_member();
    return true;
  }
  void give_member() {
    if (!member_ || open_.size() != 1 || !root_.is_object()) return;
    const auto& [key, value] = object().back();
    member_(key, value);
    given_.push_back(key);
    object().clear();
  }

  void require_distinct(std::vector<std::string_view> keys) const {
    std::ranges::sort(keys);
    if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
      throw JsonFault{fmt::format("has the key {} twice in one object", shown(*twice)), JsonFault::Kind::repeated_key,
                      0, path(*twice)};
  }

  /// Of the key that the parser is at, or of another one in the same object.
  std::string path(std::optional<std::string_view> last = {}) const {
    std::vector<std::string> keys;
    for (const OrderedJson* const each : open_) {
      if (!each->is_object()) continue;
      const auto& members = each->get_ref<const OrderedJson::object_t&>();
      const bool is_last = each == open_.back();
      if (members.empty() && !(is_last && last)) continue;
      // Keys appear in messages: escaped as in JSON, without the quotes.
      const std::string quoted = text_of(OrderedJson(is_last && last ? std::string{*last} : members.back().first));
      keys.push_back(quoted.substr(1, quoted.size() - 2));
    }
    return fmt::format("{}", fmt::join(keys, "."));
  }

  JsonLimits limits_;
  JsonMember member_;
  OrderedJson root_;
  std::vector<OrderedJson*> open_;  ///< lists and objects that the parser is inside of
  std::vector<std::string> given_;  ///< keys that `member_` was called for
};

void parse(std::string_view text, JsonBuilder& builder) {
  constexpr std::size_t large = std::size_t{64} << 10, for_the_message = std::size_t{1} << 20;
  std::unique_ptr<std::byte[]> spare;
  if (text.size() >= large) spare = std::make_unique_for_overwrite<std::byte[]>(for_the_message);
  try {
    OrderedJson::sax_parse(text, &builder);
  } catch (const std::bad_alloc&) {
    builder.leave();
    spare.reset();
    throw;
  }
}

}  // namespace

OrderedJson parse_foreign_json(std::string_view text, const JsonLimits& limits) {
  JsonBuilder builder{limits};
  parse(text, builder);
  return builder.take();
}

void parse_foreign_members(std::string_view text, const JsonMember& member, const JsonLimits& limits) {
  JsonBuilder builder{limits, member};
  parse(text, builder);
  if (!builder.take().is_object()) throw Error{"is no JSON object"};
}

std::string shown(const OrderedJson& value) {
  return excerpt(text_of(value));
}

}  // namespace lockstep
