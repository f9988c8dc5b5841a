// Text in several files, and files of tokens.
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/text.hpp>

#include "gzip.hpp"
#include "models/input/batches.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/token_pieces.hpp"
#include "models/input/tokens_of_numbers.hpp"
#include "support/job.hpp"
#include "support/loaded_text.hpp"
#include "support/token_file.hpp"
#include "text_support.hpp"

namespace lockstep::test::input_tokens_cases {

using Catch::Contains;
using lockstep::test::load_text_sets;
using lockstep::test::numbers_in;
using lockstep::test::TemporaryDirectory;
using lockstep::test::text_in;
using lockstep::test::token_file;

namespace {

using Numbers = std::vector<std::int32_t>;
using Tokens = std::vector<std::uint16_t>;

/// first, first + 1, … last - 1.
Tokens tokens_from(std::uint16_t first, std::uint16_t last) {
  Tokens tokens(static_cast<std::size_t>(last - first));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// What the ConfigError says, with FOLDER for the folder's name.
std::string refusal(const TemporaryDirectory& folder, const std::string& name, const TextData::Options& options) {
  try {
    load_text_sets(folder.path() / name, options);
    return "not refused";
  } catch (const ConfigError& error) {
    std::string message = error.what();
    CHECK_THAT(message, !Contains("\n"));
    if (const std::string path = folder.path(); message.starts_with(path)) message.replace(0, path.size(), "FOLDER");
    return message;
  }
}

}  // namespace

TEST_CASE("the files of a folder are one text, in the order of their names") {
  const TemporaryDirectory folder;
  folder.write("10.txt", "hijklmno");
  folder.write("02.txt.gz", test::packed("efg"));
  folder.write("01.txt", "abcd");
  folder.write("03.txt", "");
  folder.write(".hidden", "not this");
  folder.write("latest.txt", "pqrst");  // in which "test" is no word
  const TextSets data = load_text_sets(folder.path(), {.context = 1});
  CHECK(text_in(data.train) == "abcdefghijklmnopqr");
  CHECK(text_in(data.test) == "st");
  const std::string file = folder.write(".whole", "abcdefghijklmnopqrst");
  CHECK(digest(data) == digest(load_text_sets(file, {.context = 1})));
}

TEST_CASE("files whose names say so are the test part") {
  for (const std::string name : {"val", "x_valid_000", "validation.txt", "test.bin"}) {
    INFO(name);
    const TemporaryDirectory folder;
    folder.write("train-1", "abcdef");
    folder.write("train-2", "gh");
    folder.write(name, "ijk");
    const TextSets data = load_text_sets(folder.path(), {.context = 2});
    CHECK(text_in(data.train) == "abcdefgh");
    CHECK(text_in(data.test) == "ijk");
    CHECK(refusal(folder, "", {.context = 3}) ==
          "FOLDER/: its training files hold 8 bytes and its test files 3; expected at least 3 + 1 of each, for a "
          "context and the byte after it");
    std::filesystem::remove(folder.path() / "train-1");
    std::filesystem::remove(folder.path() / "train-2");
    CHECK_THAT(refusal(folder, "", {.context = 2}), Catch::StartsWith("FOLDER/: holds no training files; expected"));
    // The name of a single file says nothing.
    folder.write(name, "abcdefghijklmnopqrst");
    CHECK(text_in(load_text_sets(folder.path() / name, {.context = 1}).test) == "st");
  }
}

TEST_CASE("pieces of sequences are read as one sequence") {
  TokenPieces pieces;
  pieces.append(tokens_of_numbers({0, 1, 2, 3, 4}), {1, 4});
  pieces.append(tokens_of_numbers({9}), {0, 0});
  pieces.append(tokens_of_numbers({4, 5}), {0, 2});
  REQUIRE(pieces.count() == 5);  // 1, 2, 3, 4, 5
  for (std::int64_t first = 0; first <= 5; ++first)
    for (std::int64_t last = first; last <= 5; ++last) {
      INFO(first << " to " << last);
      Numbers expected(static_cast<std::size_t>(last - first)), read = expected;
      std::iota(expected.begin(), expected.end(), static_cast<std::int32_t>(first + 1));
      pieces.read(first, read);
      CHECK(read == expected);
      const auto slice = pieces.slice({first, last});
      REQUIRE(slice->count() == last - first);
      slice->read(0, read);
      CHECK(read == expected);
    }
  Numbers two(2);
  CHECK_THROWS_WITH(pieces.read(4, two), "tokens 4 to 6 are not in a sequence of 5");
  CHECK_THROWS_AS(pieces.read(-1, two), InvalidArgument);
}

TEST_CASE("files of tokens are cut into samples across their ends") {
  const TemporaryDirectory folder;
  folder.write("words_train_001.bin", token_file(tokens_from(0, 300)));
  folder.write("words_train_002.bin", token_file(tokens_from(300, 311)));
  folder.write("words_val_000.bin", token_file({65535, 0, 7, 8, 9, 1}));
  const TextSets data = load_text_sets(folder.path(), {.context = 5, .vocabulary = 65536});
  REQUIRE(data.train.count() == 62);
  REQUIRE(data.test.count() == 1);
  CHECK_FALSE(data.test.tokens->are_bytes());
  SampleBatch batch = make_text_batch(2, 5);
  fill_batch(data.train, std::vector<std::int64_t>{59, 61}, batch);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Numbers{295, 296, 297, 298, 299, 305, 306, 307, 308, 309});
  CHECK(batch.labels.to_vector<std::int32_t>() == Numbers{296, 297, 298, 299, 300, 306, 307, 308, 309, 310});
  fill_batch(data.test, std::vector<std::int64_t>{0}, batch);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Numbers{65535, 0, 7, 8, 9, 0, 0, 0, 0, 0});

  // The digest is of the tokens, not of the files.
  std::filesystem::remove(folder.path() / "words_train_002.bin");
  folder.write("words_train_001.bin", token_file(tokens_from(0, 311)));
  CHECK(digest(data) == digest(load_text_sets(folder.path(), {.context = 5, .vocabulary = 65536})));
  folder.write("words_train_001.bin", token_file(tokens_from(1, 312)));
  CHECK(digest(data) != digest(load_text_sets(folder.path(), {.context = 5, .vocabulary = 65536})));
}

TEST_CASE("a file of tokens that changes while it is in use is told, and no signal ends the process") {
  const TemporaryDirectory folder;
  const std::string right = token_file(tokens_from(0, 30));
  const std::string path = folder.write("tokens.bin", right);
  const TextSets data = load_text_sets(path, {.context = 2, .vocabulary = 30});
  Numbers two(2);
  data.train.tokens->read(20, two);
  CHECK(two == Numbers{20, 21});
  folder.write("tokens.bin", right.substr(0, 1024) + std::string(60, '\xff'));
  CHECK_THROWS_WITH(data.train.tokens->read(20, two),
                    path + ": token 20 (counted from 0) is 65535; expected 0 to 29 (--vocabulary 30)");
  std::filesystem::resize_file(path, 1065);
  CHECK_THROWS_WITH(data.train.tokens->read(20, two),
                    path + ": has become shorter while it was in use: expected a byte at 1065");
}

TEST_CASE("a file of tokens that is wrong is refused with its place") {
  const TemporaryDirectory folder;
  const auto refused = [&](const std::string& content, std::int64_t vocabulary = 100) {
    folder.write("tokens.bin", content);
    return refusal(folder, "tokens.bin", {.context = 2, .vocabulary = vocabulary});
  };
  const std::string right = token_file(tokens_from(0, 30));
  const std::string name = "FOLDER/tokens.bin: ";
  CHECK(refused(right) == "not refused");
  CHECK(refused("") == name + "is empty; expected a file of tokens");
  CHECK(refused("text") ==
        name + "is no file of tokens; expected one as llm.c writes it, which begins with 20240520 (--vocabulary)");
  CHECK(refused(test::packed(right)) ==
        name + "is packed (gzip); expected a file of tokens, which is read in parts and must be unpacked");
  CHECK(refused(right.substr(0, 1000)) == name + "truncated: expected a header of 1024 bytes, found 1000");
  CHECK(refused(right.substr(0, 1083)) ==
        name + "truncated: expected 1084 bytes (a header of 1024 and 30 tokens), found 1083");
  CHECK(refused(right + "x") ==
        name + "has trailing bytes: expected 1084 bytes (a header of 1024 and 30 tokens), found 1085");
  CHECK(refused(token_file(tokens_from(0, 30), 7)) ==
        name + "is of version 7; expected 1, which has tokens of 16 bits");
  CHECK(refused(token_file({})) == name + "its header announces 0 tokens; expected 1 or more");
  CHECK(refused(right, 29) == name + "token 29 (counted from 0) is 29; expected 0 to 28 (--vocabulary 29)");
  CHECK(refused(token_file(tokens_from(0, 29))) ==
        name +
            "holds 29 tokens; expected at least 10 x (2 + 1) tokens, so that its last tenth holds a context of 2 "
            "and the token after it");

  folder.write("tokens.bin", right);
  CHECK(refusal(folder, "tokens.bin", {.context = 2}) ==
        name + "is a file of tokens; expected --vocabulary N, where every token is below N");
  CHECK(refusal(folder, "none", {.context = 2, .vocabulary = 9}) ==
        "FOLDER/none: does not exist; expected a text file, plain or packed (gzip), or a folder of them");
  for (const std::int64_t vocabulary : {0, 65537})
    CHECK_THROWS_AS(load_text_sets(folder.path(), {.context = 2, .vocabulary = vocabulary}), InvalidArgument);
}

}  // namespace lockstep::test::input_tokens_cases
