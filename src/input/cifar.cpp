// CIFAR-10 and CIFAR-100 in their binary versions: records of one or two labels, and the red, green and blue plane of
// an image of 32 x 32. Source of the format: https://www.cs.toronto.edu/~kriz/cifar.html
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "input/labelled_sets.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t side = 32, channels = 3, pixel_bytes = side * side * channels;

struct Version {
  std::string_view name;
  std::span<const std::string_view> train, test;  ///< names of files
  std::int64_t label_bytes;                       ///< of which the last is the class
  std::int64_t classes;
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
  const std::uint64_t bytes = file.packed() ? count_bytes(path, memory.left_bytes) : file.most_bytes();
  if (file.packed() && bytes > memory.left_bytes) memory.refuse_packed(file);
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
  rows.append(file, {.header_bytes = 0, .bytes = bytes, .text = records}, memory, inspect);
}

LabelledRows Reader::read(const fs::path& folder, std::span<const std::string_view> names) {
  const RowFormat format{.width = pixel_bytes, .planes = channels, .prefix_bytes = version.label_bytes};
  auto rows = std::make_shared<StoredRows>(format, dtype);
  std::vector<std::int32_t> labels;
  digest.update(fmt::format("{} {}:", version.name, names.front()));
  for (const std::string_view name : names) append(find_file(folder, name), *rows, labels);
  const std::int64_t count = rows->count();
  return {std::move(rows), {0, count}, std::move(labels)};
}

LabelledSets load(const Version& version, const fs::path& folder, const LabelledOptions& options) {
  LabelledSets sets{.kind = std::string{version.name}, .sample = {side, side, channels}};
  const LabelRule rule =
      LabelRule::of(options, version.classes, fmt::format(", as {} has {} classes", version.name, version.classes));
  sets.classes = rule.classes;
  for (const auto& names : {version.train, version.test})  // before reading any, so that a missing one is told first
    for (const std::string_view name : names) (void)find_file(folder, name);
  Reader reader{version, rule, options.dtype, {options.memory_bytes}, sets.digest};
  sets.train = reader.read(folder, version.train);
  sets.test = reader.read(folder, version.test);
  return sets;
}

}  // namespace

LabelledSets load_cifar_10(const fs::path& folder, const LabelledOptions& options) {
  static constexpr std::string_view train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                               "data_batch_4.bin", "data_batch_5.bin"};
  static constexpr std::string_view test[] = {"test_batch.bin"};
  return load({.name = "CIFAR-10", .train = train, .test = test, .label_bytes = 1, .classes = 10}, folder, options);
}

LabelledSets load_cifar_100(const fs::path& folder, const LabelledOptions& options) {
  static constexpr std::string_view train[] = {"train.bin"}, test[] = {"test.bin"};
  return load({.name = "CIFAR-100", .train = train, .test = test, .label_bytes = 2, .classes = 100}, folder, options);
}

}  // namespace lockstep
