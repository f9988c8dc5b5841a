// Data sets that are wrong, one file at a time. The reader's own cases are unit tests; here is what a job makes of
// them.
#include <limits>

#include <catch2/catch.hpp>
#include <zlib.h>

#include "apps/image_files.hpp"
#include "support/labelled_files.hpp"
#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

std::string packed(const std::string& text) {
  const TemporaryDirectory folder;
  const std::string file = folder.path() / "packed";
  const gzFile out = gzopen(file.c_str(), "wb");
  REQUIRE(gzwrite(out, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(gzclose(out) == Z_OK);
  return read_file(file);
}

/// A data set that is right, but for what a test does to it.
ImageFiles small_set() {
  return ImageFiles{{.train = 20, .test = 10, .rows = 2, .columns = 3}};
}

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
  const ImageFiles data = small_set();
  CHECK(run_on(2, data.path()).exit_code == 0);
  data.remove(train_images);
  data.write(train_images + ".gz", packed(images(20, 2, 3)));
  CHECK(run_on(2, data.path()).exit_code == 0);
}

TEST_CASE("a folder without the data is refused by its name") {
  const ImageFiles data = small_set();
  const std::string missing = data.path() + "/missing";
  check_refused(run_on(2, missing), {missing + ": does not exist", "--data"});
  const std::string file = data.path() + "/" + train_images;
  check_refused(run_on(1, file),
                {file + ": is not a data set; expected a folder of IDX files (train-images-idx3-ubyte and so on), ",
                 "; this is one of the files, expected its folder: --data " + data.path()});
  check_refused(run_on(3, ""), {"--data", "expected"});
  data.remove(test_labels);
  check_refused(run_on(2, data.path()), {data.path(), test_labels, "expected one of them"});
}

TEST_CASE("a file that is wrong is refused by its name") {
  const std::string good = images(20, 2, 3);
  const std::string zipped = packed(good);
  std::string bad_label = labels(20);
  bad_label.back() = 10;
  std::string broken = zipped;
  broken[broken.size() / 2] ^= 0x55;
  const std::vector<BadFile> files{
      {train_images, "not IDX at all", {"wrong magic number", "not IDX", "expected 0x00000803"}},
      {train_images, good.substr(0, good.size() - 1), {"truncated: expected 136 bytes", "found 135"}},
      {train_images, images(19, 2, 3), {"holds 19 images", train_labels, "holds 20 labels; expected as many"}},
      {train_labels, bad_label, {"label 19 (counted from 0) is 10; expected 0 to 9 (--classes 10)"}},
      {test_images, images(10, 3, 2), {"have 3 x 2 pixels; expected 2 x 3, as in", train_images}},
      {train_images + ".gz", broken, {}},
  };
  int ranks = 0;
  for (const BadFile& bad : files) {
    INFO(bad.name << " of " << bad.contents.size() << " bytes, row " << ranks);
    const ImageFiles data = small_set();
    if (bad.name.ends_with(".gz")) data.remove(train_images);
    data.write(bad.name, bad.contents);
    std::vector<std::string> told = bad.told;
    told.push_back(data.path() + "/" + bad.name);
    check_refused(run_on(1 + ranks++ % 3, data.path()), told);
  }
}

TEST_CASE("images in colour, arrays and tables that are wrong are refused by file and place, streamed or not") {
  const auto record = [](int label) { return cifar_record({label}, [](int, int, int) { return 1; }); };
  const std::string labels = npy<std::uint8_t>("|u1", "2,", {0, 1}), right = npy<float>("<f4", "2, 1", {1, 2});
  struct BadData {
    std::vector<std::pair<std::string, std::string>> files;
    std::string wrong;  ///< file
    std::vector<std::string> told;
  };
  const std::vector<BadData> all{
      {{{"data_batch_1.bin", record(1)},
        {"data_batch_2.bin", record(2)},
        {"data_batch_3.bin", record(3)},
        {"data_batch_4.bin", record(4).substr(0, 3000)},
        {"data_batch_5.bin", record(5)},
        {"test_batch.bin", record(6)}},
       "data_batch_4.bin",
       {"holds 3000 bytes, 3000 of them in record 0 (counted from 0), which is cut short"}},
      {{{"x_train.npy", right},
        {"y_train.npy", labels},
        {"x_test.npy", npy<float>("<f4", "2, 1", {1, std::numeric_limits<float>::infinity()})},
        {"y_test.npy", labels}},
       "x_test.npy",
       {"number 0 of row 1 (both counted from 0) is inf; expected a finite number"}},
      {{{"train.csv", "label,x\n0,1\n1,abc\n"}, {"test.csv", "label,x\n0,1\n"}},
       "train.csv",
       {"train.csv:3: column \"x\" is \"abc\"; expected a number"}},
  };
  int ranks = 0;
  for (const BadData& bad : all) {
    INFO(bad.wrong);
    const TemporaryDirectory folder;
    for (const auto& [name, content] : bad.files) folder.write(name, content);
    std::vector<std::string> told = bad.told;
    told.push_back(folder.path() / bad.wrong);
    const Arguments arguments{"--data", folder.path(), "--steps", "1", "--data-memory", ranks == 0 ? "1G" : "1"};
    check_refused(run_refused(1 + ranks++ % 3, arguments), told);
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
      {small_data(), {": is a folder of images, which train --model convnet; expected text files", "--model gpt"}},
      {folder.write("short", small_text(1289)),
       {": holds 1289 bytes; expected at least 10 x (128 + 1) bytes", "holds a context of 128 and the byte after it"}},
      {folder.write("corrupt.gz", broken), {": its packed (gzip) data is corrupt"}},
  };
  int ranks = 0;
  for (const BadText& bad : texts) {
    INFO(bad.data);
    std::vector<std::string> told = bad.told;
    told.front() = bad.data + told.front();
    check_refused(run_refused(1 + ranks++ % 3, {"--model", "gpt", "--data", bad.data, "--steps", "1"}), told);
  }
}
