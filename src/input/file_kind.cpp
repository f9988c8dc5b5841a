#include "input/file_kind.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/file_type.hpp"
#include "input/file_bytes.hpp"
#include "input/npy.hpp"
#include "input/token_file.hpp"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::size_t offset;
  std::string_view magic;
  std::string_view name;
};

constexpr std::array kinds{
    Kind{0,
         "\xfd"
         "7zXZ\0"sv,
         "an xz archive"},
    Kind{0, "BZh"sv, "a bzip2 archive"},
    Kind{0, "\x28\xb5\x2f\xfd"sv, "a zstd archive"},
    Kind{0, "\x04\x22\x4d\x18"sv, "an lz4 archive"},
    Kind{0, "PK\x03\x04"sv, "a zip archive"},
    Kind{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Kind{0, "Rar!\x1a\x07"sv, "a rar archive"},
    Kind{0, "LZIP\x01"sv, "an lzip archive"},
    Kind{0, "\x1f\x9d"sv, "a compress archive"},
    Kind{0, "\x1f\x8b"sv, "a gzip archive inside of another"},
    Kind{257, "ustar"sv, "a tar archive"},
};

bool is_text(std::span<const std::uint8_t> first) {
  return !first.empty() && std::ranges::none_of(first, [](std::uint8_t byte) {
    return byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t' && byte != '\f';
  });
}

}  // namespace

std::string_view archive_name(std::span<const std::uint8_t> first) {
  const std::string_view text{reinterpret_cast<const char*>(first.data()), first.size()};
  for (const Kind& kind : kinds)
    if (text.size() > kind.offset && text.substr(kind.offset).starts_with(kind.magic)) return kind.name;
  return {};
}

std::string hint_for_file(const std::filesystem::path& file) {
  if (const std::string why = why_not_regular(file); !why.empty()) return "; it " + why;
  std::vector<std::uint8_t> first(512);
  try {
    first.resize(FileBytes{file}.read(first));
  } catch (const ConfigError&) {
    return {};
  }
  constexpr std::uint8_t idx[] = {0, 0, 8};  // of unsigned bytes
  if (first.size() > 3 && std::equal(std::begin(idx), std::end(idx), first.begin()))
    return fmt::format("; this is one of the files, expected its folder: --data {}",
                       file.has_parent_path() ? file.parent_path().string() : ".");
  if (begins_npy_file(first)) return "; this is an array of NumPy, expected the folder with x_train.npy and the others";
  if (begins_token_file(first)) return "; this is a file of tokens, which trains --model gpt";
  if (const std::string_view archive = archive_name(first); !archive.empty())
    return fmt::format("; this is {}", archive);
  return is_text(first) ? "; this is a text, which trains --model gpt" : "";
}

}  // namespace lockstep
