// Data that another process has read, taken over as a block of memory.
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "gzip.hpp"
#include "models/input/shared_data.hpp"
#include "models/input/text_sets.hpp"
#include "support/job.hpp"
#include "support/labelled_files.hpp"
#include "support/loaded_text.hpp"
#include "support/token_file.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The block as another process has it.
BlockReader handed_over(BlockWriter written) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const auto memory = std::make_shared<std::vector<Line>>(written.bytes() / sizeof(Line) + 1);
  auto* const begin = reinterpret_cast<std::byte*>(memory->data());
  std::byte* end = begin;
  const std::size_t bytes = written.bytes();
  written.write([&](std::span<const std::byte> piece) { end = std::ranges::copy(piece, end).out; });
  CHECK(static_cast<std::size_t>(end - begin) == bytes);
  return {memory, {begin, bytes}};
}

std::vector<double> samples_in(const std::unique_ptr<const SampleSource>& source) {
  if (!source) return {};
  SampleBatch batch = source->make_batch(source->count(), Stream::host());
  std::vector<std::int64_t> all(static_cast<std::size_t>(source->count()));
  std::iota(all.begin(), all.end(), 0);
  source->fill(all, batch);
  std::vector<double> numbers = batch.inputs.to_vector<double>();
  for (const std::int32_t label : batch.labels.to_vector<std::int32_t>()) numbers.push_back(label);
  return numbers;
}

void check_same_data(const LabelledData& taken, const LabelledData& read) {
  CHECK(taken.text == read.text);
  CHECK(taken.sample == read.sample);
  CHECK(taken.schema == read.schema);
  CHECK(taken.digest == read.digest);
  CHECK(samples_in(taken.train) == samples_in(read.train));
  CHECK(samples_in(taken.test) == samples_in(read.test));
}

/// With all of it in memory, with a part, and with nothing.
void check_taken_over(const std::filesystem::path& path) {
  for (const std::uint64_t memory : {1 << 20, 4000, 1}) {
    INFO(path.string() << " with " << memory);
    const LabelledData::Options options{.dtype = DType::f64, .memory_bytes = memory};
    check_same_data(labelled_data_of(handed_over(read_labelled_block(path, options)), DType::f64),
                    LabelledData::load(path, options));
  }
}

std::vector<std::int32_t> tokens_in(const TextSet& set) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(set.tokens->count()));
  set.tokens->read(0, tokens);
  return tokens;
}

std::string names_and_numbers(int rows) {
  std::string text = "a,label,b\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("{}.5,{},{}\n", i, i % 3 == 0 ? "x" : "y", -i);
  return text;
}

}  // namespace

TEST_CASE("samples that another process has read are the same, in memory and on disk") {
  const TemporaryDirectory cifar, arrays, tables;
  const auto record = [](int label) {
    return cifar_record({label}, [&](int channel, int row, int) { return 40 * channel + row + label; });
  };
  for (int batch = 1; batch < 6; ++batch) cifar.write(fmt::format("data_batch_{}.bin", batch), record(batch));
  cifar.write("test_batch.bin", record(7) + record(8));
  check_taken_over(cifar.path());
  for (const char* const part : {"train", "test"}) {
    arrays.write(fmt::format("x_{}.npy", part), npy<double>(">f8", "3, 2", {1, 0, 3, 4, 0, 6}));
    arrays.write(fmt::format("y_{}.npy", part), npy<std::uint8_t>("|u1", "3,", {0, 2, 1}));
  }
  check_taken_over(arrays.path());
  check_taken_over(tables.write("one.csv", names_and_numbers(60)));
  tables.write("train.csv", names_and_numbers(20));
  tables.write("test.csv", names_and_numbers(9));
  check_taken_over(tables.path());

  const LabelledData::Options options{.dtype = DType::f64};
  const std::filesystem::path file = tables.path() / "one.csv";
  check_same_data(labelled_data_of(handed_over(read_unlabelled_block(file, options)), DType::f64),
                  LabelledData::load_unlabelled(file, options));
}

TEST_CASE("texts, tokens and lines that another process has read are the same") {
  const TemporaryDirectory folder, of_tokens;
  folder.write("a", std::string(50, 'a') + "b");
  folder.write("b.gz", packed(std::string(60, 'c')));
  folder.write("c", "");
  folder.write("test", std::string(70, 'd'));
  of_tokens.write("a", token_file({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 65535}));
  of_tokens.write("b", token_file({9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6}));
  const auto check = [](const std::filesystem::path& path, const TextData::Options& options) {
    const BlockReader block = handed_over(read_text_block(path, options));
    const auto [taken, taken_digest] = digested_text_of(block);
    const TextSets read = load_text_sets(path, options);
    CHECK(tokens_in(taken.train) == tokens_in(read.train));
    CHECK(tokens_in(taken.test) == tokens_in(read.test));
    CHECK(taken_digest == digest(read));
    CHECK(taken.schema == read.schema);
    CHECK(taken.train.context == read.train.context);
  };
  check(folder.path(), {.context = 3});
  check(folder.path(), {.context = 3, .memory_bytes = 111});  // not the last
  check(of_tokens.path(), {.context = 2, .vocabulary = 65536});
  const std::string lines = folder.write("lines", "one\n\nthree");
  CHECK(text_lines_of(handed_over(read_lines_block(lines, {}))) == load_text_lines(lines, {}));
  const std::string binary = folder.write("binary", std::string{"one\0\n", 5});
  CHECK_THROWS_WITH(read_lines_block(binary, {}), Catch::Contains("has a zero byte at 3"));
  const DataSchema of_bytes{.kind = "bytes", .split = DataSchema::Split::last, .test_fraction = 0.1};
  CHECK(load_text_lines(binary, {.schema = of_bytes}).front().size() == 4);
}

TEST_CASE("a file that is another one when it is taken over is refused") {
  const TemporaryDirectory folder;
  const std::filesystem::path file = folder.write("one.csv", names_and_numbers(60));
  const BlockReader block = handed_over(read_labelled_block(file, {.dtype = DType::f64, .memory_bytes = 1}));
  CHECK_NOTHROW(labelled_data_of(block, DType::f64));
  std::filesystem::rename(file, folder.path() / "moved");
  CHECK_THROWS_WITH(labelled_data_of(block, DType::f64), file.string() + ": cannot be read: No such file or directory");
  folder.write("one.csv", names_and_numbers(60));
  CHECK_THROWS_WITH(labelled_data_of(block, DType::f64), file.string() + ": changed while it was read");
}
