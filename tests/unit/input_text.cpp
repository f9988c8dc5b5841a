// Text files, and the samples cut out of them.
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/text.hpp>

#include "core/order/sample_order.hpp"
#include "gzip.hpp"
#include "models/input/batches.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/loaded_text.hpp"
#include "text_support.hpp"

using namespace lockstep;
using Catch::Contains;
using lockstep::test::load_text_sets;
using lockstep::test::numbers_in;
using lockstep::test::text_in;

namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<std::int32_t>;

/// Byte i is i mod 251, from `first` on.
std::string counting(std::size_t size, std::size_t first = 0) {
  std::string bytes;
  for (std::size_t i = first; i < first + size; ++i) bytes += static_cast<char>(i % 251);
  return bytes;
}

std::string letters(std::size_t size) {
  return std::string(size, 'x');
}

TextSet text_of(const std::string& bytes, std::int64_t context) {
  return {tokens_of_text({bytes.begin(), bytes.end()}), context};
}

class TextFile {
 public:
  explicit TextFile(const std::string& content) { directory_.write("text", content); }
  fs::path path() const { return directory_.path() / "text"; }

 private:
  lockstep::test::TemporaryDirectory directory_;
};

/// What the ConfigError says behind the file's name.
std::string text_refusal(const fs::path& path, std::int64_t context) {
  try {
    load_text_sets(path, {.context = context});
    return "not refused";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    CHECK_THAT(message, Catch::StartsWith(path.string() + ": ") && !Contains("\n"));
    return message.substr(std::min(message.size(), path.string().size() + 2));
  }
}

/// The same for memory.
std::string refusal_of_room(const fs::path& path, std::uint64_t bytes) {
  try {
    (void)FileBytes{path}.room_for(bytes);
    return "not refused";
  } catch (const ConfigError& error) {
    return std::string{error.what()}.substr(path.string().size() + 2);
  }
}

}  // namespace

TEST_CASE("a text is its bytes, of which the last tenth is for the test") {
  const TextFile file{counting(109)};
  const TextSets data = load_text_sets(file.path(), {.context = 4, .binary = true});
  CHECK(text_in(data.train) == counting(99));
  CHECK(text_in(data.test) == counting(10, 99));
  CHECK(data.train.context == 4);
  CHECK(data.test.context == 4);
  CHECK(data.train.count() == 24);  // bytes 0 to 95 and their successors
  CHECK(data.test.count() == 2);
}

TEST_CASE("a program gets the samples of a text as sources, with their digest") {
  const TextFile file{counting(110)};
  const TextSets sets = load_text_sets(file.path(), {.context = 4, .binary = true});
  const TextData data = TextData::load(file.path(), {.context = 4, .binary = true});
  CHECK(data.digest == digest(sets));
  CHECK(data.schema == sets.schema);
  CHECK(data.train->count() == 24);
  CHECK(data.test->count() == 2);
  CHECK(data.test->labels_per_sample() == 4);
  CHECK(data.test->labels_are_bytes());
  SampleBatch batch = data.test->make_batch(1, Stream::host());
  data.test->fill(std::vector<std::int64_t>{1}, batch);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Numbers{103, 104, 105, 106});
  CHECK(batch.labels.to_vector<std::int32_t>() == Numbers{104, 105, 106, 107});
}

TEST_CASE("a packed text is the same as a plain one, also where it is large") {
  const std::string content = counting((3 << 20) + 17);
  const TextData::Options any_bytes{.context = 128, .binary = true};
  const TextFile plain{content}, packed{test::packed(content)}, exact{counting(2 << 20)};
  const TextSets data = load_text_sets(packed.path(), any_bytes);
  CHECK(text_in(data.train) + text_in(data.test) == content);
  CHECK(digest(data) == digest(load_text_sets(plain.path(), any_bytes)));
  CHECK(load_text_sets(exact.path(), any_bytes).train.tokens->count() == (2 << 20) - (2 << 20) / 10);
}

TEST_CASE("the digest of a text depends on its bytes, its context and where the test begins") {
  const TextSets data{text_of("abcdefgh", 2), text_of("ijklm", 2)};
  CHECK(digest(data) == digest(TextSets{data}));
  CHECK(digest(data) != digest({text_of("abcdefgx", 2), data.test}));
  CHECK(digest(data) != digest({data.train, text_of("ijklx", 2)}));
  CHECK(digest(data) != digest({text_of("abcdefgh", 3), data.test}));
  CHECK(digest(data) != digest({text_of("abcdefghi", 2), text_of("jklm", 2)}));
}

TEST_CASE("what is no text is refused by its kind, whatever its name and also if it is packed, but for --binary") {
  using namespace std::string_literals;
  const std::string end = ", or --binary, which takes files of any bytes";
  const auto refused = [&](const std::string& content, bool on_disk = false) {
    const TextFile file{content};
    std::string told = "not refused";
    const auto load = [&](bool binary) {
      const TextSets data =
          load_text_sets(file.path(), {.context = 4, .binary = binary, .memory_bytes = on_disk ? 1U : 1U << 20});
      (void)digest(data);
      return data.schema.kind;
    };
    try {
      const std::string kind = load(false);
      CHECK(kind == "text");
    } catch (const ConfigError& error) {
      told = std::string{error.what()}.substr(file.path().string().size() + 2);
      CHECK_THAT(told, Catch::EndsWith(end));
    }
    CHECK(load(true) == "bytes");
    // Without the paths in the commands.
    for (std::size_t at = 0; (at = told.find(file.path().string())) != told.npos;)
      told.replace(at, file.path().string().size(), "F");
    return told.substr(0, told.size() - (told.ends_with(end) ? end.size() : 0));
  };
  struct Row {
    std::string begin, name, command = {};
  };
  const std::vector<Row> rows{
      {"\xfd"s + "7zXZ\0"s, "an xz archive", "xz -dk F"},
      {"BZh91AY", "a bzip2 archive", "bunzip2 -k F"},
      {"\x28\xb5\x2f\xfd", "a zstd archive", "zstd -d F"},
      {"PK\x03\x04", "a zip archive", "unzip F"},
      {"PK\x03\x04" + std::string(26, '\1') + "x_train.npy", "an .npz file of NumPy"},
      {"PK\x03\x04" + std::string(26, '\1') + "[Content_Types].xml", "a document of Office, such as Excel"},
      {"PK\x03\x04" + std::string(26, '\1') + "model/data.pkl", "a file of PyTorch"},
      {"PK\x05\x06", "a zip archive", "unzip F"},
      {"\x04\x22\x4d\x18", "an lz4 archive", "lz4 -d F"},
      {"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x F"},
      {"Rar!\x1a\x07", "a rar archive", "unrar x F"},
      {"LZIP\x01", "an lzip archive", "lzip -dk F"},
      {"\x1f\x9d", "a compress archive", "zcat < F > F.txt"},
      {counting(257, 1) + "ustar", "a tar archive", "tar xf F"},
      {"\x89HDF\r\n\x1a\n", "a file of HDF5"},
      {"PAR1\x15\x04", "a file of Parquet",
       "in Python, where the column is called text: import pandas; open(\"F.txt\", "
       "\"w\").write(\"\\n\".join(pandas.read_parquet(\"F\")[\"text\"]))"},
      {"\x89PNG\r\n\x1a\n", "a PNG image"},
      {"\xff\xd8\xff\xe0", "a JPEG image"},
      {"%PDF-1.7\n", "a PDF", "pdftotext F F.txt"},
      {"\x80\x05\x95", "a pickle of Python"},
      {"\xff\xfe" + std::string{"h\0i\0", 4}, "a text in UTF-16", "iconv -f UTF-16 -t UTF-8 F > F.txt"},
      {"\xfe\xff\x4f\x60\x59\x7d", "a text in UTF-16", "iconv -f UTF-16 -t UTF-8 F > F.txt"},  // without a zero byte
  };
  for (const Row& row : rows) {
    INFO(row.name);
    const std::string told = "is " + row.name + ", not a text; expected a text file, plain or packed (gzip)" +
                             (row.command.empty() ? "" : ": " + row.command);
    const std::string content = row.begin + "\1" + letters(1000);
    CHECK(refused(content) == told);
    CHECK(refused(content, true) == told);
    CHECK(refused(test::packed(content)) == told);
  }
  CHECK(refused(test::packed(test::packed(counting(3000)))) ==
        "is a gzip archive inside of another, not a text; expected a text file, plain or packed (gzip): zcat < F > "
        "F.txt");
  const std::string zero = ", which no text has; expected a text file, plain or packed (gzip)";
  for (const bool on_disk : {false, true}) {
    CHECK(refused(letters(70000) + '\0' + letters(10000), on_disk) == "has a zero byte at 70000" + zero);
    CHECK(refused(std::string(1, '\0') + letters(1000), on_disk) == "has a zero byte at 0" + zero);
    // Encodings of bytes, and words that a kind begins with.
    for (const char* const begin : {"BZip", "ORCHESTRA", "PAR1S", "\xef\xbb\xbf", "\xe9t\xe9 \x1b[1m\t\f\b\r\n"})
      CHECK(refused(begin + letters(1000), on_disk) == "not refused");
  }
}

TEST_CASE("files that are no text of a useful size are refused with what was expected") {
  const std::string expected = "; expected at least 10 x (4 + 1) bytes of text";
  CHECK_THAT(text_refusal(TextFile{""}.path(), 4), Catch::StartsWith("is empty" + expected));
  CHECK_THAT(text_refusal(TextFile{letters(49)}.path(), 4), Catch::StartsWith("holds 49 bytes" + expected));
  CHECK(load_text_sets(TextFile{letters(50)}.path(), {.context = 4}).test.count() == 1);
  CHECK_THAT(text_refusal(TextFile{letters(50)}.path(), std::numeric_limits<std::int64_t>::max()),
             Catch::StartsWith("holds 50 bytes"));
  CHECK_THROWS_AS(load_text_sets(TextFile{letters(50)}.path(), {.context = 0}), InvalidArgument);

  const lockstep::test::TemporaryDirectory directory;
  CHECK(text_refusal(directory.path() / "none", 4) ==
        "does not exist; expected a text file, plain or packed (gzip), or a folder of them");
  CHECK(text_refusal(directory.path(), 4) ==
        "holds no files; expected text files, plain or packed (gzip), or files of tokens");
  CHECK(text_refusal("/dev/null", 4) == "is a device, not a regular file");

  const std::string whole = test::packed(counting(1000));
  CHECK_THAT(text_refusal(TextFile{whole.substr(0, whole.size() - 9)}.path(), 4), Contains("ends early"));
  std::string broken = whole;
  broken[broken.size() - 6] ^= 1;  // in the CRC-32
  CHECK_THAT(text_refusal(TextFile{broken}.path(), 4), Contains("corrupt"));
  CHECK_THAT(text_refusal(TextFile{whole + "tail"}.path(), 4), Contains("trailing bytes"));
}

TEST_CASE("a text that is larger than the memory allowed stays on disk, and is the same") {
  const std::string content = counting(20000);
  const TextFile file{content};
  const TextData::Options in_memory{.context = 7, .binary = true, .memory_bytes = 20000},
      on_disk{.context = 7, .binary = true, .memory_bytes = 19999};
  const TextSets data = load_text_sets(file.path(), on_disk);
  CHECK(text_in(data.train) + text_in(data.test) == content);
  CHECK(digest(data) == digest(load_text_sets(file.path(), in_memory)));

  // What is on disk can be cut, unlike what is in memory.
  const TextSets kept = load_text_sets(file.path(), in_memory);
  fs::resize_file(file.path(), 19000);
  CHECK(text_in(kept.train) + text_in(kept.test) == content);
  SampleBatch batch = make_text_batch(1, 7);
  CHECK_NOTHROW(fill_batch(data.train, std::vector<std::int64_t>{3}, batch));
  CHECK_THROWS_WITH(fill_batch(data.test, std::vector<std::int64_t>{200}, batch),
                    Catch::StartsWith(file.path().string() + ": has become shorter while it was in use"));
}

TEST_CASE("a packed text, or an archive, that is larger than the memory allowed is refused") {
  const auto refused = [](const std::string& content) {
    const TextFile file{content};
    try {
      load_text_sets(file.path(), {.context = 4, .memory_bytes = 900});
      return std::string{"not refused"};
    } catch (const ConfigError& error) {
      return std::string{error.what()}.substr(file.path().string().size() + 2);
    }
  };
  CHECK_THAT(refused(test::packed(letters(1000))), Catch::StartsWith("does not fit into the 900 bytes of memory"));
  CHECK_THAT(refused("BZh91AY" + counting(1000)), Catch::StartsWith("is a bzip2 archive"));
  CHECK(refused(letters(1000)) == "not refused");
}

TEST_CASE("packed content is read up to the limit") {
  // In three pieces, of which the last goes beyond the limit.
  const std::string piece = test::packed(std::string(100'000, 'x'));
  const TextFile file{piece + piece + piece};
  const auto read = [&](std::uint64_t limit) { return read_whole_file(file.path(), limit, "less"); };
  CHECK(read(300'000) == std::vector<std::uint8_t>(300'000, 'x'));
  for (const std::uint64_t limit : {299'999, 200'000, 1})
    CHECK_THROWS_WITH(read(limit), file.path().string() + ": holds more than " + std::to_string(limit) +
                                       " bytes when unpacked; expected less");
}

TEST_CASE("memory that the system does not give is told of by the file that needs it") {
  const TextFile file{"text"};
  const FileBytes bytes{file.path()};
  CHECK(bytes.room_for(1000).capacity() >= 1000);
  CHECK_THAT(refusal_of_room(file.path(), ~std::uint64_t{0}),
             Catch::StartsWith("needs 18446744073709551615 bytes of memory; expected at most the ") &&
                 Catch::EndsWith(" that this host has"));
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__  // whose shadow memory is larger than any limit
TEST_CASE("so is memory beyond the limit of the process") {
  const TextFile file{"text"};
  test::ChildProcess child{[&] {
    const rlimit limit{1 << 30, 1 << 30};
    ::setrlimit(RLIMIT_AS, &limit);
    return refusal_of_room(file.path(), std::uint64_t{1} << 30) ==
                   "needs 1073741824 bytes of memory; expected at most what the system gives this process (ulimit -v)"
               ? 0
               : 1;
  }};
  CHECK(child.wait() == 0);
}
#endif

TEST_CASE("the samples of a text label every byte but the first, once") {
  const TextSet text = text_of(counting(31), 5);
  REQUIRE(text.count() == 6);
  SampleBatch batch = make_text_batch(6, 5);
  fill_batch(text, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5}, batch);
  const Numbers inputs = batch.inputs.to_vector<std::int32_t>(), labels = batch.labels.to_vector<std::int32_t>();
  for (std::int32_t i = 0; i < 30; ++i) {
    CHECK(inputs[static_cast<std::size_t>(i)] == i);
    CHECK(labels[static_cast<std::size_t>(i)] == i + 1);
  }
  CHECK(text_of(counting(30), 5).count() == 5);
  CHECK(text_of("", 5).count() == 0);
  CHECK(text_of("a", 5).count() == 0);
}

TEST_CASE("a batch of text holds its samples, and zeros behind them") {
  const TextSet text = text_of("abcdefg\xff", 2);
  SampleBatch batch = make_text_batch(3, 2);
  CHECK(batch.counted_labels() == 0);
  fill_batch(text, std::vector<std::int64_t>{2, 0}, batch);
  CHECK(batch.samples == 2);
  CHECK(batch.counted_labels() == 4);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Numbers{'e', 'f', 'a', 'b', 0, 0});
  CHECK(batch.labels.to_vector<std::int32_t>() == Numbers{'f', 'g', 'b', 'c', 0, 0});

  const TextSet high = text_of("\xff\x80\xfe", 2);  // bytes are numbers from 0 to 255
  fill_batch(high, std::vector<std::int64_t>{0}, batch);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Numbers{255, 128, 0, 0, 0, 0});
  CHECK(batch.labels.to_vector<std::int32_t>() == Numbers{128, 254, 0, 0, 0, 0});

  SampleBatch images = make_batch(3, 7, DType::f32);
  images.samples = 2;
  CHECK(images.counted_labels() == 2);
}

TEST_CASE("a batch of text that cannot be made or filled is refused, and left as it was") {
  CHECK_THROWS_AS(make_text_batch(0, 4), InvalidArgument);
  CHECK_THROWS_WITH(make_text_batch(4, 0), "a batch of 4 rows of 0 tokens; expected 1 or more of both");
  const TextSet text = text_of("abcdefg", 2);
  SampleBatch batch = make_text_batch(2, 2);
  fill_batch(text, std::vector<std::int64_t>{1}, batch);
  const Numbers before = batch.inputs.to_vector<std::int32_t>();
  const auto refused = [&](const TextSet& from, std::vector<std::int64_t> samples, const char* why) {
    CHECK_THROWS_WITH(fill_batch(from, samples, batch), Contains(why));
    CHECK_THROWS_AS(fill_batch(from, samples, batch), InvalidArgument);
    CHECK(batch.inputs.to_vector<std::int32_t>() == before);
    CHECK(batch.samples == 1);
  };
  refused(text, {0, 1, 2}, "3 samples do not fit into a batch of 2 rows");
  refused(text, {0, 3}, "sample 3 is outside of [0, 3)");
  refused(text, {-1}, "sample -1 is outside of [0, 3)");
  refused(text_of("abcdefg", 3), {0}, "samples of 3 tokens do not fit into rows of 2");

  SampleBatch images = make_batch(2, 2, DType::f32);
  CHECK_THROWS_WITH(fill_batch(text, std::vector<std::int64_t>{0}, images),
                    Contains("was not made by make_text_batch"));
  images.labels = Tensor::zeros(DType::i32, {2, 2});
  CHECK_THROWS_WITH(fill_batch(text, std::vector<std::int64_t>{0}, images), Contains("expected i32"));
  CHECK_THROWS_WITH(fill_batch(ImageData::Set{1, 2, {1, 2}, {1}}, std::vector<std::int64_t>{0}, batch),
                    Contains("was not made by make_batch"));
}
