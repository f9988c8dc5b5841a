// Data sets that are wrong, one file at a time. The reader's own cases are unit tests; here is what a job makes of
// them.
#include <functional>

#include <catch2/catch.hpp>
#include <zlib.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string images(std::uint32_t count, std::uint32_t rows = 2, std::uint32_t columns = 3) {
  std::string pixels(std::size_t{count} * rows * columns, '\0');
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i * 37);
  return big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns) + pixels;
}

std::string labels(std::uint32_t count) {
  std::string classes(count, '\0');
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<char>(i % 10);
  return big_endian(0x801) + big_endian(count) + classes;
}

std::string packed(const std::string& text) {
  const TemporaryDirectory folder;
  const std::string file = folder.path() / "packed";
  const gzFile out = gzopen(file.c_str(), "wb");
  REQUIRE(gzwrite(out, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(gzclose(out) == Z_OK);
  return read_file(file);
}

const std::string train_images = "train-images-idx3-ubyte";
const std::string train_labels = "train-labels-idx1-ubyte";
const std::string test_images = "t10k-images-idx3-ubyte";
const std::string test_labels = "t10k-labels-idx1-ubyte";

/// A data set that is right, 20 and 10 images of 2 x 3, but for what a test does to it.
class DataSet {
 public:
  DataSet() {
    folder_.write(train_images, images(20));
    folder_.write(train_labels, labels(20));
    folder_.write(test_images, images(10));
    folder_.write(test_labels, labels(10));
  }
  void write(const std::string& name, const std::string& contents) const { folder_.write(name, contents); }
  void remove(const std::string& name) const { std::filesystem::remove(folder_.path() / name); }
  std::string path() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

Outcome run_on(int ranks, const std::string& data) {
  return run_refused(ranks, {"--data", data, "--hidden", "4", "--steps", "2"});
}

/// One file of the set replaced.
struct BadFile {
  std::string name;
  std::string contents;
  std::vector<std::string> told;
};

}  // namespace

TEST_CASE("a data set of other sizes, plain or packed, is trained on") {
  const DataSet data;
  CHECK(run_on(2, data.path()).exit_code == 0);
  data.remove(train_images);
  data.write(train_images + ".gz", packed(images(20)));
  CHECK(run_on(2, data.path()).exit_code == 0);
}

TEST_CASE("a folder without the data is refused by its name") {
  const DataSet data;
  const std::string missing = data.path() + "/missing";
  check_refused(run_on(2, missing), {missing + ": does not exist", "--data"});
  const std::string file = data.path() + "/" + train_images;
  check_refused(run_on(1, file), {file + ": is not a directory; expected one of IDX files (--data)"});
  check_refused(run_on(3, ""), {"--data", "expected"});
  for (const std::string& name : {train_images, train_labels, test_images, test_labels}) {
    const DataSet incomplete;
    incomplete.remove(name);
    check_refused(run_on(2, incomplete.path()), {incomplete.path(), name, "expected one of them"});
  }
}

TEST_CASE("a file that is wrong is refused by its name") {
  const std::string good = images(20);
  const std::string zipped = packed(good);
  std::string bad_label = labels(20);
  bad_label.back() = 10;
  std::string broken = zipped;
  broken[broken.size() / 2] ^= 0x55;
  const std::vector<BadFile> files{
      {train_images, "", {"is empty", "expected an IDX file of images"}},
      {train_images, "not IDX at all", {"wrong magic number", "not IDX", "expected 0x00000803"}},
      {train_images, labels(20), {"wrong magic number 0x00000801 (labels", "expected 0x00000803 (images"}},
      {train_images, good.substr(0, 10), {"truncated: expected a header of 16 bytes, found 10"}},
      {train_images, good.substr(0, good.size() - 1), {"truncated: expected 136 bytes", "found 135"}},
      {train_images, good + "x", {"has trailing bytes: expected 136 bytes"}},
      {train_images, images(0), {"holds no images; expected 1 or more"}},
      {train_images, big_endian(0x803) + big_endian(20) + big_endian(0) + big_endian(3), {"20 images of 0 x 3"}},
      {train_images, big_endian(0x803) + std::string(12, '\xff'), {"4294967295 x 4294967295", "at most 2^40 bytes"}},
      {train_images, images(19), {"holds 19 images", train_labels, "holds 20 labels; expected as many"}},
      {train_labels, bad_label, {"label 19 (counted from 0) is 10; expected 0 to 9 (--classes 10)"}},
      {train_labels, labels(21), {"holds 20 images", "holds 21 labels; expected as many"}},
      {test_images, images(10, 3, 2), {"have 3 x 2 pixels; expected 2 x 3, as in", train_images}},
      {test_labels, "", {"is empty", "expected an IDX file of labels"}},
      {test_labels, labels(9), {"holds 10 images", "holds 9 labels"}},
      {train_images + ".gz", "plain", {}},
      {train_images + ".gz", zipped.substr(0, zipped.size() / 2), {}},
      {train_images + ".gz", broken, {}},
  };
  int ranks = 0;
  for (const BadFile& bad : files) {
    INFO(bad.name << " of " << bad.contents.size() << " bytes, row " << ranks);
    const DataSet data;
    if (bad.name.ends_with(".gz")) data.remove(train_images);
    data.write(bad.name, bad.contents);
    std::vector<std::string> told = bad.told;
    told.push_back(data.path() + "/" + bad.name);
    check_refused(run_on(1 + ranks++ % 3, data.path()), told);
  }
}

TEST_CASE("--classes below the labels is refused by file, place and option") {
  check_refused(run_refused(2, short_run() + Arguments{"--classes", "5"}),
                {"train-labels-idx1-ubyte.gz: label 0 (counted from 0) is 9; expected 0 to 4 (--classes 5)"});
}

TEST_CASE("a text is trained on, plain or packed") {
  const TemporaryDirectory folder;
  const auto trains = [](const std::string& data, const char* context) {
    return run_job(2, {"--model", "gpt", "--data", data, "--context", context, "--steps", "1"}).exit_code == 0;
  };
  CHECK(trains(folder.write("shortest", small_text(1290)), "128"));
  CHECK(trains(folder.write("packed", packed(small_text(2000))), "16"));
}

TEST_CASE("a text that is wrong is refused by its name") {
  const TemporaryDirectory folder;
  const std::string zipped = packed(small_text(20000));
  std::string broken = zipped;
  broken[broken.size() / 2] ^= 0x55;
  struct BadText {
    std::string data;
    std::vector<std::string> told;
  };
  const std::vector<BadText> texts{
      {folder.path() / "missing", {": does not exist; expected a text file, plain or packed (gzip)"}},
      {folder.path(), {": is a folder; expected a text file", "--model gpt"}},
      {small_data(), {": is a folder; expected a text file"}},
      {"/dev/null", {": is not a regular file"}},
      {folder.write("empty", ""), {": is empty; expected at least 10 x (128 + 1) bytes of text"}},
      {folder.write("short", small_text(1289)),
       {": holds 1289 bytes; expected at least 10 x (128 + 1) bytes", "holds a context of 128 and the byte behind it"}},
      {folder.write("cut.gz", zipped.substr(0, zipped.size() / 2)), {": truncated: its packed (gzip) data ends early"}},
      {folder.write("corrupt.gz", broken), {": its packed (gzip) data is corrupt"}},
      {folder.write("followed.gz", zipped + "more"), {": has trailing bytes after its packed (gzip) data"}},
  };
  int ranks = 0;
  for (const BadText& bad : texts) {
    INFO(bad.data);
    std::vector<std::string> told = bad.told;
    told.front() = bad.data + told.front();
    check_refused(run_refused(1 + ranks++ % 3, {"--model", "gpt", "--data", bad.data, "--steps", "1"}), told);
  }
}
