// Arrays of NumPy: the numbers of samples in one file, their labels in another.
#include "input/npy.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "input/labelled_sets.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::int64_t numbers_in(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;  // the header has been checked: at most 2^40
  return count;
}

AnnouncedContent content_of(const NpyHeader& header) {
  return {.header_bytes = header.header_bytes,
          .bytes = static_cast<std::uint64_t>(header.bytes * numbers_in(header.shape)),
          .text = fmt::format("an array {} of {}", to_string(header.shape), header.type())};
}

Shape sample_of(const NpyHeader& header) {
  return {header.shape.begin() + 1, header.shape.end()};
}

RowFormat format_of(const FileBytes& file, const NpyHeader& header) {
  using Element = RowFormat::Element;
  constexpr std::pair<std::string_view, Element> elements[] = {
      {"u1", Element::u8}, {"f4", Element::f32}, {"f8", Element::f64}};
  const auto* const element = std::ranges::find(elements, header.type(), &std::pair<std::string_view, Element>::first);
  if (element == std::end(elements))
    file.fail(
        fmt::format("has numbers of type {}; expected u1, which are scaled to [0, 1], or f4 or f8", header.type()));
  if (header.shape.size() < 2 || header.shape.size() > 4)
    file.fail(fmt::format("its shape is {}; expected [n, numbers], [n, rows, columns] or [n, rows, columns, channels]",
                          to_string(header.shape)));
  return {.element = element->second, .order = header.order, .width = numbers_in(sample_of(header))};
}

/// The numbers in one file, of which the header has been read.
std::shared_ptr<StoredRows> read_rows(FileBytes& file, const NpyHeader& header, DType dtype, DataMemory& memory,
                                      Digest& digest) {
  auto rows = std::make_shared<StoredRows>(format_of(file, header), dtype);
  digest.update(
      fmt::format("{} {}{}:", to_string(header.shape), header.order == std::endian::big ? ">" : "", header.type()));
  rows->append(file, content_of(header), memory,
               [&](std::int64_t, std::span<const std::uint8_t> bytes) { digest.update(std::as_bytes(bytes)); });
  return rows;
}

/// A label of `bytes`, or one that is no class where that does not fit.
std::int64_t label_from(const std::uint8_t* stored, const NpyHeader& header) {
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < header.bytes; ++i) {
    const std::int64_t at = header.order == std::endian::little ? i : header.bytes - 1 - i;
    bits |= std::uint64_t{stored[at]} << (8 * i);
  }
  if (header.kind == 'u')
    return static_cast<std::int64_t>(std::min<std::uint64_t>(bits, std::numeric_limits<std::int64_t>::max()));
  const auto unused = static_cast<int>(64 - 8 * header.bytes);
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

std::vector<std::int32_t> read_labels(const fs::path& path, std::int64_t count, const fs::path& samples,
                                      const LabelRule& rule) {
  FileBytes file{path};
  const NpyHeader header = read_npy_header(file);
  if (header.kind == 'f') file.fail(fmt::format("has labels of type {}; expected integers", header.type()));
  const bool column = header.shape.size() == 2 && header.shape[1] == 1;  // as Keras has them
  if (header.shape.size() != 1 && !column)
    file.fail(fmt::format("its shape is {}; expected [n], a label for each sample", to_string(header.shape)));
  if (header.shape[0] != count)
    file.fail(fmt::format("holds {} labels, but {} holds {} samples; expected as many", header.shape[0],
                          samples.string(), count));
  const std::vector<std::uint8_t> stored = read_content(file, content_of(header));
  std::vector<std::int32_t> labels;
  for (std::size_t at = 0; at < stored.size(); at += static_cast<std::size_t>(header.bytes)) {
    const std::int64_t label = label_from(&stored[at], header);
    rule.require(path, label, std::ssize(labels));
    labels.push_back(static_cast<std::int32_t>(label));
  }
  return labels;
}

struct NpyFiles {
  fs::path samples, labels;
};

LabelledRows read_part(const NpyFiles& files, FileBytes& file, const NpyHeader& header, const LabelRule& rule,
                       DType dtype, DataMemory& memory, Digest& digest) {
  const std::int64_t count = header.shape[0];
  std::vector<std::int32_t> labels = read_labels(files.labels, count, files.samples, rule);
  digest.update(std::as_bytes(std::span{labels}));
  return {read_rows(file, header, dtype, memory, digest), {0, count}, std::move(labels)};
}

}  // namespace

LabelledSets load_npy_sets(const fs::path& folder, const LabelledOptions& options) {
  const auto files_of = [&](const char* part) -> NpyFiles {
    return {find_file(folder, fmt::format("x_{}.npy", part)), find_file(folder, fmt::format("y_{}.npy", part))};
  };
  const NpyFiles train = files_of("train"), test = files_of("test");
  FileBytes train_file{train.samples}, test_file{test.samples};
  const NpyHeader train_header = read_npy_header(train_file), test_header = read_npy_header(test_file);
  LabelledSets sets{.kind = "arrays of NumPy"};
  (void)format_of(train_file, train_header);
  sets.sample = sample_of(train_header);
  if (sample_of(test_header) != sets.sample || test_header.type() != train_header.type())
    test_file.fail(fmt::format("is {}, {}; expected samples {} of {}, as in {}", to_string(test_header.shape),
                               test_header.type(), to_string(sets.sample), train_header.type(),
                               train.samples.string()));
  DataMemory memory{options.memory_bytes};
  LabelRule rule = LabelRule::of(options, most_classes, "");
  sets.train = read_part(train, train_file, train_header, rule, options.dtype, memory, sets.digest);
  if (!options.classes)
    rule = {std::int64_t{std::ranges::max(sets.train.labels)} + 1, fmt::format(", as in {}", train.labels.string())};
  sets.classes = rule.classes;
  sets.test = read_part(test, test_file, test_header, rule, options.dtype, memory, sets.digest);
  return sets;
}

UnlabelledRows load_npy_rows(const fs::path& path, const LabelledOptions& options) {
  FileBytes file{path};
  const NpyHeader header = read_npy_header(file);
  DataMemory memory{options.memory_bytes};
  Digest digest;
  std::shared_ptr<StoredRows> rows = read_rows(file, header, options.dtype, memory, digest);
  return {std::move(rows), sample_of(header), std::move(digest)};
}

}  // namespace lockstep
