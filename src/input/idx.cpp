#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/input/idx.hpp>

#include "input/file_bytes.hpp"
#include "input/file_kind.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_content = std::uint64_t{1} << 40;
constexpr std::size_t chunk_bytes = 1 << 20;

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

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  throw ConfigError{fmt::format("{}: {}", path.string(), what)};
}

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
  if (found == 0) fail(path, fmt::format("is empty; expected an IDX file of {}", format.holds));
  // A file of another kind gets this message even if it is too short for this kind's header.
  if (found >= 4 && big_endian(header.data()) != format.magic)
    fail(path, fmt::format("wrong magic number {}; expected {}", describe_magic(big_endian(header.data())),
                           describe_magic(format.magic)));
  if (found < header_bytes)
    fail(path, fmt::format("truncated: expected a header of {} bytes, found {}", header_bytes, found));

  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < format.dimensions; ++i) extents.push_back(big_endian(&header[4 + 4 * i]));
  return extents;
}

std::uint64_t content_bytes(const fs::path& path, const Format& format, const std::vector<std::int64_t>& extents) {
  if (extents[0] == 0) fail(path, fmt::format("holds no {}; expected 1 or more", format.holds));
  std::uint64_t bytes = 1;
  for (const std::int64_t extent : extents) {
    if (extent == 0)
      fail(path,
           fmt::format("its header announces {}; expected images of 1 x 1 or more", describe_content(format, extents)));
    if (bytes > largest_content / static_cast<std::uint64_t>(extent))
      fail(path, fmt::format("its header announces {}; expected at most 2^40 bytes of them",
                             describe_content(format, extents)));
    bytes *= static_cast<std::uint64_t>(extent);
  }
  return bytes;
}

Idx read_idx(const fs::path& path, const Format& format) {
  FileBytes file{path};
  Idx idx{read_extents(path, file, format), {}};
  const std::uint64_t expected = content_bytes(path, format, idx.extents);
  const std::uint64_t header_bytes = 4 + 4 * format.dimensions;
  const auto announced = [&] {
    return fmt::format("{} bytes{} (a header of {} and {})", header_bytes + expected,
                       file.packed() ? " when unpacked" : "", header_bytes, describe_content(format, idx.extents));
  };
  const auto fail_truncated = [&](std::string_view at_most, std::uint64_t found) {
    fail(path, fmt::format("truncated: expected {}, found {}{}", announced(), at_most, found));
  };

  // A header that lies costs an error message, not the memory it claims.
  if (header_bytes + expected > file.most_bytes()) fail_truncated(file.packed() ? "at most " : "", file.most_bytes());
  idx.bytes = file.room_for(expected);
  // Piece by piece: packed data may end early.
  while (idx.bytes.size() < expected) {
    const std::size_t before = idx.bytes.size();
    const std::size_t wanted = std::min<std::uint64_t>(expected - before, chunk_bytes);
    idx.bytes.resize(before + wanted);
    const std::size_t found = file.read({idx.bytes.data() + before, wanted});
    if (found < wanted) fail_truncated("", header_bytes + before + found);
  }
  std::uint8_t next;
  if (file.read({&next, 1}) != 0) fail(path, fmt::format("has trailing bytes: expected {}, found more", announced()));
  return idx;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) fail(path, fmt::format("cannot be read: {}", error.message()));
  return there;
}

fs::path find(const fs::path& directory, const std::string& name) {
  for (const fs::path& path : {directory / name, directory / (name + ".gz")})
    if (is_there(path)) return path;
  fail(directory, fmt::format("neither {0} nor {0}.gz is there; expected one of them", name));
}

struct Files {
  fs::path images;
  fs::path labels;
};

Files find_files(const fs::path& directory, const std::string& prefix) {
  return {find(directory, prefix + "-images-idx3-ubyte"), find(directory, prefix + "-labels-idx1-ubyte")};
}

void require_labels_below(std::int64_t classes, const fs::path& path, const std::vector<std::uint8_t>& labels) {
  const auto wrong = std::find_if(labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  if (wrong != labels.end())
    fail(path, fmt::format("label {} (counted from 0) is {}; expected 0 to {} (--classes {})", wrong - labels.begin(),
                           *wrong, classes - 1, classes));
}

ImageSet read_set(const Files& files, std::int64_t classes) {
  Idx images = read_idx(files.images, image_format);
  Idx labels = read_idx(files.labels, label_format);
  if (images.extents[0] != labels.extents[0])
    throw ConfigError{fmt::format("{} holds {} images, but {} holds {} labels; expected as many", files.images.string(),
                                  images.extents[0], files.labels.string(), labels.extents[0])};
  require_labels_below(classes, files.labels, labels.bytes);
  return {images.extents[1], images.extents[2], std::move(images.bytes), std::move(labels.bytes)};
}

void update(Digest& digest, const ImageSet& set) {
  // Sizes first, so that the same bytes in another shape have a different digest.
  std::vector<std::int64_t> sizes{set.count(), set.rows, set.columns};
  if (set.channels != 1) sizes.push_back(set.channels);
  for (const std::int64_t size : sizes) {
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(size >> (8 * i));
    digest.update(std::as_bytes(std::span{bytes}));
  }
  digest.update(std::as_bytes(std::span{set.pixels})).update(std::as_bytes(std::span{set.labels}));
}

}  // namespace

ImageData load_image_data(const fs::path& directory, std::int64_t classes) {
  if (classes < 1) throw ConfigError{fmt::format("--classes is {}; expected 1 or more", classes)};
  if (directory.empty()) throw ConfigError{"--data is empty; expected a directory of IDX files"};
  constexpr std::string_view expected =
      "IDX files (--data): train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
      "t10k-labels-idx1-ubyte, plain or packed (.gz)";
  if (!is_there(directory)) fail(directory, fmt::format("does not exist; expected a directory of {}", expected));
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    fail(directory, fmt::format("is not a directory; expected one of {}{}", expected, hint_for_file(directory)));

  // Looks for all files before reading any, so a missing test set is reported before the training set is read.
  const Files train = find_files(directory, "train"), test = find_files(directory, "t10k");
  ImageData data{read_set(train, classes), read_set(test, classes)};
  if (data.test.rows != data.train.rows || data.test.columns != data.train.columns)
    fail(test.images, fmt::format("its images have {} x {} pixels; expected {} x {}, as in {}", data.test.rows,
                                  data.test.columns, data.train.rows, data.train.columns, train.images.string()));
  return data;
}

ImageSet load_images(const fs::path& file) {
  if (!is_there(file)) fail(file, "does not exist; expected an IDX file of images, plain or packed (gzip)");
  Idx images = read_idx(file, image_format);
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(images.extents[0]));
  return {images.extents[1], images.extents[2], std::move(images.bytes), std::move(labels)};
}

std::uint64_t digest(const ImageData& data) {
  Digest all;
  update(all, data.train);
  update(all, data.test);
  return all.value();
}

}  // namespace lockstep
