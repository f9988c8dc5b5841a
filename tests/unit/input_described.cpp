// Data that a schema describes, and data that are read by one.
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/input/text.hpp>

#include "apps/image_files.hpp"
#include "models/input/text_sets.hpp"
#include "support/job.hpp"
#include "support/labelled_files.hpp"
#include "support/loaded_text.hpp"

namespace lockstep::test::input_described_cases {

using Catch::Contains;

namespace {

using Names = std::vector<std::string>;
using Split = DataSchema::Split;

const std::string flowers = "length,width,label\n1,2,rose\n3,4,aster\n5,6,rose\n7,8,lily\n";

/// As the files of one folder, which train and test.
std::string data_of(const TemporaryDirectory& folder, const std::string& train, const std::string& test) {
  folder.write("train.csv", train);
  folder.write("test.csv", test);
  return folder.path();
}

struct Loaded {
  std::vector<double> inputs;
  std::vector<std::int32_t> labels;
  bool operator==(const Loaded&) const = default;
};

Loaded all_of(const SampleSource& source) {
  SampleBatch batch = source.make_batch(source.count(), Stream::host());
  std::vector<std::int64_t> all(static_cast<std::size_t>(source.count()));
  std::iota(all.begin(), all.end(), 0);
  source.fill(all, batch);
  return {batch.inputs.to_vector<double>(), batch.labels.to_vector<std::int32_t>()};
}

LabelledData::Options by(const DataSchema& schema) {
  return {.dtype = DType::f64, .schema = schema};
}

/// What is told of data under these options, without the folder's name.
std::string told(const TemporaryDirectory& folder, const std::string& name, const LabelledData::Options& options) {
  try {
    (void)LabelledData::load(folder.path() / name, options);
  } catch (const ConfigError& error) {
    std::string message = error.what();
    for (std::size_t at = 0; (at = message.find(folder.path().string() + "/")) != message.npos;)
      message.erase(at, folder.path().string().size() + 1);
    return message;
  }
  return "not refused";
}

std::string sorted_rows(int classes, int of_each) {
  std::string text = "x,label\n";
  for (int i = 0; i < classes * of_each; ++i) text += fmt::format("{},{}\n", i, i / of_each);
  return text;
}

}  // namespace

TEST_CASE("data are described by a schema") {
  const TemporaryDirectory folder;
  const LabelledData table = LabelledData::load(data_of(folder, flowers, flowers), {});
  CHECK(table.schema == DataSchema{.kind = "CSV",
                                   .sample = {2},
                                   .columns = {"length", "width"},
                                   .label_column = "label",
                                   .classes = {"aster", "lily", "rose"}});
  CHECK(table.text == "CSV: 4 rows of 2 numbers to train on and 4 to test, 3 classes (\"aster\", \"lily\", \"rose\")");
  CHECK(all_of(*LabelledData::load(folder.path(), by(table.schema)).train) ==
        Loaded{{1, 2, 3, 4, 5, 6, 7, 8}, {2, 0, 2, 1}});
  folder.write("one.csv", sorted_rows(2, 10));
  const DataSchema one = LabelledData::load(folder.path() / "one.csv", {}).schema;
  CHECK(one.split == Split::hash);
  CHECK(one.test_fraction == 0.1);
  CHECK(one.classes == Names{"0", "1"});

  const TemporaryDirectory of_arrays;
  for (const char* const part : {"train", "test"}) {
    of_arrays.write(fmt::format("x_{}.npy", part), npy<std::uint8_t>("|u1", "2, 1, 2", {1, 2, 3, 4}));
    of_arrays.write(fmt::format("y_{}.npy", part), npy<std::uint8_t>("|u1", "2,", {0, 1}));
  }
  CHECK(LabelledData::load(of_arrays.path(), {.classes = 3}).schema == DataSchema{.kind = "arrays of NumPy",
                                                                                  .sample = {1, 2},
                                                                                  .numbers = DataSchema::Numbers::bytes,
                                                                                  .classes = {"0", "1", "2"}});

  folder.write("text", std::string(100, 'x'));
  CHECK(load_text_sets(folder.path() / "text", {.context = 2}).schema ==
        DataSchema{.kind = "text", .split = Split::last, .test_fraction = 0.1});
}

TEST_CASE("columns are found by name in any order, with the same numbers, labels and digest") {
  const TemporaryDirectory folder, turned;
  const LabelledData data =
      LabelledData::load(data_of(folder, flowers, "label,width,length\nlily,1,2\n"), {.dtype = DType::f64});
  CHECK(all_of(*data.test) == Loaded{{2, 1}, {1}});
  const std::string other = "width,label, length\n2,rose,1\n4,aster,3\n6,rose,5\n8,lily,7\n";
  (void)data_of(turned, other, "label,width,length\nlily,1,2\n");
  for (const std::uint64_t memory : {1 << 20, 1}) {
    LabelledData::Options options = by(data.schema);
    options.memory_bytes = memory;
    const LabelledData same = LabelledData::load(turned.path(), options);
    CHECK(all_of(*same.train) == all_of(*data.train));
    CHECK(same.digest == data.digest);
    CHECK(same.schema == data.schema);
    CHECK(LabelledData::load(folder.path(), options).digest == data.digest);
  }
  CHECK(LabelledData::load(turned.path(), {}).digest != data.digest);

  // The label may be there or not where it is not read.
  for (const char* const text : {"width,length\n2,1\n", "label,width,length\nnone,2,1\n"})
    CHECK(all_of(*LabelledData::load_unlabelled(folder.write("x.csv", text), by(data.schema)).train) ==
          Loaded{{1, 2}, {0}});
  CHECK_THROWS_WITH(LabelledData::load_unlabelled(folder.write("x.csv", "width,long\n2,1\n"), by(data.schema)),
                    Contains("x.csv:1: has no column \"length\", and the surplus column \"long\"; expected"));
}

TEST_CASE("a table that is not the model's is refused with the names of columns, or the label") {
  const TemporaryDirectory folder;
  const DataSchema schema = LabelledData::load(data_of(folder, flowers, flowers), {}).schema;
  const auto refused = [&](const std::string& content) {
    folder.write("x.csv", content);
    return told(folder, "x.csv", by(schema));
  };
  const std::string expected = "; expected the columns on which the model was trained, in any order";
  CHECK(refused("label,width\nrose,1\n") == "x.csv:1: has no column \"length\"" + expected);
  CHECK(refused("label,other,width,length,b,c,d,e,f,g,h,i,j\n") ==
        "x.csv:1: has the surplus columns \"other\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", …" + expected);
  CHECK(refused("label,width,Length\n") ==
        "x.csv:1: has no column \"length\", and the surplus column \"Length\"" + expected);
  CHECK_THAT(refused("width,length\n1,2\n"), Contains("has no column \"label\" among its columns"));
  CHECK(refused("label,width,length\nrose,1,2\ncow,1,2\n") ==
        "x.csv:3: column \"label\" is \"cow\"; expected one of the classes \"aster\", \"lily\", \"rose\", as the model "
        "has 3 classes");
  CHECK_THAT(refused("label,width,length\n0,1,2\n"), Contains("x.csv:2: column \"label\" is \"0\"; expected one of"));
  CHECK_THAT(refused("label,width,length\n,1,2\n"), Contains("x.csv:2: column \"label\" is \"\"; expected one of"));
  CHECK_THAT(refused("label,width,length\nrose,1,two\n"), Contains("column \"length\" is \"two\"; expected a number"));

  DataSchema numbers = schema;
  numbers.classes = {"0", "1"};
  folder.write("x.csv", "label,width,length\n1.0,1,2\n");
  CHECK(told(folder, "x.csv", by(numbers)) ==
        "x.csv:2: column \"label\" is \"1.0\"; expected a class from 0 to 1, as the model has 2 classes");
  LabelledData::Options contradicts = by(schema);
  contradicts.classes = 4;
  CHECK(told(folder, "x.csv", contradicts) == "--classes is 4; the model has 3");
}

TEST_CASE("labels are numbers if all are, or else names, and what is missing is no label") {
  const TemporaryDirectory folder;
  const auto classes = [&](const std::string& labels, std::optional<std::int64_t> count = {}) {
    std::string text = "x,label\n";
    for (std::size_t at = 0; at < labels.size(); ++at) text += fmt::format("1,{}\n", labels[at]);
    return LabelledData::load(data_of(folder, text, text), {.classes = count}).schema.classes;
  };
  CHECK(classes("0201") == Names{"0", "1", "2"});
  CHECK(classes("0201", 4) == Names{"0", "1", "2", "3"});
  CHECK(classes("b2ba") == Names{"2", "a", "b"});
  const std::string latin = "x,label\n1,\xe9t\xe9\n1,hiver\n", utf8 = "x,label\n1,été\n1,hiver\n";
  CHECK(LabelledData::load(data_of(folder, latin, utf8), {}).schema.classes == Names{"hiver", "été"});

  // Ranks that know classes by other names have other data.
  const auto digest = [&](const std::string& text) {
    return LabelledData::load(data_of(folder, text, text), {}).digest;
  };
  CHECK(digest("x,label\n1,a\n1,b\n") != digest("x,label\n1,a\n1,c\n"));

  const auto refused = [&](const std::string& rows, std::optional<std::int64_t> count = {}) {
    folder.write("x.csv", "x,label\n" + rows);
    return told(folder, "x.csv", {.classes = count});
  };
  const std::string expected = "; expected a class: a whole number from 0, or a name",
                    or_number = ", or --task regression, which predicts numbers";
  for (const std::string missing : {"", "nan", "NaN", "N/A", "null", "<NA>"})
    CHECK(refused("1,a\n1," + missing + "\n") == "x.csv:3: column \"label\" is \"" + missing + "\"" + expected);
  for (const std::string number : {"1.5", "inf", "1e999", "1e-999"})
    CHECK_THAT(refused("1,a\n1," + number + "\n"),
               Catch::StartsWith("x.csv:3: column \"label\" is \"" + number + "\"" + expected + or_number));
  CHECK(refused("1,1.0\n1,2.0\n") == "x.csv:2: column \"label\" is \"1.0\"" + expected + or_number +
                                         "; whole numbers are written without a point (astype(int) in pandas)");
  CHECK(refused("1,a\n2,a\n") == "x.csv: column \"label\" is \"a\" in every row; expected two classes or more");
  CHECK(refused("1,1\n2,1\n", 4) == "x.csv: column \"label\" is \"1\" in every row; expected two classes or more");
  CHECK(refused("1,a\n2,b\n1,c\n", 4) ==
        "x.csv: column \"label\" has 3 classes, \"a\", \"b\", \"c\"; expected 4 (--classes 4)");
  CHECK(refused("1,a b\n2,a  b\n") ==
        "x.csv: column \"label\" has the classes \"a  b\", \"a b\", which differ only in blanks; expected names that "
        "differ");
  CHECK(refused("1,0\n2,70000\n3,65536\n") ==
        "x.csv:3: column \"label\" is \"70000\"; expected a class from 0 to 65535" + or_number);
}

TEST_CASE("columns of one name are refused, and of names that differ only in blanks") {
  const TemporaryDirectory folder;
  const auto refused = [&](const std::string& header) {
    folder.write("x.csv", header + "\n1,2,3\n");
    return told(folder, "x.csv", {});
  };
  CHECK(refused("a,label,a") == "x.csv:1: has several columns \"a\"; expected one");
  CHECK(refused("a b,label,\" a  b\"") ==
        "x.csv:1: has the columns \"a b\", \" a  b\", which differ only in blanks; expected names that differ");
}

TEST_CASE("a row of one file is for the test by its number alone, and each class has its share") {
  const TemporaryDirectory folder;
  const auto load = [&](const std::string& text, double fraction = 0.1) {
    return LabelledData::load(folder.write("x.csv", text), {.dtype = DType::f64, .test_fraction = fraction});
  };
  const LabelledData data = load(sorted_rows(8, 40));
  CHECK(data.train->count() + data.test->count() == 320);
  std::vector<int> tested(8);
  for (const std::int32_t label : all_of(*data.test).labels) ++tested[static_cast<std::size_t>(label)];
  for (const int count : tested) CHECK((3 <= count && count <= 5));

  // More rows leave the earlier ones where they are.
  const Loaded before = all_of(*load(sorted_rows(2, 20)).test), after = all_of(*load(sorted_rows(2, 30)).test);
  for (std::size_t i = 0; i < before.inputs.size(); ++i) CHECK(before.inputs[i] == after.inputs[i]);
  CHECK(all_of(*load(sorted_rows(2, 3)).test).inputs == std::vector<double>{4});
  CHECK(std::abs(load(sorted_rows(2, 500), 0.25).test->count() - 250) <= 1);

  folder.write("x.csv", sorted_rows(2, 2));
  CHECK(told(folder, "x.csv", {}) ==
        "x.csv: holds 4 rows, of which 0 are for the test; expected 1 or more to train on and to test (--test-fraction "
        "0.1)");
  CHECK(told(folder, "x.csv", {.test_fraction = 1}) == "--test-fraction is 1; expected a number between 0 and 1");
  CHECK_THROWS_AS(LabelledData::load(folder.path() / "x.csv", {.split = Split::files}), InvalidArgument);

  // As the last rows, if the schema says so.
  DataSchema schema = load(sorted_rows(2, 10)).schema;
  CHECK(schema.test_fraction == 0.1);
  schema.split = Split::last;
  folder.write("x.csv", sorted_rows(2, 10));
  const LabelledData last = LabelledData::load(folder.path() / "x.csv", by(schema));
  CHECK(all_of(*last.test) == Loaded{{18, 19}, {1, 1}});
  CHECK(last.schema == schema);
}

TEST_CASE("samples of another shape, or scaled in another way, are refused, and another kind of file is not") {
  const TemporaryDirectory folder;
  const DataSchema model{.kind = "IDX",
                         .sample = {2, 3},
                         .numbers = DataSchema::Numbers::bytes,
                         .classes = {"0", "1"},
                         .split = Split::files};
  const auto refused = [&](const std::string& content) -> std::string {
    const std::string file = folder.write("x.npy", content);
    try {
      return describe(LabelledData::load_unlabelled(file, by(model)).sample);
    } catch (const ConfigError& error) {
      return std::string{error.what()}.substr(file.size());
    }
  };
  const std::vector<std::uint8_t> bytes(12);
  CHECK(refused(npy<std::uint8_t>("|u1", "2, 2, 3", bytes)) == "[2, 3]");
  CHECK(refused(npy<std::uint8_t>("|u1", "2, 3, 2", bytes)) ==
        ": holds images of 3 x 2; expected images of 2 x 3, on which the model was trained");
  CHECK(refused(npy<std::uint8_t>("|u1", "2, 6", bytes)) ==
        ": holds rows of 6 numbers; expected images of 2 x 3, on which the model was trained");
  CHECK(refused(npy<float>("<f4", "1, 2, 3", std::vector<float>(6))) ==
        ": holds numbers of 32 or 64 bits, taken as they are; expected 8-bit numbers, scaled to [0, 1], on which the "
        "model was trained");
  CHECK_THROWS_WITH(LabelledData::load_unlabelled(folder.write("x.csv", "a,b\n1,2\n"), by(model)),
                    Contains("x.csv: holds rows of 2 numbers; expected images of 2 x 3"));

  const std::filesystem::path file = folder.write("text", std::string(100, 'x'));
  CHECK_THROWS_WITH(load_text_sets(file, {.context = 2, .schema = model}),
                    file.string() + ": is read as text; expected images of 2 x 3, on which the model was trained");
  CHECK_THROWS_WITH(load_text_sets(file, {.context = 2, .vocabulary = 9, .schema = DataSchema{.kind = "text"}}),
                    "--vocabulary is 9; the model has none, as it was trained on texts");
  CHECK_THROWS_WITH(load_text_sets(file, {.context = 2, .schema = DataSchema{.kind = "tokens", .vocabulary = 9}}),
                    Contains("is no file of tokens"));
}

TEST_CASE("images with channels first are refused with the way to turn them") {
  const TemporaryDirectory folder;
  const std::string images = npy<std::uint8_t>("|u1", "1, 3, 8, 8", std::vector<std::uint8_t>(192));
  CHECK_THROWS_WITH(LabelledData::load_unlabelled(folder.write("x.npy", images), {}),
                    Contains("x.npy: its shape is [1, 3, 8, 8], with channels first; expected [n, rows, columns, "
                             "channels], such as numpy.transpose(x, (0, 2, 3, 1))"));
}

TEST_CASE("classes of CIFAR have the names that are beside them, if there is one for each") {
  const TemporaryDirectory folder;
  const auto record = [](int label) { return cifar_record({label}, [](int, int, int) { return 0; }); };
  for (const char* const batch : {"1", "2", "3", "4", "5"})
    folder.write(fmt::format("data_batch_{}.bin", batch), record(9));
  folder.write("test_batch.bin", record(1));
  const auto classes = [&](const std::string& names, const LabelledData::Options& options = {}) {
    folder.write("batches.meta.txt", names);
    return LabelledData::load(folder.path(), options).schema.classes;
  };
  const Names numbers{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
      letters{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  const std::string names = "a\nb\r\nc\nd\ne\nf\ng\nh\ni\nj\n\n";
  CHECK(classes("") == numbers);
  CHECK(classes("a\nb\n") == numbers);
  CHECK(classes(names) == letters);
  const LabelledData data = LabelledData::load(folder.path(), {});
  CHECK(classes("", by(data.schema)) == letters);
  CHECK(LabelledData::load(folder.path(), {}).digest == data.digest);
  CHECK_THROWS_WITH(classes("b\na\nc\nd\ne\nf\ng\nh\ni\nj\n", by(data.schema)),
                    Contains("batches.meta.txt: has the classes \"b\", \"a\", "));
}

TEST_CASE("the test set alone is read without a training set, if the classes are known") {
  const TemporaryDirectory folder;
  folder.write("test.csv", flowers);
  const LabelledData::Options alone{.dtype = DType::f64, .test_only = true};
  CHECK(told(folder, "", alone) ==
        "test.csv: does not tell how many classes there are; expected their number (--classes)");
  LabelledData::Options options = alone;
  options.classes = 3;
  const LabelledData data = LabelledData::load(folder.path(), options);
  CHECK(data.text == "CSV: 4 rows of 2 numbers to test, 3 classes (\"aster\", \"lily\", \"rose\")");
  CHECK(data.train == nullptr);
  CHECK(data.test->count() == 4);
  options = alone;
  options.schema = data.schema;
  CHECK(LabelledData::load(folder.path(), options).schema == data.schema);

  const TemporaryDirectory of_arrays, of_images;
  of_arrays.write("x_test.npy", npy<std::uint8_t>("|u1", "2, 1, 2", {1, 2, 3, 4}));
  of_arrays.write("y_test.npy", npy<std::uint8_t>("|u1", "2,", {0, 1}));
  CHECK_THAT(told(of_arrays, "", alone), Contains("does not tell how many classes"));
  options = alone;
  options.classes = 2;
  CHECK(LabelledData::load(of_arrays.path(), options).test->count() == 2);
  of_images.write("t10k-images-idx3-ubyte", big_endian(0x803) + big_endian(1) + big_endian(1) + big_endian(2) + "xy");
  of_images.write("t10k-labels-idx1-ubyte", big_endian(0x801) + big_endian(1) + "\1");
  CHECK(LabelledData::load(of_images.path(), alone).schema.classes.size() == 10);
}

}  // namespace lockstep::test::input_described_cases
