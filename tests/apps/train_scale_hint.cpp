// What is said of columns whose numbers are of very different sizes.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/input/labelled_data.hpp>

#include "apps/lockstep-train/data/scale_hint.hpp"
#include "support/job.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE(
    "the columns of the largest and the smallest numbers are named if they differ by more than a factor of 1000") {
  const TemporaryDirectory folder;
  const auto hint = [&](const std::string& rows) {
    const LabelledData data = LabelledData::load_unlabelled(folder.write("x.csv", "a,b,c,d\n" + rows), {});
    return scale_hint(*data.train, data.schema);
  };
  CHECK(hint("1,0,-2000000,0.5\n2,0,30,-0.25\n") ==
        "; the columns \"c\" (up to 2e+06) and \"d\" (up to 0.5) differ by more than a factor of 1000: --scale "
        "standard may help");
  CHECK(hint("1,2,100,-4\n").empty());
  CHECK(hint("1,2,1000,-4\n") == "; column \"c\" (up to 1000) is far from 1: --scale standard may help");
  CHECK(hint("0,0,0,0\n").empty());
  std::string many;
  for (int row = 0; row < 2000; ++row) many += "1,1,1,1\n";
  CHECK_FALSE(hint(many + "1,1,1001,1\n").empty());

  const auto hint_of_label = [&](DataSchema::Scaling scaling) {
    std::string table = "x,price\n";
    for (int row = 0; row < 20; ++row) table += std::to_string(row) + "," + std::to_string(1000 * row) + "\n";
    const LabelledData data =
        LabelledData::load(folder.write("y.csv", table),
                           {.label_column = "price", .task = DataSchema::Task::regression, .scaling = scaling});
    return scale_hint(*data.train, data.schema);
  };
  CHECK(hint_of_label(DataSchema::Scaling::none) ==
        "; the label \"price\" (up to 1.9e+04) is far from 1: --scale standard may help");
  CHECK(hint_of_label(DataSchema::Scaling::standard).empty());
  const auto hint_of_array = [&](const std::string& array) {
    const LabelledData data = LabelledData::load_unlabelled(folder.write("x.npy", array), {});
    return scale_hint(*data.train, data.schema);
  };
  CHECK(hint_of_array(npy<float>("<f4", "1, 2", {1, -255})) ==
        "; the numbers of a sample reach 255: arrays of (x - x.mean()) / x.std() may help");
  CHECK(hint_of_array(npy<float>("<f4", "1, 2", {1, 2})).empty());
  CHECK(hint_of_array(npy<std::uint8_t>("|u1", "1, 2", {1, 255})).empty());
}
