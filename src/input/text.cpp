#include <algorithm>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/input/text.hpp>

#include "input/file_bytes.hpp"
#include "input/file_kind.hpp"

namespace lockstep {
namespace {

constexpr std::uint64_t largest_text = std::uint64_t{2} << 30;
constexpr std::int64_t parts = 10;  // one of which is the test part

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw ConfigError{fmt::format("{}: {}", path.string(), what)};
}

std::vector<std::uint8_t> read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error)
    fail(path, "does not exist; expected a text file, plain or packed (gzip)");
  std::vector<std::uint8_t> bytes = read_whole_file(path, largest_text, "a text of at most 2 GiB");
  // It would train, and learn nothing.
  if (const std::string_view archive = archive_name(std::span{bytes}.first(std::min<std::size_t>(bytes.size(), 512)));
      !archive.empty())
    fail(path, fmt::format("is {}, not a text; expected a text file, plain or packed (gzip)", archive));
  return bytes;
}

void update(Digest& digest, const TextSet& set) {
  // Sizes first, so that the same bytes cut in another way have a different digest.
  digest.update(fmt::format("{} bytes in samples of {}:", set.bytes.size(), set.context))
      .update(std::as_bytes(std::span{set.bytes}));
}

}  // namespace

TextData load_text_data(const std::filesystem::path& path, std::int64_t context) {
  if (context < 1) throw InvalidArgument{fmt::format("a context of {} bytes; expected 1 or more", context)};
  std::vector<std::uint8_t> bytes = read_text(path);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const std::int64_t tested = size / parts;
  if (tested <= context)
    fail(path,
         fmt::format("{}; expected at least {} x ({} + 1) bytes of text, so that its last tenth holds a context of "
                     "{} and the byte behind it",
                     size == 0 ? "is empty" : fmt::format("holds {} bytes", size), parts, context, context));
  const auto boundary = bytes.end() - tested;
  TextSet test{{boundary, bytes.end()}, context};
  bytes.erase(boundary, bytes.end());
  return {{std::move(bytes), context}, std::move(test)};
}

std::vector<std::string> load_text_lines(const std::filesystem::path& path) {
  const std::vector<std::uint8_t> bytes = read_text(path);
  if (bytes.empty()) fail(path, "is empty; expected 1 line or more");
  std::vector<std::string> lines;
  for (auto begin = bytes.begin(); begin != bytes.end();) {
    const auto end = std::find(begin, bytes.end(), '\n');
    lines.emplace_back(begin, end);
    begin = end == bytes.end() ? end : end + 1;
  }
  return lines;
}

std::uint64_t digest(const TextData& data) {
  Digest all;
  update(all, data.train);
  update(all, data.test);
  return all.value();
}

}  // namespace lockstep
