// The ledger of a run: what is written, what goes on, and what is not believed.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "models/record/ledger.hpp"
#include "support/job.hpp"

using namespace lockstep;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;

namespace {

struct LedgerFolder {
  TemporaryDirectory folder;
  std::filesystem::path ledger = folder.path() / "ledger.jsonl", shards = folder.path() / "ledger.shards.jsonl";

  LedgerFile open(std::int64_t steps = 0, const char* about = R"({"seed":7})") const {
    return {{ledger, shards}, steps, OrderedJson::parse(about), "run"};
  }
};

const std::vector<std::string> value_names{"samples", "gradient of 'w'", "loss"};

/// Of two shards.
std::vector<std::uint64_t> digests_of_step(std::int64_t step) {
  const auto base = static_cast<std::uint64_t>(step) << 32;
  return {base + 1, base + 2, base + 3, base + 4, base + 5, base + 6};
}

void add_steps(LedgerFile& file, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    const std::vector<std::uint64_t> digests = digests_of_step(step);
    file.add({step, 1.0 / static_cast<double>(step), value_names, digests});
    if (step % 2 == 0) file.add_weights(step, 100 + static_cast<std::uint64_t>(step));
  }
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

}  // namespace

TEST_CASE("a ledger says what it was told, and the digests of each shard") {
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 4);
    file.end(4);
  }
  const Ledger ledger = Ledger::read(folder.ledger);
  CHECK(ledger.about.dump() == R"({"seed":7})");
  CHECK(ledger.is_complete);
  REQUIRE(ledger.entries.size() == 6);
  const std::vector<std::uint64_t> digests = digests_of_step(3);
  CHECK(ledger.entries[3] == Ledger::entry_of({3, 1.0 / 3, value_names, digests}));
  CHECK(ledger.entries[2] == Ledger::Entry{.step = 2, .weights = 102});
  CHECK(Ledger::shards_of(folder.shards, ledger.entries[3], 3) == digests);
  CHECK(Ledger::values_in(folder.shards) == value_names);
}

TEST_CASE("a line that differs in any character, is missing or comes in another place is refused") {
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 3);
    file.end(3);
  }
  const std::string text = read_file(folder.ledger);
  const auto refused = [&](const std::string& other) {
    write_text(folder.ledger, other);
    CHECK_THROWS_AS(Ledger::read(folder.ledger), Error);
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\n') continue;
    std::string other = text;
    other[at] = other[at] == '1' ? '2' : '1';
    CAPTURE(at, other);
    refused(other);
  }
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end + 1 - begin));
  const auto joined = [](const std::vector<std::string>& parts) {
    std::string whole;
    for (const std::string& part : parts) whole += part;
    return whole;
  };
  for (std::size_t line = 0; line + 1 < lines.size(); ++line) {
    std::vector<std::string> fewer = lines, swapped = lines;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(line));
    refused(joined(fewer));
    std::swap(swapped[line], swapped[line + 1]);
    refused(joined(swapped));
  }
  // Without its last line it is not complete, and says so.
  lines.pop_back();
  write_text(folder.ledger, joined(lines));
  CHECK_FALSE(Ledger::read(folder.ledger).is_complete);
  refused("");
}

TEST_CASE("digests of shards that the ledger does not have are refused") {
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 2);
  }
  const Ledger ledger = Ledger::read(folder.ledger);
  std::string text = read_file(folder.shards);
  const auto at = text.find("0000000100000002");
  REQUIRE(at != text.npos);
  text[at + 15] = '9';
  write_text(folder.shards, text);
  CHECK_THROWS_WITH(Ledger::shards_of(folder.shards, ledger.entries[0], 3),
                    Catch::EndsWith(":2: has other digests for step 1 than the ledger"));
  write_text(folder.shards, "");
  CHECK_THROWS_WITH(Ledger::shards_of(folder.shards, ledger.entries[0], 3), Catch::EndsWith("has no line for step 1"));
}

TEST_CASE("a run that goes on leaves the ledger of one that was never killed") {
  const LedgerFolder whole, killed;
  {
    LedgerFile file = whole.open();
    add_steps(file, 1, 6);
    file.end(6);
  }
  {
    LedgerFile file = killed.open();
    add_steps(file, 1, 5);
  }
  // Cut off in the middle of a line.
  for (const std::filesystem::path& path : {killed.ledger, killed.shards}) {
    const std::string text = read_file(path);
    write_text(path, text.substr(0, text.size() - 5));
    std::filesystem::create_hard_link(path, path.string() + ".link");
  }
  {
    LedgerFile file = killed.open(4);
    CHECK(file.has_weights_of(4));
    file.add_weights(4, 104);  // is there already
    add_steps(file, 5, 6);
    file.end(6);
  }
  CHECK(read_file(killed.ledger) == read_file(whole.ledger));
  CHECK(read_file(killed.shards) == read_file(whole.shards));
  // It is the same file, which was cut and not written anew.
  CHECK(read_file(killed.shards.string() + ".link") == read_file(whole.shards));
  { LedgerFile longer = killed.open(6); }
  CHECK_FALSE(Ledger::read(killed.ledger).is_complete);
}

TEST_CASE("a run that goes on as another says so, and a new one begins a new ledger") {
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 2);
  }
  {
    LedgerFile file = folder.open(2, R"({"seed":8})");
    add_steps(file, 3, 3);
  }
  const Ledger ledger = Ledger::read(folder.ledger);
  CHECK(ledger.about.dump() == R"({"seed":8})");
  CHECK(ledger.about_from == 2);
  CHECK(ledger.entries.size() == 4);
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 1);
  }
  CHECK(Ledger::read(folder.ledger).entries.size() == 1);
}

TEST_CASE("a step that comes twice is refused, and so is a step after its checkpoint") {
  for (const bool twice : {true, false}) {
    const LedgerFolder folder;
    {
      LedgerFile file = folder.open();
      add_steps(file, 1, 2);
      twice ? add_steps(file, 1, 1) : add_steps(file, 2, 2);
    }
    CHECK_THROWS_AS(Ledger::read(folder.ledger), CheckpointError);
  }
}

TEST_CASE("a loss that is no finite number is the same however it was computed") {
  const std::vector<std::uint64_t> digests = digests_of_step(1);
  const auto with = [&](double loss) { return Ledger::entry_of({1, loss, value_names, digests}); };
  CHECK(with(std::nan("1")) == with(-std::nan("2")));
  CHECK_FALSE(with(1) == with(std::nan("")));
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    file.add({1, std::nan(""), value_names, digests});
  }
  CHECK(Ledger::read(folder.ledger).entries.at(0) == with(std::nan("")));
}

TEST_CASE("a ledger is complete only with a line that says so, of a step that is not before the others") {
  const LedgerFolder folder;
  {
    LedgerFile file = folder.open();
    add_steps(file, 1, 3);
  }
  const std::string text = read_file(folder.ledger), chain = Ledger::read(folder.ledger).chain;
  const auto with_end = [&](const std::string& line) {
    write_text(folder.ledger,
               text + line + ",\"chain\":\"" + to_hex(Digest{}.update(chain).update(line).value()) + "\"}\n");
    return Ledger::read(folder.ledger).is_complete;
  };
  CHECK(with_end(R"({"step":3,"end":true)"));
  CHECK_THROWS_WITH(with_end(R"({"step":3,"end":false)"), Catch::EndsWith(":6: has \"end\": false; expected true"));
  CHECK_THROWS_WITH(with_end(R"({"end":true)"), Catch::EndsWith(":6: has no \"step\""));
  CHECK_THROWS_WITH(with_end(R"({"step":2,"end":true)"),
                    Catch::EndsWith(":6: is the end after step 2, and comes after step 3"));
}

TEST_CASE("a run goes on although lines after the step are damaged") {
  const LedgerFolder folder, whole;
  {
    LedgerFile file = folder.open(), other = whole.open();
    add_steps(file, 1, 4);
    add_steps(other, 1, 3);
  }
  for (const std::filesystem::path& path : {folder.ledger, folder.shards}) {
    std::string text = read_file(path);
    const auto at = text.find("{\"step\":3");
    REQUIRE(at != text.npos);
    text.replace(at, 4, "\0\0\0\0", 4);
    write_text(path, text);
  }
  {
    LedgerFile file = folder.open(2);
    add_steps(file, 3, 3);
  }
  CHECK(read_file(folder.ledger) == read_file(whole.ledger));
  CHECK(read_file(folder.shards) == read_file(whole.shards));
}
