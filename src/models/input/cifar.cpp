// CIFAR-10 and CIFAR-100 in their binary versions: records of one or two labels, and the red, green and blue plane of
// an image of 32 x 32. Source of the format: https://www.cs.toronto.edu/~kriz/cifar.html
#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "models/input/failure.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t side = 32, channels = 3, pixel_bytes = side * side * channels;

struct Version {
  std::string_view name;
  std::span<const std::string_view> train, test;  ///< names of files
  std::int64_t label_bytes;                       ///< of which the last is the class
  std::int64_t classes;
  std::string_view names;  ///< the file with a name for each class
};

/// A coarse label comes before the fine one of CIFAR-100.
constexpr std::int64_t coarse_classes = 20;

struct Reader {
  const Version& version;
  LabelRule rule;
  DType dtype;
  DataMemory memory;
  Digest& digest;

  void append(const fs::path& path, StoredRows& rows, std::vector<std::int32_t>& labels);
  LabelledRows read(const fs::path& folder, std::span<const std::string_view> names);
};

void Reader::append(const fs::path& path, StoredRows& rows, std::vector<std::int32_t>& labels) {
  FileBytes file{path};
  const std::uint64_t record = static_cast<std::uint64_t>(version.label_bytes + pixel_bytes);
  std::optional<std::vector<std::uint8_t>> unpacked;
  if (file.packed()) {
    unpacked = read_all(file, memory.left_bytes);
    if (!unpacked) memory.refuse_packed(file);
  }
  const std::uint64_t bytes = unpacked ? unpacked->size() : file.most_bytes();
  const std::string records = fmt::format("records of {} bytes ({} and {} pixels of {} channels)", record,
                                          version.label_bytes == 1 ? "a label" : "two labels", side * side, channels);
  if (bytes == 0) file.fail(fmt::format("is empty; expected {}", records));
  if (bytes % record != 0)
    file.fail(fmt::format("holds {} bytes{}, {} of them in record {} (counted from 0), which is cut short; expected {}",
                          bytes, file.packed() ? " when unpacked" : "", bytes % record, bytes / record, records));
  const auto inspect = [&](std::int64_t first, std::span<const std::uint8_t> piece) {
    digest.update(std::as_bytes(piece));
    for (; !piece.empty(); piece = piece.subspan(record), ++first) {
      if (version.label_bytes == 2)
        LabelRule{coarse_classes, ", the coarse label of CIFAR-100"}.require(path, piece[0], first,
                                                                             "the first label of record");
      const std::int32_t label = piece[static_cast<std::size_t>(version.label_bytes - 1)];
      rule.require(path, label, first, "the label of record");
      labels.push_back(label);
    }
  };
  if (unpacked)
    rows.append(file, *std::move(unpacked), memory, inspect);
  else
    rows.append(file, {.header_bytes = 0, .bytes = bytes, .text = records}, memory, inspect);
}

LabelledRows Reader::read(const fs::path& folder, std::span<const std::string_view> names) {
  const RowFormat format{.width = pixel_bytes, .planes = channels, .prefix_bytes = version.label_bytes};
  auto rows = std::make_shared<StoredRows>(format, dtype);
  std::vector<std::int32_t> labels;
  digest.update(fmt::format("{} {}:", version.name, names.front()));
  for (const std::string_view name : names) append(find_file(folder, name), *rows, labels);
  return {std::move(rows), std::move(labels)};
}

/// The lines of a file of names; none if it cannot be read.
std::vector<std::string> lines_of(const fs::path& path) {
  constexpr std::uint64_t longest = 1 << 16;
  std::vector<std::string> lines;
  try {
    const std::vector<std::uint8_t> bytes = read_whole_file(path, longest, "names of classes");
    for (auto begin = bytes.begin(); begin != bytes.end();) {
      const auto end = std::find(begin, bytes.end(), '\n');
      std::string line{begin, end};
      while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
      if (!line.empty()) lines.push_back(as_utf8(line));
      begin = end == bytes.end() ? end : end + 1;
    }
  } catch (const ConfigError&) {  // the data are good without names
  }
  return lines;
}

/// The names in the folder, if there is one for each class, or else numbers. ConfigError if the model knows others.
std::vector<std::string> class_names(const Version& version, const fs::path& folder, const LabelRule& rule,
                                     const LabelledData::Options& options) {
  const fs::path path = folder / version.names;
  std::vector<std::string> names = lines_of(path);
  if (std::ssize(names) != rule.classes || find_twins(names)) names = number_names(rule.classes);
  if (!options.schema) return names;
  const std::vector<std::string>& known = options.schema->classes;
  if (are_number_names(known) || are_number_names(names) || known == names) return known;
  fail_file(path, fmt::format("has the classes {}; expected {}, on which the model was trained", quoted(names),
                              quoted(known)));
}

LabelledSets load(const Version& version, const fs::path& folder, const LabelledData::Options& options) {
  const Shape sample{side, side, channels};
  require_as_trained(folder, options, sample, DataSchema::Numbers::bytes);
  LabelledSets sets{.schema = schema_of(options, std::string{version.name}, sample, DataSchema::Numbers::bytes)};
  const LabelRule rule =
      LabelRule::of(options, version.classes, fmt::format(", as {} has {} classes", version.name, version.classes));
  sets.schema.classes = class_names(version, folder, rule, options);
  // Before reading any, so that a missing one is told first.
  if (trains(options))
    for (const std::string_view name : version.train) (void)find_file(folder, name);
  for (const std::string_view name : version.test) (void)find_file(folder, name);
  Reader reader{version, rule, options.dtype, {options.memory_bytes}, sets.digest};
  if (trains(options)) sets.train = reader.read(folder, version.train);
  sets.test = reader.read(folder, version.test);
  return sets;
}

}  // namespace

LabelledSets load_cifar_10(const fs::path& folder, const LabelledData::Options& options) {
  static constexpr std::string_view train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                               "data_batch_4.bin", "data_batch_5.bin"};
  static constexpr std::string_view test[] = {"test_batch.bin"};
  return load(
      {.name = "CIFAR-10", .train = train, .test = test, .label_bytes = 1, .classes = 10, .names = "batches.meta.txt"},
      folder, options);
}

LabelledSets load_cifar_100(const fs::path& folder, const LabelledData::Options& options) {
  static constexpr std::string_view train[] = {"train.bin"}, test[] = {"test.bin"};
  return load({.name = "CIFAR-100",
               .train = train,
               .test = test,
               .label_bytes = 2,
               .classes = 100,
               .names = "fine_label_names.txt"},
              folder, options);
}

}  // namespace lockstep
