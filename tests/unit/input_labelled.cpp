// Labelled data of whichever format: what is a data set, what of it is in memory, and what becomes of its files.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/idx.hpp>
#include <lockstep/models/input/labelled_data.hpp>

#include "apps/image_files.hpp"
#include "gzip.hpp"
#include "input_labelled_support.hpp"
#include "models/input/labelled_sets.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

TEST_CASE("IDX files have the digest that they always had, and may be streamed") {
  const ImageFiles images{{.train = 20, .test = 10, .rows = 3, .columns = 2}};
  const LabelledData data = LabelledData::load(images.path(), in_f64);
  CHECK(data.digest == ImageData::load(images.path(), 10).digest());
  CHECK(data.text == "IDX: 20 images of 3 x 2 to train on and 10 to test, 10 classes");
  check_streams(images.path());
}

TEST_CASE("what is no data set is refused with what it is") {
  const Folder folder;
  CHECK_THAT(refusal(folder), Catch::StartsWith("FOLDER: is no data set; expected a folder of IDX files"));
  CHECK_THAT(refusal(folder, "missing"), Catch::StartsWith("FOLDER/missing: does not exist; expected a folder of IDX"));
  folder.write("a.npy", npy<std::uint8_t>("|u1", "1,", {0}));
  CHECK_THAT(refusal(folder, "a.npy"),
             Catch::EndsWith("; this is an array of NumPy, expected the folder with x_train.npy and the others"));
  folder.write("book", "It was a dark night.\n");
  CHECK_THAT(refusal(folder, "book"), Catch::EndsWith("; this is a text, which trains --model gpt"));
  // A table is known by its label column, in either encoding, whatever it is called.
  folder.write("table",
               "gr\xf6\xdf"
               "e,x\n" +
                   csv_rows(30).substr(csv_rows(0).size()));
  for (const char* const column : {"gr\xc3\xb6\xc3\x9f"
                                   "e",
                                   "gr\xf6\xdf"
                                   "e"})
    CHECK(refusal(folder, "table", {.label_column = column}) == "not refused");
  CHECK_THAT(refusal(folder, "table"), Catch::StartsWith("FOLDER/table: is not a data set; expected "));
  folder.write("data_batch_1", "pickled");
  CHECK(refusal(folder) ==
        "FOLDER: is CIFAR in the version for Python; expected the binary version, with "
        "data_batch_1.bin or train.bin");
  folder.write("train.csv", csv_rows(3));
  folder.write("x_test.npy", "");
  CHECK(refusal(folder) == "FOLDER: has files of arrays of NumPy and of CSV; expected those of one data set");
}

TEST_CASE("files are kept in memory as long as they fit, and packed ones must") {
  const Folder folder{cifar_10()};
  // Two records of the first file, one of the second: the third does not fit, nor do the others.
  const LabelledData::Options options{.dtype = DType::f64, .memory_bytes = 3 * 3073};
  std::filesystem::remove(folder.path() / "data_batch_3.bin");
  folder.write("data_batch_3.bin.gz", packed(cifar({3})));
  CHECK_THROWS_WITH(LabelledData::load(folder.path(), options),
                    folder.path().string() +
                        "/data_batch_3.bin.gz: does not fit into the 0 bytes of memory that are left of --data-memory "
                        "when it is unpacked (gzip); expected an unpacked file, or a larger --data-memory");
  CHECK_NOTHROW(LabelledData::load(folder.path(), {.dtype = DType::f64, .memory_bytes = 4 * 3073}));
  for (const std::string& each : {std::string{"train.csv"}, std::string{"x_train.npy"}}) {
    const bool csv = each.ends_with("csv");
    const Folder other{csv ? Files{{"train.csv.gz", packed(csv_rows(3))}, {"test.csv", csv_rows(3)}} : arrays()};
    if (!csv) {
      std::filesystem::remove(other.path() / each);
      other.write(each + ".gz", packed(arrays()[0].second));
    }
    CHECK_THROWS_WITH(LabelledData::load(other.path(), {.memory_bytes = 20}),
                      Contains(each + ".gz: does not fit into the ") && Contains("bytes of memory that are left"));
  }
}

TEST_CASE("a file that becomes shorter while it is in use is told, and one that is removed is still there") {
  const Folder folder{cifar_10()};
  folder.write("x.csv", csv_rows(25));
  const LabelledData::Options streams{.dtype = DType::f64, .memory_bytes = 1};
  const LabelledData images = LabelledData::load(folder.path(), streams);
  const LabelledData rows = LabelledData::load(folder.path() / "x.csv", streams);
  const Samples before = samples_of(*images.train);
  std::filesystem::remove(folder.path() / "data_batch_1.bin");
  CHECK(samples_of(*images.train) == before);
  std::filesystem::resize_file(folder.path() / "data_batch_2.bin", 3000);
  CHECK_THROWS_AS(samples_of(*images.train), ConfigError);
  CHECK_THROWS_WITH(samples_of(*images.train), folder.path().string() +
                                                   "/data_batch_2.bin: has become shorter while it "
                                                   "was in use: expected a byte at 3000");
  std::fstream{folder.path() / "x.csv", std::ios::in | std::ios::out}.seekp(10) << "x";
  CHECK_THROWS_WITH(
      samples_of(*rows.train),
      folder.path().string() +
          "/x.csv: has changed while it was in use: the record at byte 8 is not the one that was checked");
}

TEST_CASE("samples without labels are read from one file, for predictions") {
  const Folder folder;
  const auto inputs = [&](const std::string& name, const std::string& content) {
    const LabelledData data = LabelledData::load_unlabelled(folder.write(name, content), in_f64);
    CHECK(data.test == nullptr);
    const Samples samples = samples_of(*data.train);
    CHECK(samples.labels == Labels(samples.labels.size()));
    return samples.inputs;
  };
  CHECK(inputs("images", big_endian(0x803) + big_endian(1) + big_endian(1) + big_endian(2) + "3f") ==
        std::vector<double>{51 / 255., 102 / 255.});
  CHECK(inputs("a", npy<double>("<f8", "2, 1", {5, 7})) == std::vector<double>{5, 7});
  CHECK(inputs("a.csv", "x,y\n1,2\n") == std::vector<double>{1, 2});
  CHECK(inputs("b.csv", "x,label,y\n1,none,2\n") == std::vector<double>{1, 2});
  CHECK(inputs("table", "x,y\n1,2\n") == std::vector<double>{1, 2});
  CHECK_THROWS_WITH(LabelledData::load_unlabelled(folder.path() / "none", {}),
                    Contains("none: does not exist; expected an IDX file"));
}

TEST_CASE("a folder is known to be one of images before a text is made of it") {
  CHECK(is_folder_of_images(Folder{cifar_10()}.path()));
  CHECK(is_folder_of_images(Folder{cifar_100()}.path()));
  CHECK(is_folder_of_images(Folder{arrays()}.path()));
  CHECK_FALSE(is_folder_of_images(Folder{{{"train.csv", csv_rows(1)}}}.path()));
  CHECK_FALSE(is_folder_of_images(Folder{{{"train.bin", "tokens"}, {"test.bin", "tokens"}}}.path()));
  CHECK_FALSE(is_folder_of_images("nowhere"));
}
