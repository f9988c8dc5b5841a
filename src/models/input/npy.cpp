// Arrays of NumPy: the numbers of samples in one file, their labels in another.
#include "models/input/npy.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "core/base/excerpt.hpp"
#include "models/input/conversion.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"

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
          .text = fmt::format("an array {} of {}", describe(header.shape), header.type())};
}

Shape sample_of(const NpyHeader& header) {
  return {header.shape.begin() + 1, header.shape.end()};
}

/// ConfigError for images as PyTorch has them.
void require_channels_last(const FileBytes& file, const Shape& shape) {
  constexpr std::int64_t most_channels = 4;
  const auto are_channels = [](std::int64_t extent) { return extent == 1 || extent == 3 || extent == most_channels; };
  if (shape.size() != 4 || !are_channels(shape[1]) || shape[2] <= most_channels || shape[3] <= most_channels) return;
  file.fail(
      fmt::format("its shape is {}, with channels first; expected [n, rows, columns, channels], such as "
                  "numpy.transpose(x, (0, 2, 3, 1))",
                  excerpt(describe(shape))));
}

DataSchema::Numbers numbers_of(const RowFormat& format) {
  return format.element == RowFormat::Element::u8 ? DataSchema::Numbers::bytes : DataSchema::Numbers::floats;
}

RowFormat format_of(const FileBytes& file, const NpyHeader& header) {
  using Element = RowFormat::Element;
  constexpr std::pair<std::string_view, Element> elements[] = {
      {"u1", Element::u8}, {"f4", Element::f32}, {"f8", Element::f64}};
  const auto* const element = std::ranges::find(elements, header.type(), &std::pair<std::string_view, Element>::first);
  if (element == std::end(elements)) {
    const std::string path = python_string(file.path().string());
    file.fail(
        fmt::format("has numbers of type {0}; expected u1, which are scaled to [0, 1], or f4 or f8; in Python: import "
                    "numpy; numpy.save({1}, numpy.load({1}).astype(\"{2}\"))",
                    header.type(), path, header.bytes <= 2 ? "f4" : "f8"));
  }
  require_channels_last(file, header.shape);
  if (header.shape.size() < 2 || header.shape.size() > 4)
    file.fail(fmt::format("its shape is {}; expected [n, numbers], [n, rows, columns] or [n, rows, columns, channels]",
                          excerpt(describe(header.shape))));
  return {.element = element->second, .order = header.order, .width = numbers_in(sample_of(header))};
}

/// How rows with numbers that are missing, and their labels, are left out, in Python; empty without labels.
std::string without_missing(const fs::path& samples, const fs::path& labels) {
  if (labels.empty()) return {};
  return fmt::format(
      "; in Python: import numpy; x, y = numpy.load({0}), numpy.load({1}); k = "
      "numpy.isfinite(x).reshape(len(x), -1).all(1); numpy.save({0}, x[k]); numpy.save({1}, y[k])",
      python_string(samples.string()), python_string(labels.string()));
}

/// The numbers in one file, of which the header has been read.
std::shared_ptr<StoredRows> read_rows(FileBytes& file, const NpyHeader& header, DType dtype, DataMemory& memory,
                                      Digest& digest, const fs::path& labels = {}) {
  auto rows = std::make_shared<StoredRows>(format_of(file, header), dtype, without_missing(file.path(), labels));
  digest.update(
      fmt::format("{} {}{}:", describe(header.shape), header.order == std::endian::big ? ">" : "", header.type()));
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
  const std::string in_python = python_string(path.string());
  const auto saved_as = [&](std::string_view method) {
    return fmt::format("; in Python: import numpy; numpy.save({0}, numpy.load({0}).{1})", in_python, method);
  };
  const bool column = header.shape.size() == 2 && header.shape[1] == 1;  // as Keras has them
  if (header.shape.size() != 1 && !column)
    file.fail(
        fmt::format("its shape is {}; expected [n], a label for each sample{}", excerpt(describe(header.shape)),
                    header.shape.size() == 2 ? saved_as("argmax(1)") + " where the largest marks the class" : ""));
  if (header.kind == 'f')
    file.fail(
        fmt::format("has labels of type {}; expected integers{} where they are whole, or a table for --task "
                    "regression",
                    header.type(), saved_as("astype(\"i8\")")));
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

/// The samples of a part, of which the header has been read, and its labels.
struct NpyPart {
  NpyPart(const fs::path& folder, std::string_view part)
      : file{find_file(folder, fmt::format("x_{}.npy", part))},
        labels{find_file(folder, fmt::format("y_{}.npy", part))},
        header{read_npy_header(file)} {}

  LabelledRows read(const LabelRule& rule, DType dtype, DataMemory& memory, Digest& digest) {
    std::vector<std::int32_t> numbers = read_labels(labels, header.shape[0], file.path(), rule);
    digest.update(std::as_bytes(std::span{numbers}));
    return {read_rows(file, header, dtype, memory, digest, labels), std::move(numbers)};
  }

  FileBytes file;
  fs::path labels;
  NpyHeader header;
};

void require_same_samples(const NpyPart& train, const NpyPart& test) {
  const Shape sample = sample_of(train.header);
  if (sample_of(test.header) == sample && test.header.type() == train.header.type()) return;
  test.file.fail(fmt::format("is {}, {}; expected samples {} of {}, as in {}", excerpt(describe(test.header.shape)),
                             test.header.type(), describe(sample), train.header.type(), train.file.path().string()));
}

/// Of arrays, of which the header has been read.
DataSchema checked_schema(const FileBytes& file, const NpyHeader& header, const LabelledData::Options& options) {
  const DataSchema::Numbers numbers = numbers_of(format_of(file, header));
  require_as_trained(file.path(), options, sample_of(header), numbers);
  return schema_of(options, "arrays of NumPy", sample_of(header), numbers);
}

}  // namespace

LabelledSets load_npy_sets(const fs::path& folder, const LabelledData::Options& options) {
  std::optional<NpyPart> train;
  if (trains(options)) train.emplace(folder, "train");
  NpyPart test{folder, "test"};
  const NpyPart& first = train ? *train : test;
  if (!train) require_known_classes(test.labels, options);
  LabelledSets sets{.schema = checked_schema(first.file, first.header, options)};
  if (train) require_same_samples(*train, test);
  DataMemory memory{options.memory_bytes};
  LabelRule rule = LabelRule::of(options, most_classes, "");
  if (train) {
    sets.train = train->read(rule, options.dtype, memory, sets.digest);
    if (!options.schema && !options.classes)
      rule = {std::int64_t{std::ranges::max(sets.train.labels)} + 1, fmt::format(", as in {}", train->labels.string())};
  }
  if (!options.schema) sets.schema.classes = number_names(rule.classes);
  sets.test = test.read(rule, options.dtype, memory, sets.digest);
  return sets;
}

UnlabelledRows load_npy_rows(const fs::path& path, const LabelledData::Options& options) {
  FileBytes file{path};
  const NpyHeader header = read_npy_header(file);
  UnlabelledRows rows{.schema = checked_schema(file, header, options)};
  DataMemory memory{options.memory_bytes};
  rows.rows = read_rows(file, header, options.dtype, memory, rows.digest);
  return rows;
}

}  // namespace lockstep
