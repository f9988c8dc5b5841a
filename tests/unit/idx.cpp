// IDX files, good and bad. Each is made by its test in a directory of its own.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/idx.hpp>

#include "apps/image_files.hpp"
#include "gzip.hpp"
#include "support/job.hpp"

namespace lockstep::test::idx_cases {

using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Bytes = std::string;
using lockstep::test::big_endian;
using lockstep::test::packed;

const std::string train_images = "train-images-idx3-ubyte", train_labels = "train-labels-idx1-ubyte";
const std::string test_images = "t10k-images-idx3-ubyte", test_labels = "t10k-labels-idx1-ubyte";

Bytes header(std::uint32_t magic, std::initializer_list<std::uint32_t> extents) {
  Bytes bytes = big_endian(magic);
  for (const std::uint32_t extent : extents) bytes += big_endian(extent);
  return bytes;
}

/// Pixel i of the file is i mod 251.
Bytes images(std::uint32_t count, std::uint32_t rows = 3, std::uint32_t columns = 2) {
  Bytes bytes = header(0x803, {count, rows, columns});
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes += static_cast<char>(i % 251);
  return bytes;
}

/// Label i of the file is i mod 10.
Bytes labels(std::uint32_t count) {
  Bytes bytes = header(0x801, {count});
  for (std::uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 10);
  return bytes;
}

/// A data set of 12 and 4 images of 3 x 2 pixels, in a directory that goes with it.
class DataDirectory {
 public:
  DataDirectory() {
    write(train_images, images(12));
    write(train_labels, labels(12));
    write(test_images, images(4));
    write(test_labels, labels(4));
  }

  const fs::path& path() const { return directory_.path(); }
  void write(const std::string& name, const Bytes& bytes) const { directory_.write(name, bytes); }
  void remove(const std::string& name) const { fs::remove(path() / name); }
  void pack(const std::string& name, const Bytes& content) const {
    remove(name);
    write(name + ".gz", packed(content));
  }

 private:
  lockstep::test::TemporaryDirectory directory_;
};

/// What loading it is refused with; empty if it is not.
std::string refusal(const fs::path& directory, std::int64_t classes = 10) {
  try {
    ImageData::load(directory, classes);
    return {};
  } catch (const ConfigError& error) {
    CHECK_THAT(error.what(), !Contains("\n"));
    return error.what();
  }
}

std::string refusal(const DataDirectory& data, std::int64_t classes = 10) {
  return refusal(data.path(), classes);
}

std::string refusal_of_train_images(const Bytes& bytes) {
  const DataDirectory data;
  data.write(train_images, bytes);
  const std::string message = refusal(data);
  CHECK_THAT(message, Catch::StartsWith((data.path() / train_images).string() + ": "));
  return message;
}

}  // namespace

TEST_CASE("images and labels are read as they are in the files") {
  const DataDirectory directory;
  const ImageData data = ImageData::load(directory.path(), 10);
  CHECK(data.train.count() == 12);
  CHECK(data.test.count() == 4);
  CHECK(data.train.rows == 3);
  CHECK(data.train.columns == 2);
  CHECK(data.train.features() == 6);
  REQUIRE(data.train.pixels.size() == 72);
  CHECK(data.train.pixels[0] == 0);
  CHECK(data.train.pixels[71] == 71);
  CHECK(data.train.labels == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1});
}

TEST_CASE("packed files are read like plain ones, and a plain one comes first") {
  const DataDirectory plain, mixed;
  mixed.pack(train_images, images(12));
  mixed.pack(test_labels, labels(4));
  mixed.write(test_images + ".gz", "never read");
  CHECK(ImageData::load(mixed.path(), 10).digest() == ImageData::load(plain.path(), 10).digest());
}

TEST_CASE("packed content is known by its first bytes, whatever its name, and may come in pieces") {
  const DataDirectory plain, renamed;
  const Bytes content = images(12);
  renamed.write(train_images, packed(content.substr(0, 30)) + packed(content.substr(30)));
  renamed.remove(train_labels);
  renamed.write(train_labels + ".gz", labels(12));
  CHECK(ImageData::load(renamed.path(), 10).digest() == ImageData::load(plain.path(), 10).digest());
}

TEST_CASE("files larger than the reading buffers come through whole") {
  const DataDirectory plain, gz;
  for (const auto* data : {&plain, &gz}) data->write(train_labels, labels(500));
  plain.write(train_images, images(500, 64, 50));
  gz.pack(train_images, images(500, 64, 50));
  for (const auto* data : {&plain, &gz}) {
    data->write(test_images, images(4, 64, 50));
    const ImageData::Set train = ImageData::load(data->path(), 10).train;
    REQUIRE(train.pixels.size() == 1'600'000);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < train.pixels.size(); ++i) wrong += train.pixels[i] != i % 251;
    CHECK(wrong == 0);
  }
}

TEST_CASE("the digest follows every pixel, label and size") {
  ImageData data{{2, 3, {1, 2, 3, 4, 5, 6}, {7}}, {2, 3, {0, 0, 0, 0, 0, 1}, {0}}};
  const std::uint64_t before = data.digest();
  CHECK(data.digest() == before);
  ImageData changed = data;
  changed.train.pixels[3] = 0;
  CHECK(changed.digest() != before);
  changed = data;
  changed.test.labels[0] = 1;
  CHECK(changed.digest() != before);
  changed = data;
  std::swap(changed.train.rows, changed.train.columns);
  CHECK(changed.digest() != before);
  changed = data;
  std::swap(changed.train.columns, changed.train.channels);
  CHECK(changed.train.features() == 6);
  CHECK(changed.digest() != before);
}

TEST_CASE("a data directory that is not there, or is a file, is refused by name") {
  const DataDirectory data;
  const fs::path missing = data.path() / "nowhere";
  CHECK_THAT(refusal(missing), Contains(missing.string()) && Contains("does not exist") && Contains("--data"));
  CHECK_THAT(refusal(fs::path{}), Contains("--data is empty"));
  const fs::path file = data.path() / train_images;
  CHECK_THAT(refusal(file), Contains(file.string()) && Contains("is not a directory"));
}

TEST_CASE("a file is refused with what it looks like") {
  const DataDirectory data;
  const auto told_of = [&](const char* name, const std::string& content) {
    std::ofstream{data.path() / name, std::ios::binary} << content;
    const std::string whole = refusal(data.path() / name);
    const auto end = whole.find("plain or packed (.gz)");
    REQUIRE(end != std::string::npos);
    return whole.substr(end + 21);
  };
  CHECK(told_of("book", "It was a dark and stormy n\xc3\xa4ght;\n") == "; this is a text, which trains --model gpt");
  CHECK_THAT(told_of("xz", std::string{"\xfd"
                                       "7zXZ\0..",
                                       8}),
             Catch::StartsWith("; this is an xz archive: xz -dk "));
  CHECK(told_of("bytes", std::string{"\1\2\0\3", 4}) == "");
  CHECK(told_of("empty", "") == "");
  const fs::path images = data.path() / train_images;
  CHECK_THAT(refusal(images),
             Catch::EndsWith("; this is one of the files, expected its folder: --data " + data.path().string()));
}

TEST_CASE("a missing file is refused with both names that were tried") {
  for (const auto& name : {train_images, train_labels, test_images, test_labels}) {
    const DataDirectory data;
    data.remove(name);
    CHECK_THAT(refusal(data), Contains(data.path().string()) && Contains("neither " + name + " nor " + name + ".gz"));
  }
}

TEST_CASE("what is not a regular file is refused instead of waited for") {
  const DataDirectory data;
  data.remove(train_labels);
  fs::create_directory(data.path() / train_labels);
  CHECK_THAT(refusal(data), Contains(train_labels) && Contains("is a folder, not a regular file"));
}

TEST_CASE("an empty file is refused, packed or not") {
  CHECK_THAT(refusal_of_train_images(""), Contains("is empty; expected an IDX file of images"));
  CHECK_THAT(refusal_of_train_images(packed("")), Contains("is empty"));
}

TEST_CASE("a truncated file is refused with the bytes expected and found") {
  const Bytes whole = images(12);
  CHECK_THAT(refusal_of_train_images(whole.substr(0, 3)),
             Contains("truncated: expected a header of 16 bytes, found 3"));
  CHECK_THAT(refusal_of_train_images(whole.substr(0, 15)), Contains("header of 16 bytes, found 15"));
  CHECK_THAT(refusal_of_train_images(whole.substr(0, 16)),
             Contains("truncated: expected 88 bytes (a header of 16 and 12 images of 3 x 2), found 16"));
  CHECK_THAT(refusal_of_train_images(whole.substr(0, 87)), Contains("expected 88 bytes") && Contains("found 87"));
  CHECK_THAT(refusal_of_train_images(packed(whole.substr(0, 87))),
             Contains("expected 88 bytes when unpacked") && Contains("found 87"));
  const DataDirectory data;
  data.write(train_labels, labels(12).substr(0, 18));
  CHECK_THAT(refusal(data),
             Contains(train_labels) && Contains("expected 20 bytes (a header of 8 and 12 labels), found 18"));
}

TEST_CASE("trailing bytes are refused, also behind packed data") {
  CHECK_THAT(refusal_of_train_images(images(12) + "x"), Contains("trailing bytes: expected 88 bytes"));
  CHECK_THAT(refusal_of_train_images(packed(images(12) + "x")), Contains("trailing bytes: expected 88 bytes"));
  CHECK_THAT(refusal_of_train_images(packed(images(12)) + "x"), Contains("trailing bytes after its packed"));
}

TEST_CASE("a packed file is refused wherever it was cut") {
  const Bytes whole = packed(images(12));
  const DataDirectory data;
  for (std::size_t bytes = 2; bytes < whole.size(); ++bytes) {
    data.write(train_images, whole.substr(0, bytes));
    CHECK_THAT(refusal(data), Contains(train_images) && Contains("ends early"));
  }
}

TEST_CASE("packed data that was altered is refused by its checksum") {
  Bytes bytes = packed(images(12));
  bytes[bytes.size() - 6] ^= 1;  // in the CRC-32, which is followed by four bytes of length
  CHECK_THAT(refusal_of_train_images(bytes), Contains("corrupt: incorrect data check"));
  bytes = packed(images(12));
  bytes[bytes.size() / 2] ^= 0x55;
  CHECK_THAT(refusal_of_train_images(bytes), Contains(train_images));
}

TEST_CASE("a wrong magic number is refused with both numbers and what they stand for") {
  CHECK_THAT(refusal_of_train_images(labels(12)),
             Contains("0x00000801 (labels: unsigned bytes, 1 dimension)") &&
                 Contains("expected 0x00000803 (images: unsigned bytes, 3 dimensions)"));
  CHECK_THAT(refusal_of_train_images(header(0xD03, {12, 3, 2})), Contains("0x00000d03 (32-bit floats, 3 dimensions)"));
  CHECK_THAT(refusal_of_train_images(header(0x703, {12, 3, 2})), Contains("0x07 is no element type of IDX"));
  CHECK_THAT(refusal_of_train_images("%PDF-1.7"), Contains("0x25504446 (not IDX)"));
  const DataDirectory data;
  data.write(test_labels, images(4));
  CHECK_THAT(refusal(data), Contains(test_labels) && Contains("expected 0x00000801 (labels: unsigned bytes"));
}

TEST_CASE("no images, images of no pixels and absurd sizes are refused before memory is taken") {
  CHECK_THAT(refusal_of_train_images(images(0)), Contains("holds no images"));
  CHECK_THAT(refusal_of_train_images(images(12, 0, 2)), Contains("12 images of 0 x 2; expected"));
  CHECK_THAT(refusal_of_train_images(header(0x803, {~0u, ~0u, ~0u})),
             Contains("4294967295 images of 4294967295 x 4294967295") && Contains("at most 2^40"));
  CHECK_THAT(refusal_of_train_images(header(0x803, {(1u << 20) + 1, 1u << 10, 1u << 10})), Contains("at most 2^40"));
  // 2^40 bytes are allowed, but this file does not hold them.
  CHECK_THAT(refusal_of_train_images(header(0x803, {1u << 20, 1u << 10, 1u << 10}) + "abc"),
             Contains("truncated: expected 1099511627792 bytes") && Contains("found 19"));
}

TEST_CASE("a header is compared with the size of the file, or with the most that it may unpack to, before it is read") {
  const Bytes huge = header(0x803, {1u << 20, 1u << 10, 1u << 10});
  const Bytes small = packed(huge);
  CHECK_THAT(refusal_of_train_images(small), Contains("truncated: expected 1099511627792 bytes when unpacked") &&
                                                 Contains("found at most " + std::to_string(small.size() * 1032)));

  // All of them there, as a hole in the file: more than the memory of a host.
  const auto host = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (host >= std::uint64_t{1} << 40) {
    WARN("skipped: this host has memory for 2^40 bytes");
    return;
  }
  const DataDirectory data;
  data.write(train_images, huge);
  fs::resize_file(data.path() / train_images, huge.size() + (std::uint64_t{1} << 40));
  CHECK(refusal(data) == (data.path() / train_images).string() +
                             ": needs 1099511627776 bytes of memory; expected at most the " + std::to_string(host) +
                             " that this host has");
}

TEST_CASE("images and labels of different number are refused with both files and both numbers") {
  const DataDirectory data;
  data.write(test_labels, labels(5));
  CHECK_THAT(refusal(data), Contains((data.path() / test_images).string() + " holds 4 images") &&
                                Contains((data.path() / test_labels).string() + " holds 5 labels"));
}

TEST_CASE("a label outside the classes is refused with its place, its value and what was expected") {
  const DataDirectory data;
  CHECK(refusal(data, 10).empty());
  CHECK_THAT(refusal(data, 9), Contains((data.path() / train_labels).string()) &&
                                   Contains("label 9 (counted from 0) is 9; expected 0 to 8") &&
                                   Contains("--classes 9"));
  CHECK(refusal(data, 256).empty());
  CHECK_THAT(refusal(data, 0), Contains("--classes is 0"));
}

TEST_CASE("test images of another size than the training images are refused") {
  const DataDirectory data;
  data.write(test_images, images(4, 2, 3));
  CHECK_THAT(refusal(data), Contains((data.path() / test_images).string()) && Contains("2 x 3 pixels") &&
                                Contains("expected 3 x 2, as in " + (data.path() / train_images).string()));
}

}  // namespace lockstep::test::idx_cases
