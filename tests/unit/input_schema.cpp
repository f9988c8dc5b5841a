// What a model must know of its data, written and read.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/schema.hpp>

namespace lockstep::test::input_schema_cases {

using Catch::Contains;

namespace {

using Split = DataSchema::Split;

DataSchema example() {
  return {.kind = "CSV",
          .sample = {2},
          .columns = {"length", "größe \"x\""},
          .label_column = "label",
          .classes = {"aster", "lily"},
          .split = Split::hash,
          .test_fraction = 0.1};
}

}  // namespace

TEST_CASE("a schema is one line of JSON that means the same") {
  const DataSchema images{
      .kind = "IDX", .sample = {28, 28}, .numbers = DataSchema::Numbers::bytes, .classes = {"0", "1", "2"}};
  CHECK(images.to_json() == R"({"kind":"IDX","sample":[28,28],"numbers":"bytes","classes":3,"split":"files"})");
  const DataSchema tokens{.kind = "tokens", .vocabulary = 1000, .split = Split::last, .test_fraction = 0.1};
  CHECK(tokens.to_json() == R"({"kind":"tokens","vocabulary":1000,"split":"last","test_fraction":0.1})");
  for (const DataSchema& schema : {images, tokens, example(), DataSchema{.kind = "text"}}) {
    CHECK(DataSchema::parse(schema.to_json(), "FILE") == schema);
    CHECK_THAT(schema.to_json(), !Contains("\n"));
  }
}

TEST_CASE("a schema that cannot be used is refused in one line with its key") {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)DataSchema::parse(text, "FILE");
      return "not refused";
    } catch (const Error& error) {
      const std::string line = error.what(), begin =
                                                 "FILE: is no schema of data that this version of lockstep can "
                                                 "read: ";
      REQUIRE(line.starts_with(begin));
      CHECK_THAT(line, !Contains("\n"));
      CHECK(line.size() < 400);
      return line.substr(begin.size());
    }
  };
  // One value of a good one is replaced.
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string text = example().to_json();
    const std::size_t begin = text.find("\"" + key + "\":") + key.size() + 3, list = text.find(']', begin);
    const bool is_list = text[begin] == '[';
    text.replace(begin, (is_list ? list + 1 : text.find_first_of(",}", begin)) - begin, value);
    return refusal(text);
  };
  CHECK(with("split", "\"hash\"") == "not refused");
  CHECK(refusal("") == "is no JSON from byte 1 on");
  CHECK(refusal("[]") == "expected an object");
  CHECK(refusal("{}") == "key \"kind\": expected a text");
  CHECK(refusal("{\"kind\":\"text\",\"split\":\"files\",\"scale\":[]}") == "key \"scale\": expected none of this name");
  CHECK(refusal(R"({"kind":"text","kind":"tokens"})") == "has the key \"kind\" twice in one object");
  const std::string nested = "is nested more than 2 levels deep";
  CHECK(refusal(std::string(1'000'000, '[')) == nested);
  CHECK(with("sample", "[[2]]") == nested);
  const std::string kinds =
      R"(key "kind": expected "IDX", "CIFAR-10", "CIFAR-100", "arrays of NumPy", "CSV", "text", "bytes" or "tokens", not ")";
  CHECK(with("kind", "\"JPEG\"") == kinds + "JPEG\"");
  CHECK(with("kind", "\"" + std::string(10'000, 'k') + "\"") == kinds + std::string(200, 'k') + "…\"");
  CHECK(with("sample", "[]") == "key \"sample\": expected 1 to 3 extents");
  CHECK(with("sample", "[-2]") == "key \"sample\": expected a whole number from 1 to 1099511627776");
  CHECK(with("sample", "[1099511627776,2]") == "key \"sample\": expected a whole number from 1 to 1");
  CHECK(with("numbers", "7") == "key \"numbers\": expected a text");
  CHECK(with("columns", "[\"length\"]") == "key \"columns\": expected as many names as a sample has numbers");
  CHECK(with("columns", "[\"a\",\"a \"]") == "key \"columns\": expected names that differ");
  CHECK(with("columns", "[\"a\",\"label\"]") ==
        "key \"label_column\": expected another column than those of the numbers");
  CHECK(with("columns", "[\"a\",\"\xff\"]") == "is no JSON from byte 90 on");
  CHECK(with("classes", "[1,2]") == "key \"classes\": expected names");
  CHECK(with("classes", "1e99") == "key \"classes\": expected a whole number from 1 to 65536");
  CHECK(with("classes", "65537") == "key \"classes\": expected a whole number from 1 to 65536");
  CHECK(with("split", "\"first\"") == "key \"split\": expected \"files\", \"hash\" or \"last\", not \"first\"");
  CHECK(with("test_fraction", "1") == "key \"test_fraction\": expected a number between 0 and 1");
  CHECK(with("test_fraction", "1e999") == "is no JSON from byte 169 on");
}

}  // namespace lockstep::test::input_schema_cases
