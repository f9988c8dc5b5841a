// The format of a checkpoint, and files that are there whole or not at all.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "core/base/element_type.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/safetensors.hpp"
#include "sync/checkpoint/shared_counter.hpp"
#include "sync/checkpoint/tensor_file.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::CapturedStderr;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;
using safetensors::Entry;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text});
}

/// What is wrong with a header of which the file has `data_bytes` of data.
std::string fault_in(const std::string& header, std::uint64_t data_bytes) {
  try {
    (void)safetensors::parse_header(header, data_bytes, "FILE");
  } catch (const CheckpointError& error) {
    const std::string words = error.what();
    CHECK_THAT(words, Catch::StartsWith("checkpoint FILE: "));
    CHECK(words.find('\n') == std::string::npos);
    return words.substr(std::string{"checkpoint FILE: "}.size());
  }
  return "nothing";
}

/// The same of one entry "w", given by what stands inside its braces, in a file of 8 bytes.
std::string fault_in_entry(const std::string& fields) {
  return fault_in("{\"w\":{" + fields + "}}", 8);
}

}  // namespace

TEST_CASE("entries are laid out without gaps, the widest types first, and otherwise in their order") {
  std::vector<Entry> entries{{"a", DType::u8, {3}},
                             {"b", DType::f32, {2}},
                             {"c", DType::f64, {}},
                             {"d", DType::i32, {0, 5}},
                             {"e", DType::i64, {1}}};
  safetensors::lay_out(entries);
  std::string order;
  std::uint64_t next = 0;
  for (const Entry& entry : entries) {
    order += entry.name;
    CHECK(entry.begin == next);
    CHECK(entry.begin % size_of(entry.dtype) == 0);
    next = entry.end;
  }
  CHECK(order == "cebda");
  CHECK(next == 27);
}

TEST_CASE("a header is read as it was written, with its metadata") {
  std::vector<Entry> entries{{"größe/\"x\"\n", DType::bf16, {2, 3}}, {"", DType::f16, {}}, {"none", DType::u8, {0}}};
  safetensors::lay_out(entries);
  const WeightsMetadata metadata{{"größe \"x\"\n", std::string{"a\0\x7f\xf0\x9f\x98\x80", 7}}, {"", ""}};
  const std::string header = safetensors::header_of({entries, metadata}, "FILE");
  CHECK(header.size() % 8 == 0);
  const std::span<const std::byte> bytes = bytes_of(header);
  CHECK(safetensors::header_length(bytes.first<8>()) == header.size() - 8);
  const auto [read, read_metadata] = safetensors::parse_header(header.substr(8), 14, "FILE");
  CHECK(read_metadata == metadata);
  REQUIRE(read.size() == entries.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    CHECK(read[i].name == entries[i].name);
    CHECK(read[i].dtype == entries[i].dtype);
    CHECK(read[i].shape == entries[i].shape);
    CHECK(read[i].begin == entries[i].begin);
    CHECK(read[i].end == entries[i].end);
  }
}

TEST_CASE("names that the format cannot hold are refused") {
  const auto fault = [](const char* name) {
    try {
      (void)safetensors::header_of({.entries = {{name, DType::u8, {}, 0, 1}}, .metadata = {}}, "FILE");
    } catch (const CheckpointError& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(fault("w\xff") == "checkpoint FILE: the name \"w\\ufffd\" is no text in UTF-8");
  CHECK(fault("__metadata__") ==
        "checkpoint FILE: no entry can be called __metadata__: the format has that name for itself");
}

TEST_CASE("metadata that a header cannot hold are refused") {
  const auto fault = [](const WeightsMetadata& metadata) {
    try {
      safetensors::require_writable(metadata);
    } catch (const InvalidArgument& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(fault({{"model", "größe"}}) == "");
  CHECK(fault({{"model", "w\xff"}}) == "the metadata \"model\" is no text in UTF-8");
  CHECK(fault({{"\xc3", ""}}) == "the metadata \"\\ufffd\" is no text in UTF-8");
  CHECK(fault({{"writer", "me"}}) == "metadata called 'writer', which says that lockstep wrote the file");
  CHECK_THROWS_WITH(safetensors::header_of({.entries = {}, .metadata = {{"a", std::string(100'000'000, 'x')}}}, "FILE"),
                    "checkpoint FILE: would begin with a header of 100000048 bytes; expected at most 100000000, as the "
                    "safetensors format has it");
}

TEST_CASE("a header that is none is told from one") {
  const std::string expected = "; expected a file in the safetensors format";
  for (const char* header : {"", "{", "{}}", "\x89PNG", "{\"w\": 1e999}", "{\"w\xff\": 1}"})
    CHECK_THAT(fault_in(header, 0), Catch::StartsWith("its header is no JSON from byte ") && Catch::EndsWith(expected));
  CHECK(fault_in("[]", 0) == "its header is no JSON object" + expected);
  CHECK(fault_in(std::string(100'000, '['), 0) == "its header is nested more than 32 levels deep" + expected);
  const std::string entry = R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  CHECK(fault_in("{" + entry + "," + entry + "}", 0) == R"(its header has the key "w" twice in one object)" + expected);
  CHECK(fault_in(R"({"__metadata__":{"a":"b","writer":"others"}})", 0) == "nothing");
  CHECK(safetensors::parse_header(R"({"__metadata__":{"writer":"others"}})", 0, "FILE").metadata.contains("writer"));
  CHECK(fault_in(R"({"__metadata__":{"a":1}})", 0) == R"(__metadata__: expected texts by name, got {"a":1})");
}

TEST_CASE("every field of an entry is checked, and named") {
  CHECK(fault_in_entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])") == "nothing");
  CHECK(fault_in(R"({"w":[]})", 0) == R"(entry "w": expected {"dtype": …, "shape": …, "data_offsets": …}, got [])");
  CHECK(fault_in_entry(R"("dtype":"F32","shape":[2],"offsets":[0,8])") == R"(entry "w": has no data_offsets)");
  CHECK(fault_in_entry(R"("dtype":8,"shape":[8],"data_offsets":[0,8])") ==
        R"(entry "w": expected the name of a type as its dtype, got 8)");
  for (const char* shape : {"2", "[-2]", "[2.0]", "[\"2\"]", "{}"})
    CHECK_THAT(fault_in_entry(std::string{R"("dtype":"F32","data_offsets":[0,8],"shape":)"} + shape),
               Catch::Contains("expected a list of whole numbers as its shape"));
  for (const char* offsets : {"[0]", "[0,8,8]", "[8,0]"})
    CHECK_THAT(fault_in_entry(std::string{R"("dtype":"F32","shape":[2],"data_offsets":)"} + offsets),
               Catch::Contains("expected the data_offsets [begin, end]"));
  CHECK(fault_in_entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])") ==
        R"(entry "w": ends at byte 12 of the data, of which there are 8; expected the whole file)");
  CHECK(fault_in_entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])") ==
        R"(entry "w": its 8 bytes are not those of f32[3])");
  CHECK_THAT(fault_in(R"({"a\nb":{}})", 0), Catch::StartsWith(R"(entry "a\nb": )"));
}

TEST_CASE("sizes that overflow are no way around the checks") {
  const auto fault = [](const char* shape) {
    return fault_in_entry(std::string{R"("dtype":"F64","data_offsets":[0,8],"shape":)"} + shape);
  };
  // 2^61 + 1 elements of 8 bytes are 8 bytes, in 64 bits.
  CHECK_THAT(fault("[2305843009213693953]"), Catch::Contains("its 8 bytes are not those of"));
  CHECK_THAT(fault("[4294967296,4294967296]"), Catch::Contains("its 8 bytes are not those of"));
  CHECK_THAT(fault("[18446744073709551615]"), Catch::Contains("expected a shape that memory can hold"));
}

TEST_CASE("what the format allows and lockstep does not have is listed, and keeps nobody from the rest") {
  const TemporaryDirectory folder;
  // A header whose length is no multiple of 8, with a field that is not in the format, and spaces after it.
  const std::string header =
      R"({"__metadata__":null,"q":{"dtype":"F8_E4M3","shape":[2,1],"data_offsets":[4,6]},)"
      R"("d":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[6,10],"scale":{"a":[[1]]}},)"
      R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":"mine"}} )";
  REQUIRE(header.size() % 8 != 0);
  const std::uint64_t length = header.size();
  const auto write = [&](float value) {
    return folder.write("c", std::string{reinterpret_cast<const char*>(&length), sizeof length} + header +
                                 std::string{reinterpret_cast<const char*>(&value), sizeof value} + "\1\2abcd");
  };
  const auto path = write(1.5F);
  const OpenTensorFile file{path};
  std::vector<std::string> described;
  for (const Entry& entry : file.entries()) described.push_back(entry.name + " " + describe(entry));
  CHECK(described == std::vector<std::string>{"w f32[1]", "q F8_E4M3[2, 1]", "d F32[1, 1, 1, 1, 1, 1, 1, 1, 1]"});
  CHECK(file.read(file.entries()[0]).to_vector<float>() == std::vector<float>{1.5F});
  CHECK(file.read(file.entries()[1]).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 2});
  CHECK(file.metadata().empty());

  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const auto weight = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {1}); });
  const auto q = strategy.create_variable({.name = "q"}, [] { return Tensor::zeros(DType::u8, {2}); });
  strategy.seal();
  const auto loaded = load_weights(strategy, path);
  CHECK(loaded.taken == 1);
  CHECK(loaded.rest == "has 'q' as F8_E4M3[2, 1], and the variable is u8[2]; has 'd', which no variable is called");
  CHECK(weight.local().to_vector<float>() == std::vector<float>{1.5F});
  CHECK_THROWS_WITH(restore_checkpoint(strategy, path), Catch::Contains("has the entry 'd'"));
}

TEST_CASE("every byte of the data belongs to one entry") {
  const auto fault = [](const char* a, const char* b, std::uint64_t data_bytes) {
    return fault_in(std::string{R"({"a":{"dtype":"U8",)"} + a + R"(},"b":{"dtype":"U8",)" + b + "}}", data_bytes);
  };
  constexpr const char* first = R"("shape":[4],"data_offsets":[0,4])";
  CHECK(fault(first, R"("shape":[4],"data_offsets":[4,8])", 8) == "nothing");
  CHECK(fault(first, R"("shape":[0],"data_offsets":[4,4])", 4) == "nothing");
  CHECK(fault(first, R"("shape":[4],"data_offsets":[3,7])", 7) ==
        R"(entry "b" begins at byte 3 of the data, inside another that ends at 4)");
  CHECK(fault(first, R"("shape":[4],"data_offsets":[6,10])", 10) == "bytes 4 to 6 of its data belong to no entry");
  CHECK(fault(first, R"("shape":[4],"data_offsets":[4,8])", 9) == "bytes 8 to 9 of its data belong to no entry");
}

TEST_CASE("a file is there when it is committed, and not before") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "c";
  folder.write("c", "older");
  {
    NewFile file{path};
    file.write(bytes_of("never"));
    CHECK(read_file(path) == "older");
  }
  CHECK_FALSE(std::filesystem::exists(folder.path() / ".c.part"));
  CHECK(read_file(path) == "older");
  {
    NewFile file{path};
    file.write(bytes_of("new"));
    file.write(bytes_of("er"));
    file.commit();
  }
  CHECK(read_file(path) == "newer");
  CHECK_FALSE(std::filesystem::exists(folder.path() / ".c.part"));
}

TEST_CASE("a disk that is full leaves what was there") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "c";
  folder.write("c", "older");
  // In a process of its own: the limit stands for the disk.
  test::ChildProcess child{[&] {
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_IGN);
    try {
      NewFile file{path};
      file.write(bytes_of(std::string(5000, 'x')));
      file.commit();
    } catch (const CheckpointError& error) {
      return error.what() ==
                     "checkpoint " + path.string() +
                         ": cannot be written: File too large (this process may make files of 1000 bytes, ulimit -f)"
                 ? 0
                 : 1;
    }
    return 2;
  }};
  CHECK(child.wait() == 0);
  CHECK(read_file(path) == "older");
  CHECK_FALSE(std::filesystem::exists(folder.path() / ".c.part"));
}

TEST_CASE("a link where a file is to be made is not followed, and a file of another name is left alone") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "c";
  const auto notes = folder.write("notes", "mine");
  std::filesystem::create_symlink(notes, folder.path() / ".c.part");
  std::filesystem::create_symlink(notes, path);
  // A name that downloads have, too.
  const auto part = folder.write("c.part", "mine");
  NewFile file{path};
  file.write(bytes_of("new"));
  file.commit();
  CHECK(read_file(path) == "new");
  CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(path)));
  CHECK(read_file(notes) == "mine");
  CHECK(read_file(part) == "mine");
}

TEST_CASE("a pipe is not waited for, and a folder is no file") {
  const TemporaryDirectory folder;
  const auto pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(ExistingFile{pipe}, Catch::EndsWith("is a pipe, not a regular file"));
  CHECK_THROWS_WITH(ExistingFile{folder.path()}, Catch::EndsWith("is a folder, not a regular file"));
}

TEST_CASE("a file that became shorter is noticed") {
  const TemporaryDirectory folder;
  const auto path = folder.write("c", "0123456789");
  const ExistingFile file{path};
  CHECK(file.size() == 10);
  std::filesystem::resize_file(path, 5);
  std::byte bytes[6];
  CHECK_THROWS_WITH(file.read(2, bytes), Catch::EndsWith("became shorter while it was read"));
}

TEST_CASE("while the chief writes, its row says that it works alone: the others' wait is no stall") {
  const TemporaryDirectory folder;
  PhaseTable table{SharedMemory::create(PhaseTable::bytes_for(1)), 1, 0};
  std::atomic<bool> alone{false}, over{false};
  std::thread reader{[&] {
    alone = test::eventually([&] { return table.read(0).phase == Phase::alone; });
    over = true;
  }};
  const auto group = make_local_group();
  group->meeting().set_phases(&table);
  Strategy strategy = strategy_on(*group);
  (void)strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.0F); });
  strategy.seal();
  while (!over) save_checkpoint(strategy, folder.path() / "c");
  reader.join();
  CHECK(alone);
  CHECK(table.read(0).phase == Phase::computing);
}

TEST_CASE("the length of a header is compared with the file and with the format's limit, before memory is taken") {
  const TemporaryDirectory folder;
  const auto fault = [&](std::uint64_t length, std::uint64_t file_bytes) {
    const auto path = folder.write("c", std::string{reinterpret_cast<const char*>(&length), sizeof length} + "{");
    std::filesystem::resize_file(path, file_bytes);  // a hole: it takes no place on the disk
    try {
      (void)read_tensors(path, {});
    } catch (const CheckpointError& error) {
      return std::string{error.what()}.substr(("checkpoint " + path.string() + ": ").size());
    }
    return std::string{"nothing"};
  };
  constexpr std::uint64_t enough = 200'000'000;
  CHECK(fault(std::uint64_t{1} << 40, enough) ==
        "begins with a header of 1099511627776 bytes, and has 199999992 more; expected a whole file in the safetensors "
        "format");
  CHECK(fault(100'000'001, enough) ==
        "begins with a header of 100000001 bytes; expected at most 100000000, as the safetensors format has it");
  CHECK(fault(10, enough) == "its header is no JSON from byte 2 on; expected a file in the safetensors format");
}

TEST_CASE("optimizers go on from the steps that older releases counted together, with a warning") {
  const Tensor shared = Tensor::scalar(std::int64_t{7}), second = Tensor::scalar(std::int64_t{0}),
               third = Tensor::scalar(std::int64_t{0}), named = Tensor::scalar(std::int64_t{0});
  const std::vector<NamedTensor> all{{"optimizer@steps", shared.view()},
                                     {"optimizer_1@steps", second.view()},
                                     {"optimizer_2@steps", third.view()},
                                     {"mine@steps", named.view()}};
  const auto restored = [&](const std::vector<std::string>& there) {
    std::vector<NamedTensor> wanted = all;
    SharedCounter counter;
    counter.take_missing(wanted, [&](std::string_view name) { return std::ranges::find(there, name) != there.end(); });
    counter.restore("run1");
    std::vector<std::string> left;
    for (const NamedTensor& each : wanted) left.push_back(each.name);
    return left;
  };
  CapturedStderr captured;
  const std::vector<std::string> names{"optimizer@steps", "optimizer_1@steps", "optimizer_2@steps", "mine@steps"};
  CHECK(restored(names) == names);
  CHECK(restored({}) == names);  // what is missing is told
  CHECK(captured.text().empty());
  CHECK(restored({"optimizer@steps", "optimizer_2@steps"}) ==
        std::vector<std::string>{"optimizer@steps", "optimizer_2@steps", "mine@steps"});
  CHECK(second.view().elements<std::int64_t>()[0] == 7);
  CHECK(third.view().elements<std::int64_t>()[0] == 0);
  CHECK_THAT(captured.text(),
             Catch::Contains("checkpoint run1: has no 'optimizer_1@steps'; takes the 7 steps of 'optimizer@steps', in "
                             "which older releases counted the steps of all optimizers"));
}
