// Text for terminals of any width.
#include "apps/options/wrapped_text.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-train/options/command_line.hpp"

namespace lockstep::test::wrapped_text_cases {
namespace {

std::vector<std::string> words_of_text(const std::string& text) {
  std::istringstream stream{text};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("text that is too wide breaks between words, and what is on the right stays there while it has room") {
  const std::string help =
      "Trains a model.\n\nOptions:\n  --steps N                 Number of steps, over all ranks, of the training\n"
      "  --a-name-as-long-as-its-co The other\n";
  CHECK(wrapped(help, 80) == help);
  CHECK(wrapped(help, 56) ==
        "Trains a model.\n\nOptions:\n"
        "  --steps N                 Number of steps, over all\n                            ranks, of the training\n"
        "  --a-name-as-long-as-its-co The other\n");
  CHECK(wrapped(help, 20) ==
        "Trains a model.\n\nOptions:\n  --steps N\n    Number of steps,\n    over all ranks,\n    of the training\n"
        "  --a-name-as-long-as-its-co\n    The other\n");
  CHECK(wrapped("  step-400      complete  13 tensors\n", 12) == "  step-400\n   complete\n   13\n   tensors\n");
  CHECK(wrapped("a-word-that-is-too-wide and more", 10) == "a-word-that-is-too-wide\nand more\n");
}

TEST_CASE("the help has all of its words in any width, whole, and no line is wider unless a word is") {
  const char* const arguments[] = {"lockstep-train", "--help"};
  const std::string help = parse_command_line(2, arguments).answer.value();
  for (const std::size_t width : {1, 5, 10, 20, 30, 40, 51, 52, 60, 79}) {
    CAPTURE(width);
    const std::string narrow = wrapped(help, width);
    CHECK(words_of_text(narrow) == words_of_text(help));
    std::istringstream lines{narrow};
    for (std::string line; std::getline(lines, line);) {
      const bool is_one_word = words_of_text(line).size() == 1;
      if (line.size() > width && !is_one_word) FAIL_CHECK(line);
    }
  }
}

}  // namespace lockstep::test::wrapped_text_cases
