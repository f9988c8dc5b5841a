// Checkpoints as folders: what they hold, and that a writer which ends or fails at any point leaves a whole one.
#include "sync/checkpoint/checkpoint_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "checkpoint_support.hpp"
#include "core/base/digest.hpp"
#include "core/base/foreign_json.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/thread_faults.hpp"
#include "sync/checkpoint/checkpoint_writer.hpp"
#include "sync/checkpoint/program_state.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

Mishap lockstep::test::mishap;

namespace {

bool is_there(const char* path) {
  struct stat status = {};
  return ::syscall(SYS_newfstatat, AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

/// The result of a call: that of `call`, unless the mishap strikes here. `replaces`: whether it is a rename to a name
/// that is there.
long at_call(const char* name, const std::function<long()>& call, const std::function<bool()>& replaces = {}) {
  const auto fail = [] {
    errno = mishap.error;
    return -1L;
  };
  switch (mishap.kind) {
    case Mishap::Kind::none: break;
    case Mishap::Kind::kill:
    case Mishap::Kind::fail:
      if (mishap.calls++ != mishap.calls_before) break;
      if (mishap.kind == Mishap::Kind::kill) ::raise(SIGKILL);
      return fail();
    case Mishap::Kind::lack:
      if (mishap.lacks != name || (replaces && !replaces())) break;
      ++mishap.calls;
      return fail();
  }
  return call();
}

}  // namespace

// The library's calls to the file system.
extern "C" {
ssize_t write(int descriptor, const void* data, std::size_t bytes) {
  return at_call("write", [&] { return ::syscall(SYS_write, descriptor, data, bytes); });
}
// No machine crashes here, and a disk would take its time.
int fsync(int) {
  return static_cast<int>(at_call("fsync", [] { return 0L; }));
}
int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(at_call(
      "rename", [&] { return ::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to); }, [&] { return is_there(to); }));
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return static_cast<int>(
      at_call("renameat2", [&] { return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags); }));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(at_call("mkdir", [&] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}
int symlink(const char* target, const char* path) noexcept {
  return static_cast<int>(at_call("symlink", [&] { return ::syscall(SYS_symlinkat, target, AT_FDCWD, path); }));
}
}

namespace {

std::string fault_in(const fs::path& checkpoint) {
  try {
    (void)weight_in(checkpoint);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "nothing";
}

/// The text of a manifest in which `old` has been replaced.
void edit_manifest(const fs::path& checkpoint, const std::string& old, const std::string& text) {
  std::string manifest = read_file(checkpoint / "manifest.json");
  const std::size_t at = manifest.find(old);
  REQUIRE(at != std::string::npos);
  manifest.replace(at, old.size(), text);
  std::ofstream{checkpoint / "manifest.json", std::ios::binary} << manifest;
}

}  // namespace

TEST_CASE("a manifest is read as it was written") {
  const Manifest manifest{.step = 12,
                          .best = CheckpointLoss{.step = 9, .loss = 0.1},
                          .training = {{"model", "mlp \"a\""}, {"seed", "1"}},
                          .kernels = "oneDNN",
                          .compression = "bf16",
                          .state = {{"fit", "{\"x\":1}"}},
                          .metadata = {{"model", "\"ü\""}},
                          .files = {{"weights.safetensors", 123, {{"w", 0xfedcba9876543210}, {"v", 1}}}}};
  CHECK(parse_manifest(to_json(manifest), "FILE") == manifest);
  CHECK(parse_manifest(to_json({}), "FILE") == Manifest{});
  // Names in another encoding, such as of a column, do not make it unreadable.
  CHECK(parse_manifest(to_json({.kernels = "a\xff"}), "FILE").kernels == "a\xef\xbf\xbd");
}

TEST_CASE("metadata are in the file of weights and in the manifest, and nowhere if there are none") {
  const TemporaryDirectory folder;
  Training{1}.save(folder.path(), 1);
  const fs::path checkpoint = folder.path() / "step-1";
  CHECK(read_checkpoint(checkpoint).metadata == WeightsMetadata{{"model", "small"}});
  CHECK(OpenTensorFile{checkpoint / "weights.safetensors"}.metadata() == WeightsMetadata{{"model", "small"}});
  CHECK(OpenTensorFile{checkpoint / "optimizer.safetensors"}.metadata().empty());
  // As releases wrote it that had none.
  CHECK(to_json({}).find("metadata") == std::string::npos);
}

TEST_CASE("a difference is told in the order of this training's facts, then of the other's") {
  CHECK(difference({{"a", "1"}, {"b", "2"}}, {{"b", "2"}, {"a", "1"}}) == "");
  CHECK(difference({{"a", "1"}, {"b", "2"}}, {{"b", "3"}, {"a", "4"}}) ==
        "is of a training with b 2, and this one has 3");
  CHECK(difference({}, {{"a", "1"}}) == "does not say its a, and this training has 1");
  CHECK(difference({{"a", "1"}}, {}) == "is of a training with a 1, and this one has none");
}

TEST_CASE("checkpoints are listed by step, the newest first, and old ones go with what killed writers left") {
  const TemporaryDirectory folder;
  CHECK(checkpoints_in(folder.path() / "none").empty());
  for (const int step : {9, 100, 20}) Training{1}.save(folder.path(), step);
  for (const char* other : {"step-", "step-7x", "step-07", "steps-8", ".step-3.part"})
    fs::create_directory(folder.path() / other);
  std::vector<std::string> names;
  for (const fs::path& path : checkpoints_in(folder.path())) names.push_back(path.filename());
  CHECK(names == Names{"step-100", "step-20", "step-9"});
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-20");

  remove_old_checkpoints(folder.path(), 2, folder.path() / "step-9");
  CHECK(names_in(folder.path()) ==
        Names{"latest", "step-", "step-07", "step-100", "step-20", "step-7x", "step-9", "steps-8"});
  remove_old_checkpoints(folder.path(), 1, folder.path() / "step-100");
  CHECK(names_in(folder.path()) == Names{"latest", "step-", "step-07", "step-100", "step-7x", "steps-8"});
}

TEST_CASE("a checkpoint that a killed writer had moved out of the way of a new one is put back") {
  const TemporaryDirectory folder;
  Training{1}.save(folder.path(), 1);
  fs::rename(folder.path() / "step-1", folder.path() / ".step-1.old.part");
  Training{2}.save(folder.path(), 2);
  fs::create_directory(folder.path() / ".step-2.old.part");
  CheckpointWriter{folder.path(), 3}.hold();
  CHECK(weight_in(folder.path() / "step-1") == 1);
  CHECK(weight_in(folder.path() / "step-2") == 2);
  CHECK_FALSE(fs::exists(folder.path() / ".step-2.old.part"));
}

TEST_CASE("an old checkpoint that cannot be removed is a warning, once, and the others go") {
  const TemporaryDirectory folder;
  for (const int step : {1, 2}) Training{1}.save(folder.path(), step);
  Manifest manifest{.step = 3};
  const Training newest{3};
  const auto write = [&](CheckpointWriter& writer, std::int64_t step) {
    manifest.step = step;
    writer.write(manifest, newest.files(), Stream::host());
    writer.wait();
  };
  {
    CheckpointWriter counted{folder.path(), 2};
    mishap = {.kind = Mishap::Kind::fail, .error = EPERM, .calls_before = 1'000'000};
    write(counted, 3);
  }
  const int calls = mishap.calls;  // of which the last one removes step-1
  test::CapturedStderr captured;
  CheckpointWriter writer{folder.path(), 1};
  mishap = {.kind = Mishap::Kind::fail, .error = EPERM, .calls_before = calls - 1};
  write(writer, 4);  // which removes step-3 first, and then step-2
  CHECK(captured.text().find("step-3 cannot be removed: Operation not permitted") != std::string::npos);
  CHECK(names_in(folder.path()) == Names{".lock", "latest", "step-3", "step-4"});
  // It has locked the folder already, which took one call.
  mishap = {.kind = Mishap::Kind::fail, .error = EPERM, .calls_before = calls - 2};
  write(writer, 5);
  mishap = {};
  CHECK(names_in(folder.path()) == Names{".lock", "latest", "step-4", "step-5"});
  CHECK(captured.text().find("cannot be removed") == captured.text().rfind("cannot be removed"));
}

TEST_CASE("a checkpoint for which the system has no thread is a checkpoint that fails, and the next is written") {
  const TemporaryDirectory folder;
  CheckpointWriter writer{folder.path(), 3};
  const Training newest{3};
  const auto write = [&](std::int64_t step) { writer.write({.step = step}, newest.files(), Stream::host()); };
  {
    const NoThreads none;
    CHECK_THROWS_AS(write(1), CheckpointError);
    CHECK_THROWS_WITH(write(1), Catch::StartsWith(folder.path().string() +
                                                  ": no thread for writing a checkpoint could be started: "));
  }
  write(2);
  writer.wait();
  CHECK(names_in(folder.path()) == Names{".lock", "latest", "step-2"});
}

TEST_CASE("the best checkpoint stays, and one that is not there does not take its place") {
  const TemporaryDirectory folder;
  const auto save = [&](std::int64_t step, CheckpointLoss best) {
    Training{1}.save(folder.path(), step, best);
    remove_old_checkpoints(folder.path(), 1, folder.path() / checkpoint_name(step));
    return fs::read_symlink(folder.path() / "best");
  };
  CHECK(save(1, {1, 0.5}) == "step-1");
  CHECK(save(2, {1, 0.5}) == "step-1");
  CHECK(save(4, {3, 0.4}) == "step-1");
  CHECK(names_in(folder.path()) == Names{"best", "latest", "step-1", "step-4"});
  CHECK(save(5, {5, 0.3}) == "step-5");
  CHECK(names_in(folder.path()) == Names{"best", "latest", "step-5"});
}

TEST_CASE("a checkpoint that was damaged is refused with the reason") {
  const TemporaryDirectory folder;
  Training{1.5}.save(folder.path(), 3);
  const fs::path checkpoint = folder.path() / "step-3";
  REQUIRE(weight_in(checkpoint) == 1.5);
  const auto damaged = [&](const std::function<void()>& damage) {
    const fs::path whole = folder.path() / "whole";
    fs::copy(checkpoint, whole, fs::copy_options::recursive);
    damage();
    const std::string fault = fault_in(checkpoint);
    fs::remove_all(checkpoint);
    fs::rename(whole, checkpoint);
    return fault;
  };
  const auto edited = [&](const std::string& old, const std::string& text) {
    return damaged([&] { edit_manifest(checkpoint, old, text); });
  };
  const std::string manifest = "checkpoint " + (checkpoint / "manifest.json").string() + ": ";
  const std::string weights = "checkpoint " + (checkpoint / "weights.safetensors").string() + ": ";
  const auto flip = [&](const char* name, std::streamoff from_end) {
    std::fstream file{checkpoint / name, std::ios::in | std::ios::out | std::ios::binary};
    file.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(file.peek() ^ 1);
    file.seekp(-from_end, std::ios::end);
    file.put(byte);
  };

  CHECK_THAT(damaged([&] { fs::remove(checkpoint / "manifest.json"); }),
             Catch::StartsWith(manifest + "cannot be read"));
  CHECK_THAT(damaged([&] { fs::resize_file(checkpoint / "manifest.json", 40); }),
             Catch::StartsWith(manifest + "is no manifest: "));
  CHECK_THAT(
      edited("\"format\": 1", "\"format\": 2"),
      Catch::StartsWith(manifest + "was written in format 2 by \"lockstep ") && Catch::Contains("up to format 1"));
  CHECK_THAT(edited("\"step\": 3", "\"step\": -3"), Catch::Contains("\"step\" is -3; expected a whole number"));
  CHECK_THAT(edited("\"step\": 3", "\"step\": 1e99"), Catch::Contains("expected a whole number"));
  CHECK_THAT(edited("\"seed\": \"1\"", "\"seed\": 1"), Catch::StartsWith(manifest + "is no manifest: "));
  CHECK_THAT(edited("weights.safetensors", "../weights.safetensors"),
             Catch::Contains(R"(it names a file "../weights)"));
  CHECK_THAT(edited("\"w\": \"", "\"w\": \"x"), Catch::Contains("expected 16 hexadecimal digits"));
  for (const auto& [old, text] : {std::pair{"\"w\":", "\"v\":"}, std::pair{"\"step\": 3", "\"step\": 4"}})
    CHECK(edited(old, text) == manifest + "has been altered: its digest is another");
  CHECK(damaged([&] { flip("weights.safetensors", 1); }) ==
        weights + "entry 'w' has been altered: its digest is not the manifest's");
  const Training same{1.5};
  CHECK(damaged([&] {
          write_tensors(checkpoint / "weights.safetensors", same.files()[0].tensors, {{"model", "other"}});
        }) == weights + "its metadata have been altered: they are not the manifest's");
  CHECK_THAT(damaged([&] { fs::resize_file(checkpoint / "weights.safetensors", 50); }),
             Catch::StartsWith(weights + "has 50 bytes; expected "));
  CHECK_THAT(damaged([&] { fs::remove(checkpoint / "optimizer.safetensors"); }),
             Catch::Contains("optimizer.safetensors: cannot be read"));
  CHECK(fault_in(checkpoint) == "nothing");
}

TEST_CASE("a manifest that nobody damaged by accident is refused with the reason") {
  const TemporaryDirectory folder;
  Training{1.5}.save(folder.path(), 3);
  const fs::path checkpoint = folder.path() / "step-3", path = checkpoint / "manifest.json";
  const Manifest whole = read_checkpoint(checkpoint);
  const auto fault = [&](const std::string& text) {
    std::ofstream{path, std::ios::binary} << text;
    const std::string words = fault_in(checkpoint), begin = "checkpoint " + path.string() + ": ";
    return words.starts_with(begin) ? words.substr(begin.size()) : words;
  };
  // With a digest that is right.
  const auto fault_of = [&](const std::function<void(Manifest&)>& change) {
    Manifest manifest = whole;
    change(manifest);
    return fault(to_json(manifest));
  };
  CHECK(fault_of([](Manifest& manifest) { manifest.step = 4; }) == "is of step 4; expected 3, as its folder is called");
  CHECK(fault_of([](Manifest& manifest) { manifest.files.clear(); }) == "names no weights.safetensors");
  CHECK(fault_of([](Manifest& manifest) { manifest.files[0].name.push_back('\0'); }) ==
        R"(is no manifest: it names a file "weights.safetensors\u0000"; expected one in its folder)");
  CHECK_THAT(fault_of([](Manifest& manifest) { manifest.files.pop_back(); }),
             Catch::EndsWith("step-3: has no optimizer.safetensors"));
  CHECK_THAT(fault_of([](Manifest& manifest) { manifest.files[0].digests.clear(); }),
             Catch::EndsWith("weights.safetensors: entry 'w' has been altered: its digest is not the manifest's"));
  CHECK_THAT(fault_of([](Manifest& manifest) { manifest.metadata.clear(); }),
             Catch::EndsWith("weights.safetensors: its metadata have been altered: they are not the manifest's"));

  CHECK(fault(std::string(80'000, '[')) == "is no manifest: it is nested more than 32 levels deep");
  CHECK(fault("{\"format\":1,\"x\":" + std::string(80'000, '[') + std::string(80'000, ']') + "}") ==
        "is no manifest: it is nested more than 32 levels deep");
  CHECK(fault(R"({"format":1,"step":3,"step":3})") == R"(is no manifest: it has the key "step" twice in one object)");
  CHECK(fault("") == "is no manifest: it is no JSON from byte 1 on");
  CHECK(fault(R"({"format":0})") == "is no manifest: it is of format 0, which there never was");

  // Of what each value is.
  struct Case {
    const char *place, *value, *told;
  };
  for (const auto& [place, value, told] :
       {Case{"/step", "\"3\"", R"("step" is "3"; expected a whole number)"},
        Case{"/step", "3.0", R"("step" is 3.0; expected a whole number)"},
        Case{"/step", "18446744073709551615", R"("step" is 18446744073709551615; expected a whole number)"},
        Case{"/training", "[\"x\"]", R"("training" is ["x"]; expected an object)"},
        Case{"/training/seed", "1", R"("seed" is 1; expected a text)"},
        Case{"/kernels", "null", R"("kernels" is null; expected a text)"},
        Case{"/best", "{\"step\":3,\"loss\":\"x\"}", R"("loss" is "x"; expected a number)"},
        Case{"/best", "[]", R"(it has no "loss")"}, Case{"/state/a", "{}", R"("a" is {}; expected a text)"},
        Case{"/metadata", "{\"a\":[]}", R"("a" is []; expected a text)"},
        Case{"/files", "{\"x\":{\"bytes\":1}}", R"(it has no "digests")"},
        Case{"/files/weights.safetensors/digests/w", "\"12\"", R"("w" is "12"; expected 16 hexadecimal digits)"}}) {
    OrderedJson json = OrderedJson::parse(to_json(whole));
    json[OrderedJson::json_pointer{place}] = OrderedJson::parse(value);
    json.erase("digest");
    json["digest"] = to_hex(digest_of(json.dump()));
    CHECK(fault(json.dump()) == std::string{"is no manifest: "} + told);
  }
  const std::string quoted = fault(R"({"format":9,"program":")" + std::string(1'000'000, 'x') + "\"}");
  CHECK(quoted.size() < 300);
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THAT(fault_in(checkpoint), Catch::EndsWith("manifest.json: is a pipe, not a regular file"));
}

TEST_CASE("a writer that is killed at any call to the file system leaves the old checkpoint or the new one") {
  const std::int64_t step = GENERATE(1, 2);  // in the place of the old one, or beside it
  CAPTURE(step);
  int killed = 0;
  for (bool finished = false; !finished; killed += finished ? 0 : 1) {
    const TemporaryDirectory folder;
    Training{1}.save(folder.path(), 1);
    ChildProcess writer{[&] {
      mishap = {.kind = Mishap::Kind::kill, .calls_before = killed};
      Training{2}.save(folder.path(), step);
      return 0;
    }};
    const int status = writer.wait();
    finished = status == 0;
    REQUIRE((finished || status == -SIGKILL));
    CAPTURE(killed);
    const float newest = weight_in(checkpoints_in(folder.path()).front());
    CHECK((newest == 2 || (newest == 1 && !finished)));
    CHECK(weight_in(folder.path() / "latest") >= 1);
    // Nothing is left of it if the next one has nothing to save, but other files stay.
    std::ofstream{folder.path() / ".mine.part"};
    CheckpointWriter{folder.path(), 3}.hold();
    for (const std::string& name : names_in(folder.path()))
      CHECK((!name.starts_with('.') || name == ".mine.part" || name == ".lock"));
    for (const char* name : {".mine.part", ".lock"}) fs::remove(folder.path() / name);
    // The next writer is not in its way.
    Training{3}.save(folder.path(), step);
    remove_old_checkpoints(folder.path(), 1, folder.path() / checkpoint_name(step));
    CHECK(names_in(folder.path()) == Names{"latest", checkpoint_name(step)});
    CHECK(weight_in(folder.path() / "latest") == 3);
  }
  CHECK(killed > 15);
}

TEST_CASE("a writer whose call to the file system fails says so, and leaves the old checkpoint or the new one") {
  const auto [step, error] = GENERATE(table<std::int64_t, int>({{1, ENOSPC}, {2, EIO}}));
  CAPTURE(step, error);
  int failed = 0;
  for (bool finished = false; !finished; failed += finished ? 0 : 1) {
    const TemporaryDirectory folder;
    Training{1}.save(folder.path(), 1);
    mishap = {.kind = Mishap::Kind::fail, .error = error, .calls_before = failed};
    std::string told;
    try {
      Training{2}.save(folder.path(), step);
      finished = mishap.calls <= failed;
    } catch (const CheckpointError& failure) {
      told = failure.what();
    }
    mishap = {};
    CAPTURE(failed, told);
    CHECK((finished || told.find(std::strerror(error)) != std::string::npos));
    const float newest = weight_in(checkpoints_in(folder.path()).front());
    CHECK((newest == 2 || (newest == 1 && !finished)));
    for (const std::string& name : names_in(folder.path())) CHECK_FALSE(name.starts_with("."));
  }
  CHECK(failed > 15);
}
