#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/idx.hpp>

#include "core/base/digest.hpp"
#include "models/input/failure.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/file_kind.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_content = std::uint64_t{1} << 40;

/// A kind of IDX file read here: its first four bytes, and how many extents follow.
struct Format {
  std::uint32_t magic;
  std::size_t dimensions;
  std::string_view holds;
};
constexpr Format image_format{0x0803, 3, "images"};
constexpr Format label_format{0x0801, 1, "labels"};

struct Idx {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> bytes;
};

std::string_view element_name(std::uint32_t type) {
  switch (type) {
    case 0x08: return "unsigned bytes";
    case 0x09: return "signed bytes";
    case 0x0B: return "16-bit integers";
    case 0x0C: return "32-bit integers";
    case 0x0D: return "32-bit floats";
    case 0x0E: return "64-bit floats";
    default: return {};
  }
}

/// Describes a file that begins with `magic`: two zero bytes, the type of the elements, the number of dimensions.
std::string describe_magic(std::uint32_t magic) {
  if (magic >> 16 != 0) return fmt::format("0x{:08x} (not IDX)", magic);
  const std::uint32_t type = magic >> 8, dimensions = magic & 0xff;
  const std::string_view elements = element_name(type);
  if (elements.empty()) return fmt::format("0x{:08x} (0x{:02x} is no element type of IDX)", magic, type);
  const std::string_view kind = magic == image_format.magic   ? "images: "
                                : magic == label_format.magic ? "labels: "
                                                              : "";
  return fmt::format("0x{:08x} ({}{}, {} dimension{})", magic, kind, elements, dimensions, dimensions == 1 ? "" : "s");
}

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

/// "10 images of 28 x 28", "10 labels".
std::string describe_content(const Format& format, const std::vector<std::int64_t>& extents) {
  const std::string size = extents.size() == 3 ? fmt::format(" of {} x {}", extents[1], extents[2]) : "";
  return fmt::format("{} {}{}", extents[0], format.holds, size);
}

std::vector<std::int64_t> read_extents(const fs::path& path, FileBytes& file, const Format& format) {
  std::array<std::uint8_t, 16> header;
  const std::size_t header_bytes = 4 + 4 * format.dimensions;
  const std::size_t found = file.read({header.data(), header_bytes});
  if (found == 0) fail_file(path, fmt::format("is empty; expected an IDX file of {}", format.holds));
  // A file of another kind gets this message even if it is too short for this kind's header.
  if (found >= 4 && big_endian(header.data()) != format.magic)
    fail_file(path, fmt::format("wrong magic number {}; expected {}{}", describe_magic(big_endian(header.data())),
                                describe_magic(format.magic), hint_for_kind(path)));
  if (found < header_bytes)
    fail_file(path, fmt::format("truncated: expected a header of {} bytes, found {}", header_bytes, found));

  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < format.dimensions; ++i) extents.push_back(big_endian(&header[4 + 4 * i]));
  return extents;
}

std::uint64_t content_bytes(const fs::path& path, const Format& format, const std::vector<std::int64_t>& extents) {
  if (extents[0] == 0) fail_file(path, fmt::format("holds no {}; expected 1 or more", format.holds));
  std::uint64_t bytes = 1;
  for (const std::int64_t extent : extents) {
    if (extent == 0)
      fail_file(path, fmt::format("its header announces {}; expected images of 1 x 1 or more",
                                  describe_content(format, extents)));
    if (bytes > largest_content / static_cast<std::uint64_t>(extent))
      fail_file(path, fmt::format("its header announces {}; expected at most 2^40 bytes of them",
                                  describe_content(format, extents)));
    bytes *= static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

/// A file whose header has been read.
struct IdxFile {
  IdxFile(const fs::path& path, const Format& format) : bytes{path}, extents{read_extents(path, bytes, format)} {
    content = {.header_bytes = 4 + 4 * format.dimensions,
               .bytes = content_bytes(path, format, extents),
               .text = describe_content(format, extents)};
  }

  FileBytes bytes;
  std::vector<std::int64_t> extents;
  AnnouncedContent content;
};

Idx read_idx(const fs::path& path, const Format& format) {
  IdxFile file{path, format};
  return {file.extents, read_content(file.bytes, file.content)};
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) fail_file(path, fmt::format("cannot be read: {}", error.message()));
  return there;
}

struct IdxFiles {
  fs::path images;
  fs::path labels;
};

IdxFiles find_files(const fs::path& directory, const std::string& prefix) {
  return {find_file(directory, prefix + "-images-idx3-ubyte"), find_file(directory, prefix + "-labels-idx1-ubyte")};
}

void require_as_many(const IdxFiles& files, std::int64_t images, std::int64_t labels) {
  if (images != labels)
    throw ConfigError{fmt::format("{} holds {} images, but {} holds {} labels; expected as many", files.images.string(),
                                  images, files.labels.string(), labels)};
}

void require_labels(const LabelRule& rule, const fs::path& path, const std::vector<std::uint8_t>& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) rule.require(path, labels[i], static_cast<std::int64_t>(i));
}

ImageData::Set read_set(const IdxFiles& files, const LabelRule& rule) {
  Idx images = read_idx(files.images, image_format);
  Idx labels = read_idx(files.labels, label_format);
  require_as_many(files, images.extents[0], labels.extents[0]);
  require_labels(rule, files.labels, labels.bytes);
  return {images.extents[1], images.extents[2], std::move(images.bytes), std::move(labels.bytes)};
}

void update(Digest& digest, const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t size : sizes) {
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(size >> (8 * i));
    digest.update(std::as_bytes(std::span{bytes}));
  }
}

void update(Digest& digest, const ImageData::Set& set) {
  // Sizes first, so that the same bytes in another shape have a different digest.
  std::vector<std::int64_t> sizes{set.count(), set.rows, set.columns};
  if (set.channels != 1) sizes.push_back(set.channels);
  update(digest, sizes);
  digest.update(std::as_bytes(std::span{set.pixels})).update(std::as_bytes(std::span{set.labels}));
}

IdxFiles train_files(const fs::path& folder) {
  return find_files(folder, "train");
}
IdxFiles test_files(const fs::path& folder) {
  return find_files(folder, "t10k");
}

[[noreturn]] void refuse_size(const fs::path& test, const Shape& found, const fs::path& train, const Shape& expected) {
  fail_file(test, fmt::format("its images have {} pixels; expected {}, as in {}", extents_text(found),
                              extents_text(expected), train.string()));
}

Shape sample_of(const IdxFile& images) {
  return {images.extents[1], images.extents[2]};
}

/// As `ImageData::load`, but from the files if they do not fit into `memory`.
LabelledRows load_part(const IdxFiles& files, IdxFile& images, const LabelRule& rule, DType dtype, DataMemory& memory,
                       Digest& digest) {
  const Idx labels = read_idx(files.labels, label_format);
  const std::int64_t count = images.extents[0];
  require_as_many(files, count, labels.extents[0]);
  auto rows = std::make_shared<StoredRows>(RowFormat{.width = images.extents[1] * images.extents[2]}, dtype);
  update(digest, images.extents);
  rows->append(images.bytes, images.content, memory,
               [&](std::int64_t, std::span<const std::uint8_t> pixels) { digest.update(std::as_bytes(pixels)); });
  require_labels(rule, files.labels, labels.bytes);
  digest.update(std::as_bytes(std::span{labels.bytes}));
  return {std::move(rows), std::vector<std::int32_t>{labels.bytes.begin(), labels.bytes.end()}};
}

}  // namespace

ImageData ImageData::load(const fs::path& directory, std::int64_t classes) {
  if (classes < 1) throw ConfigError{fmt::format("--classes is {}; expected 1 or more", classes)};
  if (directory.empty()) throw ConfigError{"--data is empty; expected a directory of IDX files"};
  constexpr std::string_view expected =
      "IDX files (--data): train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
      "t10k-labels-idx1-ubyte, plain or packed (.gz)";
  if (!is_there(directory)) fail_file(directory, fmt::format("does not exist; expected a directory of {}", expected));
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    fail_file(directory, fmt::format("is not a directory; expected one of {}{}", expected, hint_for_file(directory)));

  // Looks for all files before reading any, so a missing test set is reported before the training set is read.
  const IdxFiles train = train_files(directory), test = test_files(directory);
  const LabelRule rule{classes, fmt::format(" (--classes {})", classes)};
  ImageData data{read_set(train, rule), read_set(test, rule)};
  if (data.test.rows != data.train.rows || data.test.columns != data.train.columns)
    refuse_size(test.images, {data.test.rows, data.test.columns}, train.images, {data.train.rows, data.train.columns});
  return data;
}

LabelledSets load_idx_sets(const fs::path& folder, const LabelledData::Options& options) {
  const std::optional<IdxFiles> train = trains(options) ? std::optional{train_files(folder)} : std::nullopt;
  const IdxFiles test = test_files(folder);
  const LabelRule rule = LabelRule::of(options, 10, " (--classes 10)");
  std::optional<IdxFile> train_images;
  if (train) train_images.emplace(train->images, image_format);
  IdxFile test_images{test.images, image_format};
  const IdxFile& first = train_images ? *train_images : test_images;
  require_as_trained(first.bytes.path(), options, sample_of(first), DataSchema::Numbers::bytes);
  LabelledSets sets{.schema = schema_of(options, "IDX", sample_of(first), DataSchema::Numbers::bytes)};
  if (!options.schema) sets.schema.classes = number_names(rule.classes);
  DataMemory memory{options.memory_bytes};
  if (train) sets.train = load_part(*train, *train_images, rule, options.dtype, memory, sets.digest);
  sets.test = load_part(test, test_images, rule, options.dtype, memory, sets.digest);
  if (sample_of(test_images) != sample_of(first))
    refuse_size(test.images, sample_of(test_images), first.bytes.path(), sample_of(first));
  return sets;
}

UnlabelledRows load_idx_rows(const fs::path& path, const LabelledData::Options& options) {
  IdxFile images{path, image_format};
  const Shape sample = sample_of(images);
  require_as_trained(path, options, sample, DataSchema::Numbers::bytes);
  UnlabelledRows read{.schema = schema_of(options, "IDX", sample, DataSchema::Numbers::bytes)};
  auto rows = std::make_shared<StoredRows>(RowFormat{.width = sample[0] * sample[1]}, options.dtype);
  DataMemory memory{options.memory_bytes};
  update(read.digest, images.extents);
  rows->append(images.bytes, images.content, memory,
               [&](std::int64_t, std::span<const std::uint8_t> pixels) { read.digest.update(std::as_bytes(pixels)); });
  read.rows = std::move(rows);
  return read;
}

std::uint64_t ImageData::digest() const {
  Digest all;
  update(all, train);
  update(all, test);
  return all.value();
}

}  // namespace lockstep
