// Tables whose columns are scaled, and tables with numbers to regress on.
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/schema.hpp>

#include "support/job.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

namespace {

using Task = DataSchema::Task;
using Scaling = DataSchema::Scaling;

constexpr LabelledData::Options scaled_regression(DType dtype) {
  return {.dtype = dtype, .label_column = "y", .task = Task::regression, .scaling = Scaling::standard};
}

/// Columns with means of 2, 7 and 20, exact in every row, and deviations of the square roots of 2 and, of y, 50.
const std::string four_rows = "a,b,y\n0,7,10\n4,7,30\n2,7,20\n2,7,20\n", two_rows = "y,b,a\n40,8,2\n0,7,6\n";
const double root_2 = std::sqrt(2.0), root_50 = std::sqrt(50.0);

/// Numbers of all samples, with one row of padding.
struct Filled {
  std::vector<double> inputs, labels;
};

Filled fill_all_of(const SampleSource& source) {
  SampleBatch batch = source.make_batch(source.count() + 1, Stream::host());
  std::vector<std::int64_t> all(static_cast<std::size_t>(source.count()));
  std::iota(all.begin(), all.end(), 0);
  batch.labels.view().elements<double>().back() = 5;
  source.fill(all, batch);
  return {batch.inputs.to_vector<double>(), batch.labels.to_vector<double>()};
}

/// What is told of a training and a test set, without the folder's name.
std::string told_of(const std::string& train, const std::string& test, LabelledData::Options options) {
  const TemporaryDirectory folder;
  folder.write("train.csv", train);
  folder.write("test.csv", test);
  try {
    const LabelledData data = LabelledData::load(folder.path(), options);
    SampleBatch batch = data.test->make_batch(1, Stream::host());
    data.test->fill(std::vector<std::int64_t>{0}, batch);
  } catch (const ConfigError& error) {
    const std::string line = error.what(), path = folder.path().string() + "/";
    return line.starts_with(path) ? line.substr(path.size()) : line;
  }
  return "not refused";
}

}  // namespace

TEST_CASE("columns and labels are scaled by mean and deviation of the training set, in memory and from the files") {
  const TemporaryDirectory folder;
  folder.write("train.csv", four_rows);
  folder.write("test.csv", two_rows);
  std::vector<std::uint64_t> digests;
  for (const std::uint64_t memory : {1 << 20, 1}) {
    LabelledData::Options options = scaled_regression(DType::f64);
    options.memory_bytes = memory;
    const LabelledData data = LabelledData::load(folder.path(), options);
    CHECK(data.schema.scales == std::vector<DataSchema::Scale>{{2, root_2}, {7, 1}});
    CHECK(data.schema.label_scale == DataSchema::Scale{20, root_50});
    CHECK((data.classes == 0 && data.schema.classes.empty()));
    const Filled train = fill_all_of(*data.train), test = fill_all_of(*data.test);
    CHECK(train.inputs == std::vector<double>{-2 / root_2, 0, 2 / root_2, 0, 0, 0, 0, 0, 0, 0});
    CHECK(train.labels == std::vector<double>{-10 / root_50, 10 / root_50, 0, 0, 0});
    CHECK(test.inputs == std::vector<double>{0, 1, 4 / root_2, 0, 0, 0});
    CHECK(test.labels == std::vector<double>{20 / root_50, -20 / root_50, 0});
    CHECK(data.test->label_unit() == root_50);
    digests.push_back(data.digest);
  }
  CHECK(digests.front() == digests.back());
  const LabelledData narrow = LabelledData::load(folder.path(), scaled_regression(DType::f32));
  CHECK(narrow.test->make_batch(1, Stream::host()).labels.dtype() == DType::f32);
  CHECK(narrow.text ==
        "CSV: 4 rows of 2 numbers to train on and 2 to test, a regression of \"y\", scaled by the means and deviations "
        "of the training set");
  LabelledData::Options plain = scaled_regression(DType::f64);
  plain.scaling = Scaling::none;
  const LabelledData as_they_are = LabelledData::load(folder.path(), plain);
  CHECK(fill_all_of(*as_they_are.test).labels == std::vector<double>{40, 0, 0});
  CHECK(as_they_are.test->label_unit() == 1);
  CHECK(as_they_are.digest != digests.front());
}

TEST_CASE("of one file, the rows for the test have no share in means and deviations") {
  const TemporaryDirectory folder;
  std::string rows = "x,y\n";
  for (int row = 0; row < 40; ++row) rows += std::to_string(row) + "," + std::to_string(2 * row) + "\n";
  const LabelledData data = LabelledData::load(folder.write("x.csv", rows), scaled_regression(DType::f64));
  double sum = 0;
  for (const double each : fill_all_of(*data.train).inputs) sum += each;
  CHECK(std::abs(sum) < 1e-13);
  CHECK(data.test->count() == 4);
  CHECK(data.schema.scales.front().mean != 19.5);
}

TEST_CASE("a schema gives its means and deviations to other data, in any order of columns, and to predictions") {
  const TemporaryDirectory folder;
  folder.write("train.csv", four_rows);
  folder.write("test.csv", two_rows);
  const DataSchema schema = LabelledData::load(folder.path(), scaled_regression(DType::f64)).schema;
  const LabelledData::Options by_schema{.dtype = DType::f64, .test_only = true, .schema = schema};
  const TemporaryDirectory other;
  other.write("test.csv", "b,a,y\n9,4,20\n");
  const LabelledData data = LabelledData::load(other.path(), by_schema);
  CHECK(fill_all_of(*data.test).inputs == std::vector<double>{2 / root_2, 2, 0, 0});
  CHECK(data.schema == schema);
  // The same rows, scaled in another way, are other data.
  LabelledData::Options other_labels = by_schema, other_columns = by_schema;
  other_labels.schema->label_scale.mean += 1;
  other_columns.schema->scales.back().mean += 1;
  for (const LabelledData::Options& options : {other_labels, other_columns})
    CHECK(LabelledData::load(other.path(), options).digest != data.digest);
  const LabelledData bare = LabelledData::load_unlabelled(other.write("x.csv", "b,a\n9,4\n"), by_schema);
  CHECK(fill_all_of(*bare.train).inputs == std::vector<double>{2 / root_2, 2, 0, 0});
  CHECK(fill_all_of(*bare.train).labels == std::vector<double>{0, 0});
}

TEST_CASE("labels that are no numbers, or all one, and columns that cannot be scaled are refused") {
  const LabelledData::Options options = scaled_regression(DType::f32);
  const auto refused = [&](const std::string& row) { return told_of("a,y\n1,2\n" + row, "a,y\n1,2\n", options); };
  for (const std::string wrong : {"", "two", "1.5x", "0x10"})
    CHECK(refused("3," + wrong + "\n") == "train.csv:3: column \"y\" is \"" + wrong + "\"; expected a number");
  for (const std::string wrong : {"nan", "inf", "1e999"})
    CHECK(refused("3," + wrong + "\n") ==
          "train.csv:3: column \"y\" is \"" + wrong + "\"; expected a finite number of 32 bits");
  CHECK(refused("3,1e39\n") ==
        "train.csv:3: column \"y\" is \"1e39\"; expected a finite number of 32 bits, or --dtype f64");
  CHECK(refused("3,2.0000000000000004\n") ==
        "train.csv: column \"y\" is 2 in every row to train on; expected two numbers or more");
  CHECK(refused("3,2\n") == "train.csv: column \"y\" is 2 in every row to train on; expected two numbers or more");
  CHECK(told_of("a,y\n-1e-30,1\n1e-30,2\n", "a,y\n1e20,1\n", options) ==
        "column \"a\" has the number 1e+20; expected one that is finite after scaling by the mean 0 and the "
        "deviation 1e-30 of the training set");
  LabelledData::Options wide = scaled_regression(DType::f64);
  CHECK_THAT(told_of("a,y\n1e300,1\n-1e300,2\n", "a,y\n1,1\n", wide),
             Contains("train.csv: column \"a\" has a mean of 0 and a deviation of inf; expected numbers"));
  wide.classes = 2;
  CHECK(told_of("a,y\n1,1\n", "a,y\n1,1\n", wide) == "--classes is 2; a regression has none");
  LabelledData::Options alone = options;
  alone.test_only = true;
  CHECK_THAT(told_of("", "a,y\n1,1\n", alone), Contains("test.csv: does not tell how columns were scaled"));
}

TEST_CASE("data other than CSV are neither scaled nor regressed on") {
  const TemporaryDirectory folder;
  for (const char* const part : {"train", "test"}) {
    folder.write(std::string{"x_"} + part + ".npy", npy<float>("<f4", "2, 1", {1, 2}));
    folder.write(std::string{"y_"} + part + ".npy", npy<std::uint8_t>("|u1", "2,", {0, 1}));
  }
  const std::string begin = folder.path().string() + ": is no CSV; expected CSV, with names of columns, for ";
  CHECK_THROWS_WITH(LabelledData::load(folder.path(), {.scaling = Scaling::standard}),
                    Catch::StartsWith(begin + "--scale standard; in Python: import numpy, pandas; t = "));
  CHECK_THROWS_WITH(LabelledData::load(folder.path(), {.task = Task::regression}),
                    begin + "--task regression; in Python: import numpy, pandas; t = pandas.DataFrame(numpy.load(\"" +
                        folder.path().string() + "/x_train.npy\")); t[\"label\"] = numpy.load(\"" +
                        folder.path().string() + "/y_train.npy\"); t.to_csv(\"" + folder.path().string() +
                        "/table.csv\", index=False)");
  const DataSchema schema{
      .kind = "CSV", .sample = {1}, .columns = {"a"}, .label_column = "y", .scales = {{1, 2}}, .classes = {"0", "1"}};
  CHECK_THROWS_WITH(LabelledData::load_unlabelled(folder.path() / "x_test.npy", {.schema = schema}),
                    Contains("for --scale standard, with which the model was trained"));
}

TEST_CASE("a schema keeps means and deviations to the last bit, and hostile ones are refused") {
  DataSchema schema{.kind = "CSV",
                    .sample = {2},
                    .columns = {"a", "b"},
                    .label_column = "y",
                    .task = Task::regression,
                    .scales = {{0.1 + 0.2, std::numeric_limits<double>::denorm_min()}, {-1e300, 1.0 / 3}},
                    .label_scale = {std::nextafter(1.0, 2.0), std::numeric_limits<double>::max()}};
  CHECK(DataSchema::parse(schema.to_json(), "FILE") == schema);
  const std::string good = schema.to_json();
  const auto refused = [&](const std::string& from, const std::string& to) -> std::string {
    std::string text = good;
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    text.replace(at, from.size(), to);
    try {
      (void)DataSchema::parse(text, "FILE");
      return "not refused";
    } catch (const Error& error) {
      const std::string line = error.what();
      return line.substr(line.find("key"));
    }
  };
  CHECK(refused("[0.30000000000000004,", "[") == "key \"means\": expected a number for each column");
  CHECK(refused("0.30000000000000004", "null") == "key \"means\": expected finite numbers");
  CHECK(refused("\"deviations\":[5e-324", "\"deviations\":[0") == "key \"deviations\": expected numbers above 0");
  CHECK(refused("\"deviations\":[5e-324", "\"deviations\":[-1") == "key \"deviations\": expected numbers above 0");
  CHECK(refused("\"deviations\"", "\"vocabulary\"") ==
        "key \"deviations\": expected both means and deviations, or none");
  CHECK_THAT(refused("\"label_deviation\":1.7976931348623157e+308,", ""), Contains("key \"label_deviation\""));
  CHECK_THAT(refused("\"regression\"", "\"clusters\""),
             Contains("key \"task\": expected \"classes\" or \"regression\", not"));
  CHECK_THAT(refused("\"task\":\"regression\"", "\"classes\":2"), Contains("key \"label_mean\""));
  CHECK(refused("\"task\"", "\"classes\":2,\"task\"") == "key \"classes\": expected none for a regression");
  CHECK(refused("\"CSV\"", "\"IDX\"") == "key \"task\": expected none but for CSV");
}
