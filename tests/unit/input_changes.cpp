// Files that change while samples are read from them: what is found, and what is no change of the data.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/models/input/augmentation.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/text.hpp>

#include "apps/image_files.hpp"
#include "core/base/progress_count.hpp"
#include "input_labelled_support.hpp"
#include "models/input/file_bytes.hpp"
#include "models/input/samples.hpp"
#include "models/input/shared_data.hpp"
#include "support/token_file.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

namespace fs = std::filesystem;

/// Data that are read from disk: of each format, or taken over from a process that has read them.
struct Read {
  std::string name;
  fs::path file;  ///< one of those that it is read from
  std::unique_ptr<const SampleSource> train, test;

  std::string told() const {
    try {
      train->require_unchanged();
      test->require_unchanged();
      return "unchanged";
    } catch (const ConfigError& error) {
      return std::string{error.what()}.substr(file.string().size() + 2);
    }
  }
};

constexpr std::uint64_t in_memory = 1 << 20;

std::vector<Read> read_all_formats(const TemporaryDirectory& folder, std::uint64_t memory) {
  std::vector<Read> all;
  const auto add = [&](const std::string& name, const fs::path& data, const fs::path& file) {
    const LabelledData::Options options{.dtype = DType::f64, .memory_bytes = memory};
    LabelledData read = LabelledData::load(data, options);
    all.push_back({name, file, std::move(read.train), std::move(read.test)});
    BlockWriter block = read_labelled_block(data, options);
    LabelledData taken = labelled_data_of(block.in_process(), DType::f64);
    all.push_back({name + ", taken over", file, std::move(taken.train), std::move(taken.test)});
  };
  const auto made = [&](const std::string& name, const Files& files) {
    const fs::path path = folder.path() / name;
    fs::create_directory(path);
    for (const auto& [file, content] : files) folder.write(name + "/" + file, content);
    return path;
  };
  add("CIFAR", made("cifar", cifar_10()), folder.path() / "cifar/data_batch_3.bin");
  add("arrays", made("arrays", arrays()), folder.path() / "arrays/x_train.npy");
  add("CSV", made("csv", {{"train.csv", csv_rows(30)}, {"test.csv", csv_rows(30)}}), folder.path() / "csv/test.csv");
  const std::string images = big_endian(0x803) + big_endian(2) + big_endian(1) + big_endian(2) + "abcd",
                    labels = big_endian(0x801) + big_endian(2) + std::string{"\0\1", 2};
  add("IDX",
      made("idx", {{"train-images-idx3-ubyte", images},
                   {"train-labels-idx1-ubyte", labels},
                   {"t10k-images-idx3-ubyte", images},
                   {"t10k-labels-idx1-ubyte", labels}}),
      folder.path() / "idx/t10k-images-idx3-ubyte");
  const auto add_text = [&](const std::string& name, const fs::path& data, const fs::path& file,
                            TextData::Options options) {
    options.memory_bytes = memory;
    TextData read = TextData::load(data, options);
    all.push_back({name, file, std::move(read.train), std::move(read.test)});
    TextSets taken = digested_text_of(read_text_block(data, options).in_process()).data;
    all.push_back({name + ", taken over", file, std::make_unique<TextSamples>(taken.train),
                   std::make_unique<TextSamples>(taken.test)});
  };
  add_text("texts", made("texts", {{"a", std::string(100, 'x')}, {"b", std::string(100'000, 'y')}}),
           folder.path() / "texts/b", {.context = 4});
  if (memory == in_memory) return all;  // tokens never are
  add_text("tokens", folder.write("tokens", token_file(std::vector<std::uint16_t>(200, 7))), folder.path() / "tokens",
           {.context = 4, .vocabulary = 9});
  return all;
}

void overwrite(const fs::path& file, std::uintmax_t at, char byte) {
  std::fstream out{file, std::ios::in | std::ios::out | std::ios::binary};
  out.seekp(static_cast<std::streamoff>(at));
  out.put(byte);
}

/// In place, as `overwrite`.
void put_back(const fs::path& file, const std::string& content) {
  std::fstream{file, std::ios::in | std::ios::out | std::ios::binary} << content;
}

}  // namespace

TEST_CASE("a file that is overwritten while samples are read from it is found, in every format and by whatever way") {
  struct Way {
    std::string name;
    std::function<void(const fs::path& file, std::uintmax_t at)> change;
  };
  const std::vector<Way> ways{
      {"written", [](const fs::path& file, std::uintmax_t at) { overwrite(file, at, '~'); }},
      {"written, with its time set back",
       [](const fs::path& file, std::uintmax_t at) {
         const auto time = fs::last_write_time(file);
         overwrite(file, at, '~');
         fs::last_write_time(file, time);
       }},
      {"mapped",
       [](const fs::path& file, std::uintmax_t at) {
         const int opened = ::open(file.c_str(), O_RDWR);
         auto* const memory =
             static_cast<char*>(::mmap(nullptr, at + 1, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0));
         REQUIRE(memory != MAP_FAILED);
         memory[at] = '~';
         ::munmap(memory, at + 1);
         ::close(opened);
       }},
      {"cut", [](const fs::path& file, std::uintmax_t at) { fs::resize_file(file, at); }},
  };
  for (const Way& way : ways) {
    const TemporaryDirectory folder;
    for (const Read& read : read_all_formats(folder, 1)) {
      INFO(way.name << ": " << read.name);
      CHECK(read.told() == "unchanged");
      const std::uintmax_t last = fs::file_size(read.file) - 2;
      const std::string before = read_file(read.file);
      way.change(read.file, last);
      CHECK_THAT(read.told(), Catch::StartsWith("has become shorter") ||
                                  (Catch::StartsWith("has changed while it was in use: the ") &&
                                   Catch::EndsWith("differ from those that were read at the start; expected files "
                                                   "that stay as they are until the run ends")));
      put_back(read.file, before);
      CHECK(read.told() == "unchanged");
    }
  }
}

TEST_CASE("a file that gets another time, mode, name or end still has the data, and so has memory") {
  const TemporaryDirectory folder;
  for (const Read& read : read_all_formats(folder, 1)) {
    INFO(read.name);
    fs::last_write_time(read.file, fs::last_write_time(read.file) + std::chrono::hours{1});
    CHECK(read.told() == "unchanged");
    fs::permissions(read.file, fs::perms::owner_read | fs::perms::owner_write);
    CHECK(read.told() == "unchanged");
    std::ofstream{read.file, std::ios::app} << "more";
    CHECK(read.told() == "unchanged");
    const std::uintmax_t bytes = fs::file_size(read.file) - 4;
    fs::resize_file(read.file, bytes);
    fs::rename(read.file, folder.path() / "moved");
    CHECK(read.told() == "unchanged");
    std::ofstream{read.file} << "another";
    CHECK(read.told() == "unchanged");
    fs::rename(folder.path() / "moved", read.file);
  }
  const TemporaryDirectory kept;
  for (const Read& read : read_all_formats(kept, in_memory)) {
    INFO(read.name);
    overwrite(read.file, fs::file_size(read.file) - 2, '~');
    CHECK(read.told() == "unchanged");
    fs::remove(read.file);
    CHECK(read.told() == "unchanged");
    break;
  }
}

TEST_CASE("a rank that reads a file again shows progress in each block") {
  const TemporaryDirectory folder;
  const fs::path path = folder.write("x", std::string(3 * FileBytes::chunk_bytes + 1, 'x'));
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours{1});
  const TextData::Options options{.context = 4, .memory_bytes = 1};
  const TextData text = TextData::load(path, options);
  const auto pieces = [&] {
    const std::uint64_t before = detail::progress_count();
    text.train->require_unchanged();
    return detail::progress_count() - before;
  };
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  CHECK(pieces() == 4);
}

TEST_CASE("a file that is written to while it is read is refused") {
  const TemporaryDirectory folder;
  for (const bool grows : {false, true}) {
    const fs::path path = folder.write("x", std::string(200'000, 'x'));
    FileBytes file{path};
    std::vector<std::uint8_t> bytes(100'000);
    (void)file.read(bytes);
    fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours{1});
    if (grows) std::ofstream{path, std::ios::app} << "more";
    bytes.resize(200'000);
    CHECK_THROWS_WITH(file.read(bytes), path.string() + ": changed while it was read");
  }
}

TEST_CASE("images that are changed at random are those of their files") {
  const TemporaryDirectory folder;
  for (const Read& read : read_all_formats(folder, 1)) {
    if (read.name != "IDX") continue;
    const AugmentedSamples changed{*read.test, {1, 2}, {.flip = true}, 1};
    CHECK_NOTHROW(changed.require_unchanged());
    overwrite(read.file, fs::file_size(read.file) - 1, '~');
    CHECK_THROWS_AS(changed.require_unchanged(), ConfigError);
  }
}
