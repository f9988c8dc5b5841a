// Files and folders that are no data set, and the way to one that the message has.
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/text.hpp>

#include "apps/image_files.hpp"
#include "gzip.hpp"
#include "input_labelled_support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

namespace {

/// Runs a command of a message, in which FOLDER stands for the folder.
void run_in(const Folder& folder, std::string command) {
  for (std::size_t at = 0; (at = command.find("FOLDER", at)) != command.npos; at += folder.path().string().size())
    command.replace(at, 6, folder.path().string());
  const Outcome outcome = run_command({"/bin/sh", "-c", command});
  INFO(command << ": " << outcome.err);
  CHECK(outcome.exit_code == 0);
}

Files idx_files() {
  const std::string images = big_endian(0x803) + big_endian(2) + big_endian(1) + big_endian(2) + "abcd",
                    labels = big_endian(0x801) + big_endian(2) + std::string{"\0\1", 2};
  return {{"train-images-idx3-ubyte", images},
          {"train-labels-idx1-ubyte", labels},
          {"t10k-images-idx3-ubyte", images},
          {"t10k-labels-idx1-ubyte", labels}};
}

}  // namespace

TEST_CASE("a file whose name differs by a character is named with the command that renames it") {
  struct Row {
    Files files;
    std::string name, there;
  };
  const Files table{{"train.csv", csv_rows(9)}, {"test.csv", csv_rows(9)}};
  for (const Row& row : std::vector<Row>{{idx_files(), "train-images-idx3-ubyte", "train-images.idx3-ubyte"},
                                         {idx_files(), "t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyt"},
                                         {idx_files(), "train-labels-idx1-ubyte", "Train-Labels-idx1-ubyte"},
                                         {arrays(), "x_train.npy", "X_train.npy"},
                                         {arrays(), "y_test.npy", "y-test.npy"},
                                         {table, "test.csv", "tests.csv"}}) {
    INFO(row.there);
    const Folder folder{row.files};
    std::filesystem::rename(folder.path() / row.name, folder.path() / row.there);
    const std::string command = "mv FOLDER/" + row.there + " FOLDER/" + row.name;
    CHECK_THAT(refusal(folder),
               Contains("neither " + row.name + " nor " + row.name + ".gz is there; expected one of them: " + command));
    run_in(folder, command);
    CHECK(refusal(folder) == "not refused");
  }
  const Folder packed_one{idx_files()};
  std::filesystem::remove(packed_one.path() / lockstep::test::train_images);
  packed_one.write("train-images.idx3-ubyte.gz", packed(idx_files()[0].second));
  CHECK_THAT(refusal(packed_one),
             Catch::EndsWith(": mv FOLDER/train-images.idx3-ubyte.gz FOLDER/train-images-idx3-ubyte.gz"));
  // All of them.
  Folder all;
  for (const auto& [name, content] : idx_files()) {
    std::string other = name;
    other.replace(other.find("-idx"), 1, ".");
    all.write(other, content);
  }
  CHECK_THAT(refusal(all),
             Catch::StartsWith("FOLDER: is no data set; expected a folder of IDX files") &&
                 Catch::EndsWith("; mv FOLDER/train-images.idx3-ubyte FOLDER/train-images-idx3-ubyte makes "
                                 "one of IDX"));
  // What another file is, it is not meant to be.
  const Folder without{{{"y_train.npy", ""}, {"x_test.npy", ""}, {"y_test.npy", ""}}};
  CHECK(refusal(without) == "FOLDER: neither x_train.npy nor x_train.npy.gz is there; expected one of them");
}

TEST_CASE("a folder of images is told from CIFAR, and a folder with a file of another kind says which") {
  Folder folder;
  std::filesystem::create_directories(folder.path() / "train" / "cats");
  folder.write("train/cats/1.PNG", "\x89PNG\r\n\x1a\n");
  CHECK(refusal(folder) ==
        "FOLDER: is a folder of images, such as train/cats/1.PNG; expected arrays: python3 "
        "apps/examples/images_to_arrays.py FOLDER FOLDER-arrays");
  const Folder plotted{{{"iris.csv", csv_rows(20)}, {"plot.png", "\x89PNG\r\n\x1a\n"}}};
  CHECK(refusal(plotted) ==
        "FOLDER: has a table, iris.csv, beside images, such as plot.png; expected --data FOLDER/iris.csv, or arrays of "
        "the images: python3 apps/examples/images_to_arrays.py FOLDER FOLDER-arrays");
  CHECK(refusal(plotted, "iris.csv") == "not refused");
  const Folder cifar{{{"train", "pickled"}}};
  CHECK_THAT(refusal(cifar), Contains("is CIFAR in the version for Python"));
  const Folder single{{{"flowers.csv", csv_rows(20)}}};
  CHECK_THAT(refusal(single), Catch::EndsWith("; expected --data FOLDER/flowers.csv"));
  const Folder hdf5{{{"data.h5", "\x89HDF\r\n\x1a\n"}}};
  CHECK_THAT(refusal(hdf5),
             Contains("; it has data.h5; this is a file of HDF5: in Python, where it has the four arrays: "
                      "import h5py, numpy; f = h5py.File(\"FOLDER/data.h5\"); "));
  const Folder train{{{"train.csv", csv_rows(20)}}};
  CHECK(refusal(train) ==
        "FOLDER: neither test.csv nor test.csv.gz is there; expected one of them, or --data FOLDER/train.csv, of whose "
        "rows a tenth are for the test");
  CHECK(refusal(train, "train.csv") == "not refused");
}

TEST_CASE("a file of another kind is refused with what makes a table or arrays of it") {
  const Folder folder;
  const auto told = [&](const std::string& name, const std::string& content) {
    folder.write(name, content + "\x01");
    return refusal(folder, name).substr(("FOLDER/" + name + ": is ").size());
  };
  CHECK(told("x.parquet", "PAR1\x15") ==
        "a file of Parquet, not a data set: in Python: import pandas; "
        "pandas.read_parquet(\"FOLDER/x.parquet\").to_csv(\"FOLDER/x.csv\", index=False)");
  CHECK(told("x.npz", "PK\x03\x04" + std::string(26, '\1') + "x_train.npy") ==
        "an .npz file of NumPy, not a data set: in Python, where it has the four arrays: import numpy; f = "
        "numpy.load(\"FOLDER/x.npz\"); [numpy.save(n, f[n]) for n in (\"x_train\", \"y_train\", \"x_test\", "
        "\"y_test\")]");
  CHECK(told("x.xlsx", "PK\x03\x04" + std::string(26, '\1') + "docProps/app.xml") ==
        "a document of Office, such as Excel, not a data set: in Python: import pandas; "
        "pandas.read_excel(\"FOLDER/x.xlsx\").to_csv(\"FOLDER/x.csv\", index=False)");
  CHECK(told("x.zip", "PK\x03\x04" + std::string(26, '\1') + "x.csv") ==
        "a zip archive, not a data set: unzip FOLDER/x.zip");
  // Under the name of something that is read.
  folder.write_all(arrays());
  folder.write("x_train.npy", "PK\x03\x04" + std::string(26, '\1') + "x_train.npy");
  CHECK_THAT(refusal(folder),
             Contains("x_train.npy: is no .npy file, which begins with \\x93NUMPY; this is an .npz file"));
  const Folder idx{idx_files()};
  idx.write(lockstep::test::test_images, "\x89HDF\r\n\x1a\n");
  CHECK_THAT(refusal(idx),
             Contains("wrong magic number 0x89484446 (not IDX); expected ") && Contains("; this is a file of HDF5"));

  // Commands that every machine has.
  folder.write("plain.csv", csv_rows(20));
  run_in(folder, "cd FOLDER; tar cf table.tar plain.csv; rm plain.csv");
  const std::string tar = refusal(folder, "table.tar"),
                    end = ": is a tar archive, not a data set: tar xf FOLDER/table.tar";
  CHECK_THAT(tar, Catch::EndsWith(end));
  run_in(folder, "cd FOLDER; tar xf FOLDER/table.tar");
  CHECK(refusal(folder, "plain.csv") == "not refused");
  folder.write("table.gz", packed(packed(csv_rows(20))));
  CHECK_THAT(refusal(folder, "table.gz"),
             Catch::EndsWith(": is a gzip archive inside of another, not a data set: zcat < "
                             "FOLDER/table.gz > FOLDER/table.csv"));
  run_in(folder, "zcat < FOLDER/table.gz > FOLDER/table.csv");
  CHECK(LabelledData::load(folder.path() / "table.csv", {}).train->count() == 18);
  std::string wide = "\xff\xfe";
  for (const char letter : csv_rows(20)) wide += {letter, '\0'};
  folder.write("u.txt", wide);
  CHECK_THAT(refusal(folder, "u.txt"), Catch::EndsWith("a text in UTF-16, not a data set: iconv -f UTF-16 -t UTF-8 "
                                                       "FOLDER/u.txt > FOLDER/u.csv"));
  run_in(folder, "iconv -f UTF-16 -t UTF-8 FOLDER/u.txt > FOLDER/u.csv");
  CHECK(refusal(folder, "u.csv") == "not refused");
  const std::string as_text = "iconv -f UTF-16 -t UTF-8 FOLDER/u.txt > FOLDER/u-2.txt";
  CHECK_THROWS_WITH(TextData::load(folder.path() / "u.txt", {.context = 4}),
                    Contains("> " + folder.path().string() + "/u-2.txt"));
  run_in(folder, as_text);
  CHECK_NOTHROW(TextData::load(folder.path() / "u-2.txt", {.context = 4}));
  // None replaces a file, least of all the one that it reads.
  CHECK_THAT(refusal(folder, "table.gz"), Catch::EndsWith("zcat < FOLDER/table.gz > FOLDER/table-2.csv"));
}

TEST_CASE("packed data with a name, a comment, more fields, several members and zeros at the end are read") {
  const std::string table = csv_rows(30), first = table.substr(0, 40), rest = table.substr(40);
  // A header with all fields of RFC 1952: flags, time, extra field, name, comment, and the header's checksum.
  const auto with_fields = [](const std::string& content) {
    std::string member = packed(content).substr(10), header("\x1f\x8b\x08\x1e\1\2\3\4\0\3", 10);
    header += std::string("\4\0ab\0\0", 6) + std::string("name.csv\0", 9) + std::string("a comment\0", 10);
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
    header += {static_cast<char>(sum & 0xff), static_cast<char>(sum >> 8 & 0xff)};
    return header + member;
  };
  const Folder folder{{{"plain.csv", table}}};
  const auto digest = [&](const std::string& content) {
    return LabelledData::load(folder.write("x.csv", content), {}).digest;
  };
  const std::uint64_t right = LabelledData::load(folder.path() / "plain.csv", {}).digest;
  CHECK(digest(with_fields(table)) == right);
  CHECK(digest(with_fields(first) + packed("") + packed(rest)) == right);
  CHECK(digest(packed(table) + std::string(512, '\0')) == right);
  CHECK(digest(packed(first) + with_fields(rest) + std::string(100'000, '\0')) == right);
  for (const std::string& tail :
       std::vector<std::string>{"x", std::string("\0x", 2), std::string(100'000, '\0') + "x"}) {
    folder.write("x.csv", packed(table) + tail);
    CHECK(refusal(folder, "x.csv") == "FOLDER/x.csv: has trailing bytes after its packed (gzip) data");
  }
}
