#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"
#include "models/input/conversion.hpp"
#include "models/input/file_kind.hpp"
#include "models/input/npy.hpp"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view npy_magic = "\x93NUMPY"sv;
constexpr std::uint64_t longest_header = 1 << 20;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;

/// The part of a Python literal that a header is: a dictionary of strings, truth values and tuples of integers.
class HeaderText {
 public:
  HeaderText(const FileBytes& file, std::string_view text) : file_{file}, text_{text} {}

  NpyHeader parse() {
    NpyHeader header;
    std::optional<std::string_view> type;
    bool has_order = false, has_shape = false, in_fortran_order = false;
    expect('{');
    while (!takes('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr") {
        if (next() == '[')
          file_.fail(
              "has elements of several fields (a structured type); expected numbers" +
              saved_as("numpy.lib.recfunctions.structured_to_unstructured({})", "numpy, numpy.lib.recfunctions"));
        type = string();
      } else if (key == "fortran_order") {
        has_order = true;
        in_fortran_order = truth();
      } else if (key == "shape") {
        header.shape = tuple();
        has_shape = true;
      } else {
        pass_by();
      }
      if (!takes(',') && next() != '}') fail("a key without a comma before it");
    }
    if (next() != '\0') fail("something after the dictionary");
    if (!type || !has_order || !has_shape) fail("no descr, fortran_order or shape");
    set_type(header, *type);
    // Both orders of a column or a row are one.
    if (in_fortran_order && std::ranges::count_if(header.shape, [](std::int64_t extent) { return extent != 1; }) > 1)
      file_.fail("is in Fortran order; expected C order" + saved_as("numpy.ascontiguousarray({})"));
    return header;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    file_.fail(
        fmt::format("its header has {}; expected {{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }}", what));
  }

  /// The next character that is no blank, which stays; 0 at the end.
  char next() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
    return text_.empty() ? '\0' : text_.front();
  }
  bool takes(char wanted) {
    if (next() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (!takes(wanted)) fail(fmt::format("no '{}' where there should be one", wanted));
  }
  bool takes_word(std::string_view word) {
    (void)next();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  std::string_view string() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail("no string where there should be one");
    const std::size_t end = text_.find(quote, 1);
    if (end == text_.npos) fail("a string without an end");
    const std::string_view found = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return found;
  }
  bool truth() {
    if (takes_word("True")) return true;
    if (!takes_word("False")) fail("neither True nor False");
    return false;
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!takes(')')) {
      (void)next();
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), extent);
      if (error != std::errc{} || extent < 0) fail("an extent that is no number");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      (void)takes_word("L");  // as Python 2 wrote it
      if (shape.size() == Shape::most_dimensions) fail(fmt::format("more than {} extents", Shape::most_dimensions));
      shape.push_back(extent);
      if (!takes(',') && next() != ')') fail("an extent without a comma before it");
    }
    return shape;
  }

  /// What another key has: any literal of Python.
  void pass_by(int levels = 0) {
    constexpr int deepest = 100;
    const char first = next();
    if (first == '\'' || first == '"') {
      (void)string();
    } else if (first == '(' || first == '[' || first == '{') {
      if (levels == deepest) fail("a value that is nested too deep");
      const char last = first == '(' ? ')' : first == '[' ? ']' : '}';
      (void)takes(first);
      while (!takes(last)) {
        pass_by(levels + 1);
        if (first == '{' && takes(':')) pass_by(levels + 1);
        if (!takes(',') && next() != last) fail("a value without a comma before it");
      }
    } else {
      const std::size_t length = std::min(
          text_.find_first_not_of("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"), text_.size());
      if (length == 0) fail("no value where there should be one");
      text_.remove_prefix(length);
    }
  }

  /// How the array is saved again: in Python, with {} for the array.
  std::string saved_as(std::string_view converted, std::string_view modules = "numpy") const {
    const std::string path = python_string(file_.path().string());
    return fmt::format("; in Python: import {}; numpy.save({}, {})", modules, path,
                       fmt::format(fmt::runtime(converted), fmt::format("numpy.load({})", path)));
  }

  /// '<f4': the order of bytes, a kind, and the number of bytes.
  void set_type(NpyHeader& header, std::string_view type) const {
    const auto refuse = [&](std::string_view why) {
      file_.fail(fmt::format("has elements of type '{}'{}; expected numbers of type u1 to u8, i1 to i8, f4 or f8{}",
                             excerpt(type), why, conversion_of(type)));
    };
    if (type.ends_with('O')) refuse(", Python objects");
    if (type.size() != 3 || "<>|="sv.find(type[0]) == std::string_view::npos) refuse("");
    header.order = type[0] == '<' ? std::endian::little : type[0] == '>' ? std::endian::big : std::endian::native;
    header.kind = type[1];
    header.bytes = type[2] - '0';
    const bool whole = type[1] == 'u' || type[1] == 'i';
    const std::string_view sizes = whole ? "1248"sv : "48"sv;
    if ((!whole && type[1] != 'f') || sizes.find(type[2]) == std::string_view::npos) refuse("");
    if (type[0] == '|' && header.bytes > 1) refuse(", without an order of bytes");
  }

  /// Of types that become one of those without losing much.
  std::string conversion_of(std::string_view type) const {
    const std::string_view bare = type.substr(std::min(type.find_first_not_of("<>|="), type.size()));
    if (bare == "f2") return saved_as("{}.astype(\"f4\")");
    if (bare == "b1") return saved_as("{}.astype(\"u1\")");
    if (bare == "f16" || bare == "f12") return saved_as("{}.astype(\"f8\")");
    if (bare.starts_with('U') || bare.starts_with('S')) return words_as_numbers();
    return {};
  }

  /// The labels of two parts get the same numbers.
  std::string words_as_numbers() const {
    const std::filesystem::path train = file_.path().parent_path() / "y_train.npy",
                                test = train.parent_path() / "y_test.npy";
    std::error_code none;
    if ((file_.path() != train && file_.path() != test) || !std::filesystem::exists(train, none) ||
        !std::filesystem::exists(test, none))
      return saved_as("numpy.unique({}, return_inverse=True)[1]");
    return fmt::format(
        "; in Python: import numpy; a = numpy.load({0}); b = numpy.load({1}); n = numpy.unique(numpy.append(a, b)); "
        "numpy.save({0}, numpy.searchsorted(n, a)); numpy.save({1}, numpy.searchsorted(n, b))",
        python_string(train.string()), python_string(test.string()));
  }

  const FileBytes& file_;
  std::string_view text_;
};

void require_size(const FileBytes& file, const NpyHeader& header) {
  std::uint64_t bytes = static_cast<std::uint64_t>(header.bytes);
  for (const std::int64_t extent : header.shape) {
    if (extent == 0)
      file.fail(fmt::format("its shape is {}; expected 1 or more of each", excerpt(describe(header.shape))));
    if (static_cast<std::uint64_t>(extent) > most_bytes / bytes)
      file.fail(fmt::format("its shape is {}, of {}; expected at most 2^40 bytes", excerpt(describe(header.shape)),
                            header.type()));
    bytes *= static_cast<std::uint64_t>(extent);
  }
}

}  // namespace

bool begins_npy_file(std::span<const std::uint8_t> first) {
  return first.size() >= npy_magic.size() &&
         std::equal(npy_magic.begin(), npy_magic.end(), first.begin(),
                    [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; });
}

NpyHeader read_npy_header(FileBytes& file) {
  // The magic, the version, and the length of the text: 2 bytes in version 1.0, and 4 in 2.0 and 3.0.
  std::array<std::uint8_t, 12> start;
  const std::size_t found = file.read({start.data(), 10});
  if (found == 0) file.fail("is empty; expected an .npy file");
  if (!begins_npy_file({start.data(), found}))
    file.fail("is no .npy file, which begins with \\x93NUMPY" + hint_for_kind(file.path()));
  if (found < 10) file.fail(fmt::format("truncated: expected the 10 bytes before its header, found {}", found));
  const int version = start[6];
  if (version < 1 || version > 3)
    file.fail(fmt::format("is of version {}.{} of the .npy format; expected 1.0, 2.0 or 3.0", version, start[7]));
  std::uint64_t length = start[8] | std::uint64_t{start[9]} << 8, before = 10;
  if (version > 1) {
    if (file.read({start.data() + 10, 2}) < 2) file.fail("truncated: expected the length of its header");
    length |= std::uint64_t{start[10]} << 16 | std::uint64_t{start[11]} << 24;
    before = 12;
  }
  if (length > longest_header)
    file.fail(fmt::format("announces a header of {} bytes; expected at most {}", length, longest_header));
  std::vector<std::uint8_t> text(length);
  if (const std::size_t there = file.read(text); there < length)
    file.fail(fmt::format("truncated: expected a header of {} bytes, found {}", length, there));
  NpyHeader header = HeaderText{file, {reinterpret_cast<const char*>(text.data()), text.size()}}.parse();
  header.header_bytes = before + length;
  require_size(file, header);
  return header;
}

}  // namespace lockstep
