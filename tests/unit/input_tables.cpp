// Tables as people have them: columns that nobody meant, numbers at the edges of their type, and commands that make a
// table of a file that is none.
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
using Catch::Contains;

namespace {

/// Runs the command that a message has between two texts, on the files of `folder`. Returns what is said of the file
/// that it makes.
std::string after_command(const Folder& folder, const std::string& message, const std::string& before,
                          const std::string& after, const std::string& made,
                          const LabelledData::Options& options = {}) {
  const std::size_t begin = message.find(before);
  if (begin == message.npos) return message;
  std::string command = message.substr(begin + before.size());
  command.resize(after.empty() ? command.size() : command.find(after));
  for (std::size_t at = 0; (at = command.find("FOLDER", at)) != command.npos; at += folder.path().string().size())
    command.replace(at, 6, folder.path().string());
  const Outcome outcome = run_command({"/bin/sh", "-c", command});
  CHECK(outcome.err.empty());
  return refusal(folder, made, options);
}

std::string numbered_rows(const std::string& header, int rows = 20, const std::string& end = "") {
  std::string text = header + "\n";
  for (int row = 0; row < rows; ++row) text += std::to_string(row) + "," + std::to_string(row % 2) + ",7" + end + "\n";
  return text;
}

}  // namespace

TEST_CASE("a column without a name is refused by its number, and the command in the message leaves it out") {
  const Folder folder;
  struct Row {
    std::string header, told, end = {};
  };
  const std::vector<Row> rows{
      {",label,x", ":1: column 1 of 3 has no name, as the index that pandas writes without index=False; expected"},
      {"\"\",label,x", ":1: column 1 of 3 has no name, as the index"},
      {"\" \",label,x", ":1: column 1 of 3 has no name but \" \", as the index"},
      {"Unnamed: 0,label,x", ":1: column 1 of 3 has no name but \"Unnamed: 0\", as the index"},
      {"Unnamed: 0.1,label,x", ":1: column 1 of 3 has no name but \"Unnamed: 0.1\""},
      {"...1,label,x", ":1: column 1 of 3 has no name but \"...1\""},
      {"a,label,", ":1: column 3 of 3 has no name, as after a comma at the end of each line; expected"},
      {"a,label,x,", ":1: column 4 of 4 has no name, as after a comma at the end of each line; expected", ","},
      {"a,label,,x", ":1: column 3 of 4 has no name; expected a name for each: cut -d, -f1-2,4- < ", ",9"},
      {"label,,x,y", ":1: column 2 of 4 has no name; expected a name for each: cut -d, -f1,3- < ", ",1"},
  };
  for (const Row& row : rows) {
    INFO(row.header);
    folder.write("x y.csv", numbered_rows(row.header, 20, row.end));
    const std::string told = refusal(folder, "x y.csv");
    CHECK_THAT(told, Catch::StartsWith("FOLDER/x y.csv" + row.told));
    CHECK(after_command(folder, told, "expected a name for each: ", " leaves it out", "x y-named.csv") ==
          "not refused");
  }
  folder.write("z.csv.gz", packed(numbered_rows(",label,x")));
  CHECK(after_command(folder, refusal(folder, "z.csv.gz"), "expected a name for each: ", " leaves it out",
                      "z-named.csv") == "not refused");
  // A comma, or a name, that the header knows nothing of.
  std::string commas = csv_rows(0), names = csv_rows(0);
  for (int row = 0; row < 20; ++row) {
    commas += std::to_string(row % 2) + ",7,\n";
    names += "\"" + std::to_string(row) + "\"," + std::to_string(row % 2) + ",7\n";
  }
  folder.write("x.csv", commas);
  const std::string told = refusal(folder, "x.csv");
  CHECK_THAT(told, Catch::StartsWith("FOLDER/x.csv:2: has 3 fields; expected 2, as the header has: sed 's/,$//' < "));
  CHECK(after_command(folder, told, "as the header has: ", "", "x-cut.csv") == "not refused");
  folder.write("x.csv", names);
  CHECK(
      refusal(folder, "x.csv") ==
      "FOLDER/x.csv:2: has 3 fields; expected 2, as the header has; R writes a name before each row unless row.names = "
      "FALSE");
  // A model that was trained on such a column has it by its name.
  folder.write("x.csv", numbered_rows("Unnamed: 0,label,x"));
  const DataSchema schema{
      .kind = "CSV", .sample = {2}, .columns = {"x", "Unnamed: 0"}, .label_column = "label", .classes = {"0", "1"}};
  CHECK(refusal(folder, "x.csv", {.schema = schema}) == "not refused");
}

TEST_CASE("what is known of the data says which columns count the rows, and which classes have no sample") {
  const Folder folder;
  const auto text = [&](const std::string& content) {
    return LabelledData::load(folder.write("x.csv", content), {.test_fraction = 0.5}).text;
  };
  const std::string counted = numbered_rows("id,label,x", 200);
  CHECK_THAT(text(counted), Catch::EndsWith("2 classes; column \"id\" counts the rows and may say nothing of them"));
  CHECK_THAT(text(counted + "200,1,7\n7,1,7\n"), Catch::EndsWith("2 classes"));
  CHECK_THAT(text(numbered_rows("id,label,x", 20)), Catch::EndsWith("2 classes"));  // in order by chance
  std::string from_1 = "label,x\n";
  for (int row = 0; row < 60; ++row) from_1 += std::to_string(1 + row % 3) + ",1\n";
  CHECK_THAT(text(from_1), Catch::EndsWith(", 4 classes, 1 of them without a sample to train on: \"0\""));
  std::string measured = "label,x\n";
  for (int row = 0; row < 60; ++row) measured += std::to_string(100 + 7 * row) + ",1\n";
  CHECK_THAT(text(measured),
             Contains(", 514 classes, 4") && Catch::EndsWith(", \"7\", … (--task regression predicts labels "
                                                             "as numbers)"));
}

TEST_CASE("numbers at the edges of their type are read as the nearest, but for infinite ones") {
  const Folder folder;
  const auto numbers = [&](const std::string& number, DType dtype) {
    folder.write("train.csv", "x,label\n" + number + ",0\n1,1\n");
    folder.write("test.csv", "x,label\n1,0\n");
    return samples_of<double>(*LabelledData::load(folder.path(), {.dtype = dtype}).train).inputs.front();
  };
  CHECK(numbers("1e-400", DType::f64) == 0);
  CHECK(std::signbit(numbers("-0.00001e-400", DType::f64)));
  CHECK(numbers("1e-320", DType::f64) == 1e-320);
  CHECK(numbers("0." + std::string(400, '0') + "1", DType::f64) == 0);
  CHECK(numbers(std::string(400, '0') + "1", DType::f64) == 1);
  CHECK(numbers("1e-99999999999999999999", DType::f64) == 0);
  for (const std::string& huge : std::vector<std::string>{"1e400", "-1e400", "0.001e400", "1e99999999999999999999",
                                                          "1" + std::string(400, '0')}) {
    folder.write("train.csv", "x,label\n" + huge + ",0\n1,1\n");
    CHECK_THAT(refusal(folder, "", in_f64), Catch::EndsWith("\"; expected a finite number"));
    CHECK_THAT(refusal(folder), Catch::EndsWith("\"; expected a finite number of 32 bits"));
  }
  // A column of numbers that differ by rounding alone is one of equal numbers.
  folder.write("train.csv", "x,y\n0.3,1\n0.30000000000000004,2\n0.3,3\n");
  folder.write("test.csv", "x,y\n0.3,1\n");
  const DataSchema::Scale scale = LabelledData::load(folder.path(), {.label_column = "y",
                                                                     .task = DataSchema::Task::regression,
                                                                     .scaling = DataSchema::Scaling::standard})
                                      .schema.scales.front();
  CHECK(scale.deviation == 1);
  folder.write("train.csv", "x,y\n1e15,1\n1000000000000003,2\n");
  CHECK(LabelledData::load(
            folder.path(),
            {.label_column = "y", .task = DataSchema::Task::regression, .scaling = DataSchema::Scaling::standard})
            .schema.scales.front()
            .deviation == 1.5);
}

TEST_CASE("a table with other separators, in UTF-16 or without a header becomes one by the command in the message") {
  const Folder folder;
  const auto cured = [&](const std::string& name, const std::string& content, const std::string& before,
                         const std::string& after, const std::string& made, const LabelledData::Options& options = {}) {
    folder.write(name, content);
    std::filesystem::remove(folder.path() / made);  // of the case before
    const std::string told = refusal(folder, name, options);
    CHECK_THAT(told, Catch::StartsWith("FOLDER/" + name + ":1: ") && Contains(before));
    return after_command(folder, told, before, after, made, options);
  };
  const auto separated = [](std::string text, char by) {
    for (char& c : text)
      if (c == ',') c = by;
    return text;
  };
  const std::string table = csv_rows(20), commas = "expected commas: ";
  CHECK(cured("x.tsv", separated(table, '\t'), commas, "", "x-commas.csv") == "not refused");
  CHECK(cured("x", separated(table, '\t'), commas, "", "x-commas.csv") == "not refused");
  CHECK(cured("x.tsv.gz", packed(separated(table, '\t')), commas, "", "x-commas.csv") == "not refused");
  CHECK(cured("x.csv", separated(table, '|'), commas, "", "x-commas.csv") == "not refused");
  CHECK(cured("x.csv", separated(table, ' '), commas, "", "x-commas.csv") == "not refused");
  CHECK(cured("x.csv", separated(table, ';') + "1;2,5\n", commas, "", "x-commas.csv") == "not refused");
  CHECK(samples_of(*LabelledData::load(folder.path() / "x-commas.csv", in_f64).train).inputs.back() == 2.5);
  std::string wide = "\xff\xfe";
  for (const char c : table) wide += {c, '\0'};
  CHECK(cured("x.csv", wide, "expected text in UTF-8: ", "", "x-utf-8.csv") == "not refused");
  CHECK(cured("x.csv", table.substr(8), "names of the columns: ", " names them", "x-named.csv",
              {.label_column = "c1"}) == "not refused");
}

TEST_CASE("all wrong fields of a table are counted by columns and kinds, with a way to numbers") {
  const Folder folder;
  std::string table = "age,sex,born,cabin,label\n";
  for (int row = 0; row < 60; ++row)
    table += (row % 3 == 0 ? "" : "30") + std::string{row % 2 == 0 ? ",female" : ",male"} + ",1912-04-" +
             std::to_string(10 + row % 20) + ",C" + std::to_string(row) + "," + (row == 5 ? "NA" : "1") + "\n";
  folder.write("x.csv", table);
  CHECK(
      refusal(folder, "x.csv") ==
      "FOLDER/x.csv:2: column \"age\" is \"\"; expected a number; from here on it has no number in \"age\" (20 rows), "
      "\"label\" (1), dates in \"born\" (60 rows), words in \"sex\" (60 rows), \"cabin\" (60); in Python: import "
      "pandas; "
      "t = pandas.read_csv(\"FOLDER/x.csv\", skipinitialspace=True); t = t.drop(columns=[\"cabin\"]); t = "
      "pandas.get_dummies(t, "
      "columns=[\"sex\"], dtype=int); t = t.dropna(subset=[\"age\", \"label\"]); t[\"born\"] = "
      "pandas.to_datetime(t[\"born\"]).map(pandas.Timestamp.timestamp); t.to_csv(\"FOLDER/x-numbers.csv\", "
      "index=False)");
  folder.write("x.csv", "price,share,size,label\n\"1,5\",5 %,\"1,234\",0\n\"2,25\",6 %,$ 20,1\n");
  CHECK(refusal(folder, "x.csv") ==
        "FOLDER/x.csv:2: column \"price\" is \"1,5\"; expected a number; from here on it has numbers with characters "
        "besides digits and a point in \"price\" (2 rows), \"share\" (2), \"size\" (2); in Python: import pandas; t = "
        "pandas.read_csv(\"FOLDER/x.csv\", skipinitialspace=True); t[\"price\"] = "
        "pandas.to_numeric(t[\"price\"].astype(str).str.replace(\",\", "
        "\".\")); t[\"share\"] = pandas.to_numeric(t[\"share\"].astype(str).str.replace(r\"[^0-9.eE+-]\", \"\", "
        "regex=True)); t[\"size\"] = pandas.to_numeric(t[\"size\"].astype(str).str.replace(r\"[^0-9.eE+-]\", \"\", "
        "regex=True)); t.to_csv(\"FOLDER/x-numbers.csv\", index=False)");
  folder.write("x.csv", "a, b,label\n?, 1,0\n-,?,1\n");
  CHECK_THAT(
      refusal(folder, "x.csv"),
      Contains("it has no number in \"a\" (2 rows), \"b\" (1); in Python: import pandas; t = "
               "pandas.read_csv(\"FOLDER/x.csv\", skipinitialspace=True, na_values=[\"-\", \"?\"]); t = t.dropna("
               "subset=[\"a\", \"b\"]); "));
  // Few words among numbers are mistakes, and no categories.
  folder.write("x.csv", "a,b,label\n1,low,0\n2,1_000,0\n3,5,1\n4,err,1\n5,6,0\n");
  CHECK_THAT(
      refusal(folder, "x.csv"),
      Contains("numbers with characters besides digits and a point in \"b\" (1 row), words in \"b\" (2 rows); in "
               "Python: import pandas; t = pandas.read_csv(\"FOLDER/x.csv\", skipinitialspace=True); t[\"b\"] = "
               "pandas.to_numeric(t[\"b\"].astype(str).str.replace(r\"[^0-9.eE+-]\", \"\", regex=True), "
               "errors=\"coerce\"); t = t.dropna(subset=[\"b\"]); "));
  folder.write("x.csv", "a,b,label\n1,2,0\na,b,label\n3,4,1\n");
  CHECK(refusal(folder, "x.csv") ==
        "FOLDER/x.csv:3: repeats the names of the columns; expected them once: of files that you join, keep the header "
        "of "
        "the first");
  for (const std::string missing : {"None", "NaT"}) {
    folder.write("x.csv", "x,label\n1,cat\n2," + missing + "\n3,dog\n4," + missing + "\n");
    CHECK_THAT(refusal(folder, "x.csv"),
               Contains("column \"label\" is \"" + missing + "\"; expected a class") &&
                   Contains("na_values=[\"" + missing + "\"]); t = t.dropna(subset=[\"label\"])"));
  }
  std::string pains = "x,label\n";
  for (int row = 0; row < 40; ++row) pains += std::to_string(row) + (row % 2 == 0 ? ",none\n" : ",mild\n");
  folder.write("x.csv", pains);
  CHECK(refusal(folder, "x.csv") == "not refused");
  // A label alone, and what is no CSV behind it.
  folder.write("x.csv", "x,label\n1,0\n1,\n1,\n1,\"\n");
  CHECK_THAT(refusal(folder, "x.csv"),
             Catch::StartsWith("FOLDER/x.csv:3: column \"label\" is \"\"; expected a class: a "
                               "whole number from 0, or a name; from here up to 2 rows on it "
                               "has no number in \"label\" (2 rows); in Python: "));
  folder.write("x.csv", "x,label\n1,0\n2,1\nx,1\n");
  CHECK(refusal(folder, "x.csv") == "FOLDER/x.csv:4: column \"x\" is \"x\"; expected a number");
}

TEST_CASE("comments, Excel's line of the separator and every kind of line break are passed by") {
  const Folder folder{{{"x.csv", csv_rows(20)}}};
  const LabelledData plain = LabelledData::load(folder.path() / "x.csv", in_f64);
  const std::string rows = csv_rows(20).substr(8);
  const std::string marked = rows.substr(0, 4) + "# of 1, 2 and 3\n" + rows.substr(4) + "#\n";
  for (const std::string& table : std::vector<std::string>{
           "# made by hand\n#\n# with \"two\" columns\nlabel,x\n" + marked, "# label,x\n" + marked, "#label,x\n" + rows,
           "sep=,\r\nlabel,x\n" + rows, "\xef\xbb\xbf# x\nlabel,x\n" + rows}) {
    INFO(table.substr(0, 30));
    CHECK(LabelledData::load(folder.write("y.csv", table), in_f64).digest == plain.digest);
    CHECK(LabelledData::load(folder.write("y", table), in_f64).digest == plain.digest);
    check_streams(folder.path() / "y.csv");
  }
  for (const char* const line_break : {"\r", "\r\n"}) {
    std::string table;
    for (const char c : csv_rows(20)) table += c == '\n' ? line_break : std::string{c};
    CHECK(LabelledData::load(folder.write("y.csv", table), in_f64).digest == plain.digest);
    check_streams(folder.path() / "y.csv");
  }
}
