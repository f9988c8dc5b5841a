// The index of data that stay on disk: what it spares, and when it is not used.
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/input/data_index.hpp"
#include "models/input/shared_data.hpp"
#include "support/job.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

namespace fs = std::filesystem;

const LabelledData::Options from_disk{.dtype = DType::f64, .memory_bytes = 1};

/// The first samples, as numbers.
std::vector<double> first_of(const SampleSource& source, std::int64_t count) {
  SampleBatch batch = source.make_batch(count, Stream::host());
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  source.fill(all, batch);
  return batch.inputs.to_vector<double>();
}

/// 2000 rows of 100 numbers, in arrays.
struct ManyRows : TemporaryDirectory {
  ManyRows() {
    std::vector<float> numbers(200'000);
    std::iota(numbers.begin(), numbers.end(), 0.F);
    for (const char* const part : {"train", "test"}) {
      write(fmt::format("x_{}.npy", part), npy<float>("<f4", "2000, 100", numbers));
      write(fmt::format("y_{}.npy", part), npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2000,), }",
                                               std::string(1000, '\0') + std::string(1000, '\1')));
    }
  }
  fs::path train() const { return path() / "x_train.npy"; }
};

std::optional<std::vector<std::byte>> index_of_data(const fs::path& path,
                                                    const LabelledData::Options& options = from_disk) {
  return index_of(read_labelled_block(path, options), {"first", "key"});
}

std::uint64_t bytes_read_so_far() {
  std::ifstream counters{"/proc/self/io"};
  std::string name;
  std::uint64_t read = 0;
  counters >> name >> read;
  REQUIRE(name == "rchar:");
  return read;
}

}  // namespace

TEST_CASE("data are the same by their index, and only what is wanted is read") {
  const ManyRows arrays;
  std::string table = "a,b,c,d,e,f,label\n";
  for (int i = 0; i < 5000; ++i)
    table += fmt::format("{0}.00000000001,{0}.00000000002,{0}.00000000003,{0}.00000000004,{0}.5,{1},{2}\n", i, -i,
                         i % 2 == 0 ? "even" : "odd");
  for (const fs::path& path : {arrays.path(), arrays.write("table.csv", table)}) {
    INFO(path.string());
    std::uint64_t before = bytes_read_so_far();
    const LabelledData read = LabelledData::load(path, from_disk);
    CHECK(bytes_read_so_far() - before > 300'000);
    const auto index = index_of_data(path);
    REQUIRE(index);
    before = bytes_read_so_far();
    const std::optional<BlockWriter> block = block_of_index(*index, "key");
    REQUIRE(block);
    const LabelledData known = labelled_data_of(block->in_process(), DType::f64);
    const std::vector<double> first = first_of(*known.train, 10);
    CHECK(bytes_read_so_far() - before < 150'000);  // a chunk or two, of more than 300,000
    CHECK(first == first_of(*read.train, 10));
    CHECK(known.digest == read.digest);
    CHECK(known.schema == read.schema);
    CHECK(known.text == read.text);
    CHECK(first_of(*known.train, known.train->count()) == first_of(*read.train, read.train->count()));
    CHECK(first_of(*known.test, known.test->count()) == first_of(*read.test, read.test->count()));
  }
}

TEST_CASE("data in memory, or about as small as their index, have none") {
  const ManyRows arrays;
  CHECK_FALSE(index_of_data(arrays.path(), {.dtype = DType::f64}));
  // Of rows of 12 bytes, the labels and places alone take as many.
  std::string table = "x,label\n";
  for (int row = 0; row < 2000; ++row) table += fmt::format("{:09},{}\n", row, row % 2);
  CHECK_FALSE(index_of_data(arrays.write("short.csv", table)));
}

TEST_CASE("data that change while they are read have no index") {
  const ManyRows arrays;
  const nlohmann::json before = identities_of({arrays.train()});
  BlockWriter block = read_labelled_block(arrays.path(), from_disk);
  block.header.erase("files");
  set_files(block, before);
  CHECK(index_of(block, {"key"}));
  block.header.erase("files");
  fs::last_write_time(arrays.train(), fs::last_write_time(arrays.train()) + std::chrono::seconds{1});
  set_files(block, before);
  CHECK_FALSE(index_of(block, {"key"}));
}

TEST_CASE("an index is of no use if it is damaged, of another key, or of files that were others") {
  const ManyRows arrays;
  const auto index = index_of_data(arrays.path());
  REQUIRE(index);
  CHECK(block_of_index(*index, "key"));
  CHECK_FALSE(block_of_index(*index, "another"));
  CHECK_FALSE(block_of_index({}, "key"));
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{100}, index->size() - 1}) {
    auto damaged = *index;
    damaged[at] ^= std::byte{1};
    CHECK_FALSE(block_of_index(damaged, "key"));
    damaged.resize(at);
    CHECK_FALSE(block_of_index(damaged, "key"));
  }
  const auto time = fs::last_write_time(arrays.train());
  fs::last_write_time(arrays.train(), time + std::chrono::seconds{1});
  CHECK_FALSE(block_of_index(*index, "key"));
  fs::last_write_time(arrays.train(), time);
  CHECK(block_of_index(*index, "key"));
  arrays.write("x_train.npy.gz", "");
  CHECK_FALSE(block_of_index(*index, "key"));
  fs::remove(arrays.path() / "x_train.npy.gz");
  fs::copy(arrays.train(), arrays.path() / "copy");
  fs::rename(arrays.path() / "copy", arrays.train());
  fs::last_write_time(arrays.train(), time);
  CHECK_FALSE(block_of_index(*index, "key"));
}

TEST_CASE("bytes that have changed behind an index are found when they are read, and others are not") {
  const ManyRows arrays;
  const auto index = index_of_data(arrays.path());
  const auto time = fs::last_write_time(arrays.train());
  std::fstream{arrays.train(), std::ios::in | std::ios::out}.seekp(300'000) << "x";
  fs::last_write_time(arrays.train(), time);
  const LabelledData known = labelled_data_of(block_of_index(*index, "key")->in_process(), DType::f64);
  CHECK_NOTHROW(first_of(*known.train, 600));
  CHECK_THROWS_WITH(first_of(*known.train, 700),
                    arrays.train().string() +
                        ": has changed since it was indexed, though its time and size have not: "
                        "the 65536 bytes at 262144 are others");
}
