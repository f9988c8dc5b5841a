// Files that are read and written whole, while a call about them fails, is interrupted or does a part of its work.
#include "core/base/file_io.hpp"

#include <cerrno>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/foreign_json.hpp"
#include "core/base/own_file.hpp"
#include "support/file_faults.hpp"
#include "support/job.hpp"

using namespace lockstep;
using lockstep::test::for_each_file_fault;
using lockstep::test::TemporaryDirectory;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path, std::size_t longest = 1000) {
  LineReader reader{open_to_read(path, "a file"), "a file", longest};
  std::vector<std::string> lines;
  while (const auto line = reader.next())
    lines.push_back(std::to_string(line->number) + " " + std::string{line->text} + (line->is_whole ? "" : " (cut)"));
  return lines;
}

std::string whole(const std::filesystem::path& path, std::size_t limit = 1000) {
  return read_text(open_to_read(path, "a file"), limit, "a file");
}

}  // namespace

TEST_CASE("a reader knows a line, the end, and a line that is too long") {
  const TemporaryDirectory folder;
  CHECK(lines_of(folder.write("a", "")).empty());
  CHECK(lines_of(folder.write("a", "one\n\nthree\n")) == std::vector<std::string>{"1 one", "2 ", "3 three"});
  CHECK(lines_of(folder.write("a", "one\ntw")) == std::vector<std::string>{"1 one", "2 tw (cut)"});
  CHECK(lines_of(folder.write("a", "one\nfive\n"), 4).size() == 2);
  for (const char* text : {"one\nseven", "one\nseven\n"})
    CHECK_THROWS_WITH(lines_of(folder.write("a", text), 4), "a file:2: has more than 4 bytes");
  const std::string longer(300'000, 'x');  // than the memory that a reader begins with
  CHECK(lines_of(folder.write("a", "1\n" + longer + "\n3\n"), 300'000) ==
        std::vector<std::string>{"1 1", "2 " + longer, "3 3"});
}

TEST_CASE("a file is read up to its limit, and not a byte more") {
  const TemporaryDirectory folder;
  const auto path = folder.write("a", std::string(200'000, 'x'));
  CHECK(whole(path, 200'000) == std::string(200'000, 'x'));
  CHECK_THROWS_WITH(whole(path, 199'999), "a file: holds more than 199999 bytes");
  CHECK(whole(folder.write("a", "")).empty());
}

TEST_CASE("what is no regular file is refused without waiting for anybody") {
  const TemporaryDirectory folder;
  const auto pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  CHECK_THROWS_WITH(whole(pipe), "a file: is a pipe, not a regular file");
  CHECK_THROWS_WITH(whole(folder.path()), "a file: is a folder, not a regular file");
  CHECK_THROWS_WITH(whole(folder.path() / "none"), "a file: cannot be read: No such file or directory");
  CHECK_FALSE(find_to_read(folder.path() / "none", "a file"));
  CHECK_FALSE(find_to_read(folder.write("a", "") / "none", "a file"));
}

TEST_CASE("a read that fails is no end of the file, whichever it is") {
  const TemporaryDirectory folder;
  std::string text;
  for (int line = 0; line < 40'000; ++line) text += "a line\n";
  const auto path = folder.write("a", text);
  for_each_file_fault("/a", EIO, [&](std::int64_t call) {
    const auto read = [&] { return whole(path, 1'000'000) == text && lines_of(path).size() == 40'000; };
    if (call < 0)
      CHECK(read());
    else
      CHECK_THROWS_WITH(read(), "a file: cannot be read: Input/output error");
  });
  // Of the kernel's own making.
  CHECK_THROWS_WITH(whole("/proc/self/mem"), "a file: cannot be read: Input/output error");
  CHECK_THROWS_WITH(lines_of("/proc/self/mem"), "a file: cannot be read: Input/output error");
}

TEST_CASE("a call that is interrupted, or does a part of its work, is repeated") {
  const TemporaryDirectory folder;
  const std::string text = "one\ntwo\nthree\n";
  const auto path = folder.write("a", text);
  for_each_file_fault(folder.path().string(), 0, [&](std::int64_t) {
    CHECK(whole(path) == text);
    CHECK(lines_of(path).size() == 3);
    const Descriptor file = open_to_read(path, "a file");
    std::string part(3, ' ');
    CHECK(read_at(file, 4, std::as_writable_bytes(std::span{part}), "a file") == 3);
    CHECK(part == "two");
    const std::string there = folder.path() / "b";
    const Descriptor copy{uninterrupted([&] { return ::open(there.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666); })};
    write_all(copy, text, "a file");
    CHECK(whole(folder.path() / "b") == text);
  });
}

TEST_CASE("what cannot be written is told by the call that failed") {
  const Descriptor full{::open("/dev/full", O_WRONLY)};
  try {
    write_all(full, "text", "a file");
    FAIL("nothing failed");
  } catch (const FileError& error) {
    CHECK(error.code() == ENOSPC);
    CHECK(is_full(error.code()));
    CHECK(error.what() == std::string{"a file: cannot be written: No space left on device"});
  }
}

TEST_CASE("a file that begins as none of ours is kept, and one that was cut is ours") {
  const TemporaryDirectory folder;
  const auto is_ours = [&](std::string_view text, std::size_t skipped = 0) {
    try {
      require_own(folder.write("a", std::string{text}), {"{\"kind\":", "<html>"}, "a file", "another", skipped);
      return true;
    } catch (const ConfigError& error) {
      CHECK(error.what() == std::string{"a file: holds something else, which would be lost; expected another"});
      return false;
    }
  };
  for (const char* text : {"", "{", "{\"kind\":\"train\"}", "<html>"}) CHECK(is_ours(text));
  for (const char* text : {"notes", "{\"kin\"", " {\"kind\":"}) CHECK_FALSE(is_ours(text));
  CHECK(is_ours("12345678{\"kind\":", 8));
  for (const char* text : {"notes", "{\"kind\":{\"kind", "12345678{\"kin"}) CHECK_FALSE(is_ours(text, 8));
  CHECK_NOTHROW(require_own(folder.path() / "none", {"x"}, "a file", "another"));
  CHECK_NOTHROW(require_own(folder.path(), {"x"}, "a file", "another"));
  CHECK_THROWS_WITH(require_own("/proc/self/mem", {"x"}, "a file", "another"),
                    "a file: cannot be read: Input/output error");
}

TEST_CASE("memory that the system refuses is no end of the file") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("sanitizers need more address space than there would be");
#else
  const TemporaryDirectory folder;
  const auto path = folder.write("a", std::string(std::size_t{64} << 20, 'x'));
  // Much larger as values than as a text.
  std::string values = "[";
  for (int i = 0; i < 1'000'000; ++i) values += "[1],";
  values.back() = ']';
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  rlimit less = before;
  std::size_t pages = 0;  // that the program has by now
  std::ifstream{"/proc/self/statm"} >> pages;
  less.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{24} << 20);
  REQUIRE(::setrlimit(RLIMIT_AS, &less) == 0);
  std::string lines, text, json;
  try {
    (void)with_memory("a file", [&] { return parse_foreign_json(values); });
  } catch (const FileError& error) {
    json = error.what();
  }
  try {
    (void)lines_of(path, std::size_t{1} << 30);
  } catch (const FileError& error) {
    lines = error.what();
  }
  try {
    (void)whole(path, std::size_t{1} << 30);
  } catch (const FileError& error) {
    text = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(lines == "a file: cannot be read: out of memory: this process may have " + std::to_string(less.rlim_cur) +
                     " bytes (ulimit -v)");
  CHECK(text == lines);
  CHECK(json == lines);
#endif
}
