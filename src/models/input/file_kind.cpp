#include "models/input/file_kind.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_type.hpp"
#include "core/base/shell_word.hpp"
#include "models/input/conversion.hpp"
#include "models/input/failure.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/npy.hpp"
#include "models/input/token_file.hpp"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::size_t offset;
  std::string_view magic;
  std::string_view name;
  /// Commands or Python, in which {0} is the file as a word of a shell, {1} the same as a string of Python, {2} and {3}
  /// the names of a table and of a text beside it, as strings of Python, and {4} and {5} as words.
  std::string_view as_rows = {}, as_text = {};
};

constexpr std::string_view from_hdf5 =
    "in Python, where it has the four arrays: import h5py, numpy; f = h5py.File({1}); [numpy.save(n, f[n][()]) for n "
    "in (\"x_train\", \"y_train\", \"x_test\", \"y_test\")]";
constexpr std::string_view from_npz =
    "in Python, where it has the four arrays: import numpy; f = numpy.load({1}); [numpy.save(n, f[n]) for n in "
    "(\"x_train\", \"y_train\", \"x_test\", \"y_test\")]";
constexpr std::string_view from_parquet = "in Python: import pandas; pandas.read_parquet({1}).to_csv({2}, index=False)";
constexpr std::string_view text_from_parquet =
    "in Python, where the column is called text: import pandas; open({3}, "
    "\"w\").write(\"\\n\".join(pandas.read_parquet({1})[\"text\"]))";
constexpr std::string_view from_excel = "in Python: import pandas; pandas.read_excel({1}).to_csv({2}, index=False)";
constexpr std::string_view from_feather = "in Python: import pandas; pandas.read_feather({1}).to_csv({2}, index=False)";
constexpr std::string_view from_images =
    "expected arrays, which apps/examples/images_to_arrays.py makes of a folder of images";
constexpr std::string_view from_utf_16 = "iconv -f UTF-16 -t UTF-8 {0} > {5}";

constexpr std::array kinds{
    Kind{0, "\xfd\x37zXZ\0"sv, "an xz archive", "xz -dk {0}", "xz -dk {0}"},
    Kind{0, "BZh"sv, "a bzip2 archive", "bunzip2 -k {0}", "bunzip2 -k {0}"},
    Kind{0, "\x28\xb5\x2f\xfd"sv, "a zstd archive", "zstd -d {0}", "zstd -d {0}"},
    Kind{0, "\x04\x22\x4d\x18"sv, "an lz4 archive", "lz4 -d {0}", "lz4 -d {0}"},
    Kind{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", "7z x {0}", "7z x {0}"},
    Kind{0, "Rar!\x1a\x07"sv, "a rar archive", "unrar x {0}", "unrar x {0}"},
    Kind{0, "LZIP\x01"sv, "an lzip archive", "lzip -dk {0}", "lzip -dk {0}"},
    Kind{0, "\x1f\x9d"sv, "a compress archive", "zcat < {0} > {4}", "zcat < {0} > {5}"},
    Kind{0, "\x1f\x8b"sv, "a gzip archive inside of another", "zcat < {0} > {4}", "zcat < {0} > {5}"},
    Kind{257, "ustar"sv, "a tar archive", "tar xf {0}", "tar xf {0}"},
    Kind{0, "\x89HDF\r\n\x1a\n"sv, "a file of HDF5", from_hdf5},
    Kind{0, "PAR1"sv, "a file of Parquet", from_parquet, text_from_parquet},
    Kind{0, "ARROW1"sv, "a file of Arrow", from_feather},
    Kind{0, "ORC"sv, "a file of ORC", "in Python: import pandas; pandas.read_orc({1}).to_csv({2}, index=False)"},
    Kind{0, "Obj\x01"sv, "a file of Avro"},
    Kind{0, "SQLite format 3\0"sv, "a database of SQLite"},
    Kind{0, "MATLAB 5.0 MAT-file"sv, "a file of MATLAB",
         "in Python, where it has the four arrays: import numpy, scipy.io; f = scipy.io.loadmat({1}); [numpy.save(n, "
         "f[n]) "
         "for n in (\"x_train\", \"y_train\", \"x_test\", \"y_test\")]"},
    Kind{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "a document of Office, such as Excel", from_excel},
    Kind{0, "\x89PNG\r\n\x1a\n"sv, "a PNG image", from_images},
    Kind{0, "\xff\xd8\xff"sv, "a JPEG image", from_images},
    Kind{0, "GIF8"sv, "a GIF image", from_images},
    Kind{0, "II*\0"sv, "a TIFF image", from_images},
    Kind{0, "MM\0*"sv, "a TIFF image", from_images},
    Kind{8, "WEBP"sv, "a WebP image", from_images},
    Kind{8, "WAVE"sv, "a WAV recording"},
    Kind{0, "ID3"sv, "an MP3 recording"},
    Kind{0, "OggS"sv, "an Ogg recording"},
    Kind{0, "%PDF-"sv, "a PDF", {}, "pdftotext {0} {5}"},
    Kind{0, "GGUF"sv, "a file of weights (GGUF)"},
    Kind{0,
         "\x7f"
         "ELF"sv,
         "a program or a library"},
    Kind{0, "\x80\x02"sv, "a pickle of Python"},
    Kind{0, "\x80\x03"sv, "a pickle of Python"},
    Kind{0, "\x80\x04"sv, "a pickle of Python"},
    Kind{0, "\x80\x05"sv, "a pickle of Python"},
    Kind{0, "\xff\xfe"sv, "a text in UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > {4}", from_utf_16},
    Kind{0, "\xfe\xff"sv, "a text in UTF-16", "iconv -f UTF-16 -t UTF-8 {0} > {4}", from_utf_16},
};

/// What a zip archive is by the name of its first file, which comes at byte 30.
Kind kind_of_zip(std::string_view first) {
  const std::string_view name = first.substr(std::min<std::size_t>(30, first.size()));
  const auto has = [&](std::string_view part) { return name.substr(0, 200).find(part) != name.npos; };
  if (has(".npy")) return {0, {}, "an .npz file of NumPy", from_npz};
  if (has("[Content_Types].xml") || name.starts_with("docProps/") || name.starts_with("xl/"))
    return {0, {}, "a document of Office, such as Excel", from_excel};
  if (has("/data.pkl") || has("/version")) return {0, {}, "a file of PyTorch"};
  return {0, {}, "a zip archive", "unzip {0}", "unzip {0}"};
}

/// Whether a text may begin like this by chance.
bool may_begin_text(std::string_view magic) {
  constexpr std::size_t longest = 4;
  return magic.size() <= longest && std::ranges::all_of(magic, [](char c) { return c >= ' ' && c <= '~'; });
}

/// The first bytes, unpacked; none of a file that cannot be read.
std::vector<std::uint8_t> first_bytes(const std::filesystem::path& file) {
  std::vector<std::uint8_t> first(512);
  try {
    first.resize(FileBytes{file}.read(first));
  } catch (const ConfigError&) {
    return {};
  }
  return first;
}

std::string hint_for(std::span<const std::uint8_t> first, const std::filesystem::path& file) {
  const std::optional<FileKind> kind = kind_of(first, file);
  if (!kind) return {};
  return fmt::format("; this is {}{}{}", kind->name, kind->as_rows.empty() ? "" : ": ", kind->as_rows);
}

}  // namespace

bool is_text(std::span<const std::uint8_t> first) {
  return !first.empty() && std::ranges::none_of(first, [](std::uint8_t byte) {
    return byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t' && byte != '\f';
  });
}

std::optional<FileKind> kind_of(std::span<const std::uint8_t> first, const std::filesystem::path& file) {
  const std::string_view text{reinterpret_cast<const char*>(first.data()), first.size()};
  std::optional<Kind> found;
  if (text.starts_with("PK\x03\x04") || text.starts_with("PK\x05\x06") || text.starts_with("PK\x07\x08"))
    found = kind_of_zip(text);
  for (const Kind& kind : kinds)
    if (!found && text.size() > kind.offset && text.substr(kind.offset).starts_with(kind.magic) &&
        !(may_begin_text(kind.magic) && is_text(first)))
      found = kind;
  if (!found) return std::nullopt;
  const std::string table = converted_name(file, ".csv"), plain = converted_name(file, ".txt");
  const auto filled = [&](std::string_view how) {
    return fmt::format(fmt::runtime(how), shell_word(file.string()), python_string(file.string()), python_string(table),
                       python_string(plain), shell_word(table), shell_word(plain));
  };
  return FileKind{std::string{found->name}, filled(found->as_rows), filled(found->as_text)};
}

std::optional<FileKind> kind_of_file(const std::filesystem::path& file) {
  return kind_of(first_bytes(file), file);
}

std::string hint_for_kind(const std::filesystem::path& file) {
  return hint_for(first_bytes(file), file);
}

std::string hint_for_file(const std::filesystem::path& file) {
  if (const std::string why = why_not_regular(file); !why.empty()) return "; it " + why;
  const std::vector<std::uint8_t> first = first_bytes(file);
  constexpr std::uint8_t idx[] = {0, 0, 8};  // of unsigned bytes
  if (first.size() > 3 && std::equal(std::begin(idx), std::end(idx), first.begin()))
    return fmt::format("; this is one of the files, expected its folder: --data {}",
                       file.has_parent_path() ? file.parent_path().string() : ".");
  if (begins_npy_file(first)) return "; this is an array of NumPy, expected the folder with x_train.npy and the others";
  if (begins_token_file(first)) return "; this is a file of tokens, which trains --model gpt";
  if (std::string hint = hint_for(first, file); !hint.empty()) return hint;
  return is_text(first) ? "; this is a text, which trains --model gpt" : "";
}

void require_no_zero_byte(const std::filesystem::path& file, std::span<const std::uint8_t> bytes, std::int64_t first) {
  const auto found = std::ranges::find(bytes, 0);
  if (found != bytes.end())
    fail_file(file,
              fmt::format("has a zero byte at {}, which no text has; expected a text file, plain or packed (gzip), "
                          "or --binary, which takes files of any bytes",
                          first + (found - bytes.begin())));
}

}  // namespace lockstep
