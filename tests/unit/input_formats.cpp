// Labelled data in the formats in which people have them, good and bad, in memory and streamed.
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/input/labelled_data.hpp>

#include "gzip.hpp"
#include "input_labelled_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("CIFAR-10 is read from five files, with the channels of each pixel side by side") {
  const Folder folder{cifar_10()};
  const LabelledData data = LabelledData::load(folder.path(), in_f64);
  CHECK(data.text ==
        "CIFAR-10: 6 images of 32 x 32 x 3 to train on and 2 to test, 10 classes, 4 of them without a sample to train "
        "on: \"5\", \"6\", \"7\", \"8\"");
  CHECK(data.sample == Shape{32, 32, 3});
  CHECK(data.classes == 10);
  const Samples train = samples_of(*data.train);
  CHECK(train.labels == Labels{0, 1, 2, 3, 4, 9});
  CHECK(samples_of(*data.test).labels == Labels{7, 8});
  for (int image = 0; image < 6; ++image)
    for (int position = 0; position < 32 * 32; ++position)
      for (int channel = 0; channel < 3; ++channel) {
        const double pixel = position == 32 + 2 ? 200 : 10 * channel + train.labels[static_cast<std::size_t>(image)];
        REQUIRE(train.inputs[static_cast<std::size_t>(3 * (32 * 32 * image + position) + channel)] == pixel / 255);
      }
  check_streams(folder.path());

  // Each file may be packed.
  const Folder packed_folder{cifar_10()};
  std::filesystem::remove(packed_folder.path() / "data_batch_2.bin");
  packed_folder.write("data_batch_2.bin.gz", packed(cifar({2})));
  CHECK(LabelledData::load(packed_folder.path(), in_f64).digest == data.digest);
}

TEST_CASE("CIFAR-100 is read by its fine labels, of which there are 100") {
  const Folder folder{cifar_100()};
  const LabelledData data = LabelledData::load(folder.path(), in_f64);
  CHECK(data.text ==
        "CIFAR-100: 2 images of 32 x 32 x 3 to train on and 1 to test, 100 classes, 98 of them without a sample to "
        "train on: \"0\", \"1\", \"2\", \"3\", \"4\", \"6\", \"7\", \"8\", …");
  CHECK(data.classes == 100);
  CHECK(samples_of(*data.train).labels == Labels{99, 5});
  CHECK(samples_of(*data.train).inputs[0] == 99 / 255.);
  CHECK(LabelledData::load(folder.path(), {.classes = 120}).classes == 120);
  check_streams(folder.path());
}

TEST_CASE("a folder of CIFAR that is wrong is refused with the record") {
  const auto refused = [](Files files, const std::string& name, const std::string& content,
                          LabelledData::Options options = {}) {
    files.emplace_back(name, content);
    return refusal(Folder{files}, "", options);
  };
  CHECK(refused(cifar_10(), "test_batch.bin", "") ==
        "FOLDER/test_batch.bin: is empty; expected records of 3073 bytes (a label and 1024 pixels of 3 channels)");
  CHECK(refused(cifar_10(), "data_batch_3.bin", (cifar({3}) + cifar({3})).substr(0, 6000)) ==
        "FOLDER/data_batch_3.bin: holds 6000 bytes, 2927 of them in record 1 (counted from 0), which is cut short; "
        "expected records of 3073 bytes (a label and 1024 pixels of 3 channels)");
  CHECK(refused(cifar_10(), "data_batch_3.bin", cifar({3}) + cifar({10})) ==
        "FOLDER/data_batch_3.bin: the label of record 1 (counted from 0) is 10; expected 0 to 9, as CIFAR-10 has 10 "
        "classes");
  CHECK(refused(cifar_10(), "x", "", {.classes = 9}) ==
        "FOLDER/data_batch_5.bin: the label of record 0 (counted from 0) is 9; expected 0 to 8 (--classes 9)");
  CHECK(refused(cifar_100(), "test.bin", cifar({20, 1})) ==
        "FOLDER/test.bin: the first label of record 0 (counted from 0) is 20; expected 0 to 19, the coarse label of "
        "CIFAR-100");
  CHECK(refused(cifar_100(), "test.bin", cifar({1})) ==
        "FOLDER/test.bin: holds 3073 bytes, 3073 of them in record 0 (counted from 0), which is cut short; expected "
        "records of 3074 bytes (two labels and 1024 pixels of 3 channels)");
  Files four = cifar_10();
  four.erase(four.begin() + 3);
  CHECK(refusal(Folder{four}) ==
        "FOLDER: neither data_batch_4.bin nor data_batch_4.bin.gz is there; expected one of them");
}

TEST_CASE("arrays of NumPy are read in every type, order of bytes and version") {
  const Folder folder{arrays()};
  const LabelledData data = LabelledData::load(folder.path(), in_f64);
  CHECK(data.text ==
        "arrays of NumPy: 3 rows of 2 numbers to train on and 2 to test, 5 classes, 2 of them without a sample to "
        "train on: \"2\", \"3\"");
  CHECK(data.sample == Shape{2});
  CHECK(samples_of(*data.train) == Samples{{1, 2, 3, 4, 5, 6.5}, {0, 4, 1}});
  CHECK(samples_of(*data.test) == Samples{{-1, 0, static_cast<double>(1e30F), 7}, {4, 2}});
  check_streams(folder.path());
  CHECK(samples_of<float>(*LabelledData::load(folder.path(), {}).train) == Samples{{1, 2, 3, 4, 5, 6.5}, {0, 4, 1}});

  const std::string big_endian_half("\x3f\x00\x00\x00", 4), big_endian_double("\x3f\xe0\0\0\0\0\0\0", 8);
  struct Row {
    std::string samples, labels;
    double number;
  };
  const std::string one = "|u1", of_label = npy_header(one, "1,");
  const std::vector<Row> table{
      {npy(npy_header(">f4", "1, 1"), big_endian_half), npy(of_label, "\2"), 0.5},
      {npy(npy_header(">f8", "1, 1"), big_endian_double, 2), npy(npy_header(">u2", "1, 1"), {"\0\2", 2}), 0.5},
      {npy(npy_header("<f8", "1L, 1L"), bytes_of<double>({0.1}), 3), npy(npy_header("<i4", "1,"), {"\2\0\0\0", 4}),
       0.1},
      {npy(npy_header(one, "1, 1"), "\xff"), npy(npy_header("<u8", "1,"), {"\2\0\0\0\0\0\0\0", 8}), 1},
      {npy("{\"shape\":(1,1),\"fortran_order\":False,\"descr\":\"|u1\"}", "3"), npy(npy_header("|i1", "1,"), "\2"),
       51 / 255.},
      {npy(npy_header("|u1", "1, 1", "True"), "3"), npy(npy_header("|i1", "1,", "True"), "\2"), 51 / 255.},
      {npy("{'note': {'by': ['me', (1, -2.5e3,), None], 'empty': ()}, 'descr': '|u1', 'fortran_order': False, 'shape': "
           "(1, 1), 'true': True}",
           "3"),
       npy(of_label, "\2"), 51 / 255.},
  };
  for (const Row& row : table) {
    INFO(&row - table.data());
    const Folder each{{{"x_train.npy", row.samples},
                       {"y_train.npy", row.labels},
                       {"x_test.npy", row.samples},
                       {"y_test.npy", row.labels}}};
    const LabelledData read = LabelledData::load(each.path(), in_f64);
    CHECK(samples_of(*read.train) == Samples{{row.number}, {2}});
    CHECK(read.classes == 3);
    check_streams(each.path());
  }

  const auto shape_of = [](const std::string& shape) {
    const std::string samples = npy(npy_header("|u1", shape), std::string(24, 'x')),
                      labels = npy<std::uint8_t>("|u1", "2,", {0, 1});
    const Folder each{
        {{"x_train.npy", samples}, {"y_train.npy", labels}, {"x_test.npy", samples}, {"y_test.npy", labels}}};
    return LabelledData::load(each.path(), {}).sample;
  };
  CHECK(shape_of("2, 12") == Shape{12});
  CHECK(shape_of("2, 3, 4") == Shape{3, 4});
  CHECK(shape_of("2, 3, 2, 2") == Shape{3, 2, 2});
}

TEST_CASE("an array that is wrong is refused with its place") {
  const auto refused = [](const std::string& name, const std::string& content, LabelledData::Options options = {}) {
    const Folder folder{arrays()};
    folder.write(name, content);
    const std::string message = refusal(folder, "", options);
    const std::string begin = "FOLDER/" + name + ": ";
    std::string told = message.starts_with(begin) ? message.substr(begin.size()) : message;
    // In what is said of its conversion.
    const std::string path = "\"FOLDER/" + name + "\"";
    for (std::size_t at = 0; (at = told.find(path)) != told.npos;) told.replace(at, path.size(), "\"F\"");
    return told;
  };
  const std::string good = npy<float>("<f4", "3, 2", {1, 2, 3, 4, 5, 6});
  const std::size_t header = good.size() - 24;
  struct Row {
    std::string content, told;
  };
  const std::vector<Row> samples{
      {"", "is empty; expected an .npy file"},
      {"text", "is no .npy file, which begins with \\x93NUMPY"},
      {good.substr(0, 9), "truncated: expected the 10 bytes before its header, found 9"},
      {good.substr(0, 30), "truncated: expected a header of " + std::to_string(header - 10) + " bytes, found 20"},
      {good.substr(0, good.size() - 1), "truncated: expected " + std::to_string(good.size()) + " bytes (a header of " +
                                            std::to_string(header) + " and an array [3, 2] of f4), found " +
                                            std::to_string(good.size() - 1)},
      {good + "x", "has trailing bytes: expected " + std::to_string(good.size()) + " bytes (a header of " +
                       std::to_string(header) + " and an array [3, 2] of f4), found more"},
      {npy(npy_header("<f4", "3, 2"), "", 4), "is of version 4.0 of the .npy format; expected 1.0, 2.0 or 3.0"},
      {npy(npy_header("<f4", "3, 2", "True"), ""),
       "is in Fortran order; expected C order; in Python: import numpy; numpy.save(\"F\", "
       "numpy.ascontiguousarray(numpy.load(\"F\")))"},
      {npy(npy_header("|O", "3, 2"), ""),
       "has elements of type '|O', Python objects; expected numbers of type u1 to u8, i1 to i8, f4 or f8"},
      {npy(npy_header("<f2", "3, 2"), ""),
       "has elements of type '<f2'; expected numbers of type u1 to u8, i1 to i8, f4 or f8; in Python: import numpy; "
       "numpy.save(\"F\", numpy.load(\"F\").astype(\"f4\"))"},
      {npy(npy_header("|b1", "3, 2"), ""),
       "has elements of type '|b1'; expected numbers of type u1 to u8, i1 to i8, f4 or f8; in Python: import numpy; "
       "numpy.save(\"F\", numpy.load(\"F\").astype(\"u1\"))"},
      {npy(npy_header("|f4", "3, 2"), ""),
       "has elements of type '|f4', without an order of bytes; expected numbers of type u1 to u8, i1 to i8, f4 or f8"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", ""),
       "has elements of several fields (a structured type); expected numbers; in Python: import numpy, "
       "numpy.lib.recfunctions; numpy.save(\"F\", "
       "numpy.lib.recfunctions.structured_to_unstructured(numpy.load(\"F\")))"},
      {npy("{'descr': '<f4', 'shape': (3, 2), }", ""),
       "its header has no descr, fortran_order or shape; expected {'descr': '<f4', 'fortran_order': False, 'shape': "
       "(3, 4), }"},
      {npy("{'descr': 4, 'fortran_order': False, 'shape': (3, 2), }", ""),
       "its header has no string where there should be one; expected {'descr': '<f4', 'fortran_order': False, 'shape': "
       "(3, 4), }"},
      {npy("{descr: '<f4', 'fortran_order': False, 'shape': (3, 2), }", ""),
       "its header has no string where there should be one; expected {'descr': '<f4', 'fortran_order': False, 'shape': "
       "(3, 4), }"},
      {npy("{'descr", ""),
       "its header has a string without an end; expected {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"},
      {npy("{'descr': '<f4'\n\t", ""),
       "its header has a key without a comma before it; expected {'descr': '<f4', 'fortran_order': False, 'shape': (3, "
       "4), }"},
      {npy(npy_header("<f4", "3, -2"), ""),
       "its header has an extent that is no number; expected {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), "
       "}"},
      {npy(npy_header("<f4", "0, 2"), ""), "its shape is [0, 2]; expected 1 or more of each"},
      {npy(npy_header("<f4", "1099511627776, 2"), ""),
       "its shape is [1099511627776, 2], of f4; expected at most 2^40 bytes"},
      {npy<std::int32_t>("<i4", "3, 2", {1, 2, 3, 4, 5, 6}),
       "has numbers of type i4; expected u1, which are scaled to [0, 1], or f4 or f8; in Python: import numpy; "
       "numpy.save(\"F\", numpy.load(\"F\").astype(\"f8\"))"},
      {npy<float>("<f4", "3,", {1, 2, 3}),
       "its shape is [3]; expected [n, numbers], [n, rows, columns] or [n, rows, columns, channels]"},
      {npy<float>("<f4", "3, 2", {1, 2, 3, NAN, 5, 6}),
       "number 1 of row 1 (both counted from 0) is nan; expected a finite number of 32 bits; in Python: import numpy; "
       "x, y = numpy.load(\"F\"), "
       "numpy.load(\"FOLDER/y_train.npy\"); k = numpy.isfinite(x).reshape(len(x), -1).all(1); numpy.save(\"F\", x[k]); "
       "numpy.save(\"FOLDER/y_train.npy\", y[k])"},
      {npy<float>("<f4", "3, 2", {1, INFINITY, NAN, NAN, 5, 6}),
       "number 1 of row 0 (both counted from 0) is inf, with 2 more in 2 of the 3 rows from there on; expected a "
       "finite "
       "number of 32 bits; in Python: import numpy; x, y = numpy.load(\"F\"), "
       "numpy.load(\"FOLDER/y_train.npy\"); k = numpy.isfinite(x).reshape(len(x), -1).all(1); numpy.save(\"F\", x[k]); "
       "numpy.save(\"FOLDER/y_train.npy\", y[k])"},
  };
  for (const Row& row : samples) CHECK(refused("x_train.npy", row.content) == row.told);
  CHECK(refused("x_test.npy", npy<float>("<f4", "2, 3", {1, 2, 3, 4, 5, 6})) ==
        "is [2, 3], f4; expected samples [2] of f4, as in FOLDER/x_train.npy");

  // A number that only f64 can hold.
  Files wide = arrays();
  wide[0].second = npy<double>("<f8", "3, 2", {1, 2, 3, 4, 5, 1e300});
  wide[2].second = npy<double>("<f8", "2, 2", {1, 2, 3, 4});
  CHECK(refusal(Folder{wide}) ==
        "FOLDER/x_train.npy: number 1 of row 2 (both counted from 0) is inf; expected a finite number of 32 bits, "
        "or --dtype f64");
  CHECK(refusal(Folder{wide}, "", in_f64) == "not refused");

  const std::vector<Row> labels{
      {npy<std::int32_t>("<i4", "3,", {0, -1, 1}), "label 1 (counted from 0) is -1; expected 0 to 65535"},
      {npy<std::uint64_t>("<u8", "3,", {0, 1, ~std::uint64_t{0}}),
       "label 2 (counted from 0) is 9223372036854775807; expected 0 to 65535"},
      {npy<std::int32_t>("<i4", "2,", {0, 1}),
       "holds 2 labels, but FOLDER/x_train.npy holds 3 samples; expected as many"},
      {npy<float>("<f4", "3,", {0, 1, 2}),
       "has labels of type f4; expected integers; in Python: import numpy; numpy.save(\"F\", "
       "numpy.load(\"F\").astype(\"i8\")) where they are whole, or a table for --task regression"},
      {npy(npy_header("<U5", "3,"), ""),
       "has elements of type '<U5'; expected numbers of type u1 to u8, i1 to i8, f4 or f8; in Python: import numpy; "
       "a = numpy.load(\"F\"); b = numpy.load(\"FOLDER/y_test.npy\"); n = numpy.unique(numpy.append(a, b)); "
       "numpy.save(\"F\", numpy.searchsorted(n, a)); numpy.save(\"FOLDER/y_test.npy\", numpy.searchsorted(n, b))"},
      {npy<std::uint8_t>("|u1", "3, 2", {0, 1, 2, 3, 4, 5}),
       "its shape is [3, 2]; expected [n], a label for each sample; in Python: import numpy; numpy.save(\"F\", "
       "numpy.load(\"F\").argmax(1)) where the largest marks the class"},
  };
  for (const Row& row : labels) CHECK(refused("y_train.npy", row.content) == row.told);
  CHECK(refused("y_test.npy", npy<std::int64_t>("<i8", "2,", {0, 5})) ==
        "label 1 (counted from 0) is 5; expected 0 to 4, as in FOLDER/y_train.npy");
  CHECK(refused("y_test.npy", npy<std::int64_t>("<i8", "2,", {0, 5}), {.classes = 5}) ==
        "label 1 (counted from 0) is 5; expected 0 to 4 (--classes 5)");
}

TEST_CASE("a CSV file is read by its header, and a tenth of its rows is the test set") {
  const std::string two_rows = "a,label,\"b, c\"\r\n1,0, 2.5 \r\n-3e2,2,\"+4\"\r\n\r\n";
  const Folder folder{{{"data.csv", csv_rows(25)}, {"train.csv", two_rows}, {"test.csv", two_rows}}};
  const LabelledData file = LabelledData::load(folder.path() / "data.csv", in_f64);
  CHECK(file.text == "CSV: 23 rows of 1 number to train on and 2 to test, 3 classes");
  CHECK(samples_of(*file.test) == Samples{{4, 12}, {1, 0}});
  CHECK(samples_of(*file.train).inputs[22] == 24);
  check_streams(folder.path() / "data.csv");

  const LabelledData both = LabelledData::load(folder.path(), in_f64);
  CHECK(samples_of(*both.train) == Samples{{1, 2.5, -300, 4}, {0, 2}});
  CHECK(samples_of(*both.test) == samples_of(*both.train));
  CHECK(both.classes == 3);
  check_streams(folder.path());

  // By another column, without a line break at the end, behind a byte order mark, packed; and a name that says nothing.
  folder.write(
      "other.csv", "\xef\xbb\xbf" + std::string{"x,class"} + [] {
        std::string lines;
        for (int i = 0; i < 10; ++i) lines += "\n0.5," + std::to_string(i / 4);
        return lines;
      }());
  const LabelledData other =
      LabelledData::load(folder.path() / "other.csv", {.dtype = DType::f64, .label_column = "class"});
  CHECK(samples_of(*other.test) == Samples{{0.5}, {1}});
  CHECK(LabelledData::load(folder.write("table", packed(csv_rows(25))), in_f64).digest == file.digest);
}

TEST_CASE("a CSV file that is wrong is refused with its line") {
  const Folder folder;
  const auto refused = [&](const std::string& content, LabelledData::Options options = {}) {
    folder.write("x.csv", content);
    return refusal(folder, "x.csv", options);
  };
  const std::string good = csv_rows(20);
  CHECK(refused(good) == "not refused");
  CHECK(refused("") == "FOLDER/x.csv: is empty; expected a header, with the names of its columns");
  CHECK(refused("label,x\n") == "FOLDER/x.csv: holds no rows after its header; expected 1 or more");
  CHECK(refused(good + "1,abc\n") == "FOLDER/x.csv:22: column \"x\" is \"abc\"; expected a number");
  CHECK(refused(good + "1,\n") == "FOLDER/x.csv:22: column \"x\" is \"\"; expected a number");
  const std::string broken = "has a line break inside quotes, or a quote without an end; expected a record on one line";
  CHECK(refused(good + "1,\"2\n3\"\n1,2\n") == "FOLDER/x.csv:22: " + broken);
  CHECK(refused("label,\"x\n\"\n1,2\n") == "FOLDER/x.csv:1: " + broken);
  const std::string zero = ": has a zero byte; expected text in UTF-8";
  CHECK(refused(good + "1,2" + '\0' + "\n") == "FOLDER/x.csv:22" + zero);
  CHECK(refused(good + "1,1e99\n") ==
        "FOLDER/x.csv:22: column \"x\" is \"1e99\"; expected a finite number of 32 bits, or --dtype f64");
  CHECK(refused(good + "1,nan\n", in_f64) == "FOLDER/x.csv:22: column \"x\" is \"nan\"; expected a finite number");
  CHECK(refused(good, {.classes = 2}) ==
        "FOLDER/x.csv:4: column \"label\" is \"2\"; expected a class from 0 to 1 (--classes 2)");
  CHECK(refused(good + "1\n") == "FOLDER/x.csv:22: has 1 fields; expected 2, as the header has");
  CHECK(refused(good + "1,2,3\n") ==
        "FOLDER/x.csv:22: has 3 fields; expected 2, as the header has; R writes a name before each row unless "
        "row.names = FALSE");
  CHECK(refused(good + "\n\r\n1,2\n") ==
        "FOLDER/x.csv:22: is empty; expected a record, or nothing but empty lines up to the end");
  CHECK(refused(good + "1,\"2") == "FOLDER/x.csv:22: a quoted field has no end");
  CHECK(refused(good + "1,\"2\"3\n") == "FOLDER/x.csv:22: a quoted field is followed by something other than a comma");
  CHECK(
      refused("a,b\n1,2\n") ==
      "FOLDER/x.csv:1: has no column \"label\" among its columns \"a\", \"b\"; expected one with the label of each row "
      "(--label-column)");
  CHECK(refused("label\n1\n") == "FOLDER/x.csv:1: has no column besides the label; expected one or more of numbers");
  CHECK(refused("label,label\n1,2\n") == "FOLDER/x.csv:1: has several columns \"label\"; expected one");

  const Folder two{{{"train.csv", csv_rows(3)}, {"test.csv", "y,label\n1,0\n"}}};
  CHECK(
      refusal(two) ==
      "FOLDER/test.csv:1: has no column \"x\", and the surplus column \"y\"; expected the columns of FOLDER/train.csv, "
      "in any order");
  two.write("test.csv", "label,x\n3,0\n");
  CHECK(refusal(two) ==
        "FOLDER/test.csv:2: column \"label\" is \"3\"; expected a class from 0 to 2, as in FOLDER/train.csv");
}
