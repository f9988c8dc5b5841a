#include "base/foreign_json.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep {
namespace {

/// Follows the parser through the text. The library's own builder looks for each key among those before it, so an
/// object would take the square of its size.
class JsonBuilder {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_{limits} {}

  OrderedJson take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(OrderedJson::number_integer_t value) { return add(value); }
  bool number_unsigned(OrderedJson::number_unsigned_t value) { return add(value); }
  bool number_float(OrderedJson::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(OrderedJson::binary_t& value) { return add(std::move(value)); }
  bool start_object(std::size_t) { return open(OrderedJson::object()); }
  bool start_array(std::size_t) { return open(OrderedJson::array()); }
  bool key(std::string& name) {
    object().emplace_back(std::move(name), nullptr);
    return true;
  }
  bool end_object() {
    require_distinct_keys();
    return close();
  }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    throw Error{fmt::format("is no JSON from byte {} on", position)};
  }

 private:
  OrderedJson::object_t& object() { return open_.back()->get_ref<OrderedJson::object_t&>(); }

  /// Returns where it is now, which stays its place until what it is in gets another value.
  OrderedJson& place(OrderedJson value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->get_ref<OrderedJson::array_t&>().emplace_back(std::move(value));
    return object().back().second = std::move(value);
  }
  bool add(OrderedJson value) {
    place(std::move(value));
    return true;
  }
  bool open(OrderedJson container) {
    if (std::ssize(open_) == limits_.levels)
      throw Error{fmt::format("is nested more than {} levels deep", limits_.levels)};
    open_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  void require_distinct_keys() {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : object()) keys.push_back(key);
    std::ranges::sort(keys);
    if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
      throw Error{fmt::format("has the key {} twice in one object", shown(*twice))};
  }

  JsonLimits limits_;
  OrderedJson root_;
  std::vector<OrderedJson*> open_;  ///< lists and objects that the parser is inside of
};

}  // namespace

OrderedJson parse_foreign_json(std::string_view text, const JsonLimits& limits) {
  JsonBuilder builder{limits};
  OrderedJson::sax_parse(text, &builder);
  return builder.take();
}

std::string shown(const OrderedJson& value) {
  constexpr std::size_t longest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace);
  if (text.size() > longest) text.replace(longest, std::string::npos, "...");
  return text;
}

}  // namespace lockstep
