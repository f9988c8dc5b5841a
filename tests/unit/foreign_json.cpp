// JSON that anybody may have written.
#include "core/base/foreign_json.hpp"

#include <chrono>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

using namespace lockstep;

namespace {

std::string fault_in(std::string_view text, const JsonLimits& limits = {}) {
  try {
    (void)parse_foreign_json(text, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

}  // namespace

TEST_CASE("foreign JSON is read as the library reads it, in the order of the text") {
  const char* const text =
      R"({"z":[1,-2,3.5,1e300,18446744073709551615,true,null,"ü\u0000\n",[],{}],"a":{"b":[{"c":"d"},[[0]]]},"":""})";
  CHECK(parse_foreign_json(text).dump() == OrderedJson::parse(text).dump());
  for (const char* const value : {"7", "\"x\"", "null", " [ ] "})
    CHECK(parse_foreign_json(value) == OrderedJson::parse(value));
}

TEST_CASE("foreign JSON that is none, is nested too deep or repeats a key is refused") {
  CHECK(fault_in("") == "is no JSON from byte 1 on");
  CHECK(fault_in(R"({"a":1}})") == "is no JSON from byte 8 on");
  for (const char* const text : {"{", "[1,", R"({"a":1e999})", "\"\xff\"", "\"\n\"", "nul", "01"})
    CHECK_THAT(fault_in(text), Catch::StartsWith("is no JSON from byte "));
  CHECK(fault_in(nested(3), {.levels = 3}) == "nothing");
  CHECK(fault_in(nested(4), {.levels = 3}) == "is nested more than 3 levels deep");
  CHECK(fault_in(nested(33)) == "is nested more than 32 levels deep");
  CHECK(fault_in(std::string(10'000'000, '[')) == "is nested more than 32 levels deep");
  CHECK(fault_in(R"({"a":{"b":1,"c":2,"b":3}})") == R"(has the key "b" twice in one object)");
  CHECK(fault_in(R"([{"a":1},{"a":2}])") == "nothing");
}

TEST_CASE("the members of a foreign object come in their order, and a repeated one is told at the end") {
  const auto members = [](std::string_view text) {
    std::string seen;
    try {
      parse_foreign_members(text,
                            [&](const std::string& key, const OrderedJson& value) { seen += key + value.dump(); });
    } catch (const Error& error) {
      return seen + ": " + error.what();
    }
    return seen;
  };
  CHECK(members(R"({"z":1,"a":{"z":{"z":[{"z":2}]}},"m":[[]]})") == R"(z1a{"z":{"z":[{"z":2}]}}m[[]])");
  CHECK(members("{}") == "");
  CHECK(members("[1]") == ": is no JSON object");
  CHECK(members(R"({"a":1,"b":2,"a":3})") == R"(a1b2a3: has the key "a" twice in one object)");
  CHECK(members(R"({"a":1,"b":{"c":1,"c":2}})") == R"(a1: has the key "c" twice in one object)");
  CHECK(members(R"({"a":1,)") == "a1: is no JSON from byte 8 on");
}

TEST_CASE("the time that foreign JSON takes grows with the text and not faster") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"key " + std::to_string(i) + "\":0,";
  text.back() = '}';
  const auto begin = std::chrono::steady_clock::now();
  CHECK(parse_foreign_json(text).size() == 200'000);
  // Looking for each key among those before it takes a minute and more, and this 0.05 s.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{10});
}
