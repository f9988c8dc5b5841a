// File systems that lack something: a checkpoint is written all the same, with one warning.
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "checkpoint_support.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

/// What a process says whose file system lacks a call: 99 lines for one that fails. It begins without having warned.
struct Without {
  int status;
  std::string err;
};

Without without(std::string_view call, int error, const fs::path& said, const std::function<void()>& body) {
  ChildProcess process{[&] {
    CapturedStderr captured;
    mishap = {.kind = Mishap::Kind::lack, .error = error, .lacks = call};
    int status = 0;
    try {
      body();
    } catch (const Error& failure) {
      status = 1;
    }
    mishap = {};
    std::ofstream{said} << captured.text();
    return status;
  }};
  const int status = process.wait();
  return {status, read_file(said)};
}

std::size_t warnings_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("warning: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

TEST_CASE("what a file system lacks costs one warning, and no checkpoint") {
  struct Lack {
    const char* call;
    std::size_t warnings;
  };
  // Files and folders are synced by one call.
  for (const auto& [call, warnings] : {Lack{"symlink", 1}, Lack{"fsync", 2}, Lack{"rename", 1}, Lack{"renameat2", 0}})
    for (const int error : {EPERM, EACCES, ENOSYS, EOPNOTSUPP, EINVAL, EROFS}) {
      CAPTURE(call, error);
      const TemporaryDirectory folder, elsewhere;
      const fs::path all = folder.path();
      const Without result = without(call, error, elsewhere.path() / "said", [&] {
        for (const int step : {1, 2, 3}) {
          Training{static_cast<float>(step)}.save(all, step, CheckpointLoss{1, 0.5});
          remove_old_checkpoints(all, 1, all / checkpoint_name(step));
        }
        Training{4}.save(all, 3, CheckpointLoss{1, 0.5});  // in the place of the other
      });
      INFO(result.err);
      CHECK(result.status == 0);
      CHECK(warnings_in(result.err) == warnings);
      CHECK(weight_in(all / "step-3") == 4);
      CHECK(checkpoint_at(all / "latest") == all / "step-3");
      CHECK(checkpoint_at(all / "best") == all / "step-1");
      for (const std::string& name : names_in(all)) CHECK_FALSE(name.starts_with("."));
    }
}

TEST_CASE("what is no lack is a failure, with one line") {
  for (const char* call : {"symlink", "fsync", "rename"})
    for (const int error : {ENOSPC, EIO, EDQUOT}) {
      CAPTURE(call, error);
      const TemporaryDirectory folder, elsewhere;
      const Without result = without(call, error, elsewhere.path() / "said", [&] {
        for (const int step : {1, 2}) Training{1}.save(folder.path(), step);
      });
      CHECK(result.status == 1);
      CHECK(warnings_in(result.err) == 0);
    }
}

TEST_CASE(
    "each call in turn that is refused as unsupported costs a warning, or the checkpoint and not the one before") {
  const int error = GENERATE(EPERM, EOPNOTSUPP, EINVAL);
  const std::int64_t step = GENERATE(1, 2);
  CAPTURE(error, step);
  const TemporaryDirectory elsewhere;
  int refused = 0, without_harm = 0;
  for (bool finished = false; !finished; refused += finished ? 0 : 1) {
    const TemporaryDirectory folder;
    Training{1}.save(folder.path(), 1);
    CapturedStderr captured;
    mishap = {.kind = Mishap::Kind::fail, .error = error, .calls_before = refused};
    std::string told;
    try {
      Training{2}.save(folder.path(), step);
    } catch (const CheckpointError& failure) {
      told = failure.what();
    }
    finished = mishap.calls <= refused;
    mishap = {};
    CAPTURE(refused, told);
    without_harm += told.empty() && !finished ? 1 : 0;
    CHECK((told.empty() || told.find(std::strerror(error)) != std::string::npos));
    const float newest = weight_in(checkpoints_in(folder.path()).front());
    CHECK((newest == 2 || (newest == 1 && !told.empty())));
    CHECK(weight_in(checkpoint_at(folder.path() / "latest")) == newest);
  }
  CHECK(without_harm > 5);
}

TEST_CASE("checkpoints are set aside without links and syncs") {
  for (const char* call : {"symlink", "fsync", "rename"}) {
    const TemporaryDirectory folder, elsewhere;
    for (const int step : {20, 30}) Training{static_cast<float>(step)}.save(folder.path(), step);
    const Without result =
        without(call, EPERM, elsewhere.path() / "said", [&] { (void)set_aside_after(folder.path(), 20, {}); });
    CAPTURE(call, result.err);
    CHECK(result.status == 0);
    CHECK(checkpoint_at(folder.path() / "latest") == folder.path() / "step-20");
  }
}

TEST_CASE("a folder on a file system with neither locks nor leases is used all the same, with a warning") {
  const TemporaryDirectory folder, elsewhere;
  const Without result = without("mkdir", EOPNOTSUPP, elsewhere.path() / "said", [&] {
    for (int use = 0; use < 2; ++use) {
      ExclusiveUse both{{.file = folder.path() / ".lock",
                         .lease = folder.path() / ".lease",
                         .name = "run1",
                         .expected = "",
                         .file_system = ExclusiveUse::Options::FileSystem::without_locks}};
      both.require();
    }
  });
  CHECK(result.status == 0);
  CHECK(warnings_in(result.err) == 1);
  CHECK_THAT(result.err, Catch::Contains("has neither locks nor what a lease needs (Operation not supported): another "
                                         "training could use run1 at the same time"));
}

TEST_CASE("a file replaces one where no rename does, and what was there stays if that fails") {
  const TemporaryDirectory folder, elsewhere;
  const fs::path path = folder.write("c", "older");
  const auto replace = [&](std::string_view call) {
    return without(call, EEXIST, elsewhere.path() / "said", [&] {
      NewFile file{path};
      file.write(std::as_bytes(std::span{"newer", 5}));
      file.commit();
    });
  };
  CHECK(replace("rename").status == 0);
  CHECK(read_file(path) == "newer");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
}

TEST_CASE("a file that a killed process had moved out of the way of a new one is put back, or goes if there is one") {
  const TemporaryDirectory folder;
  for (const char* left : {"", "newer"}) {
    folder.write(".c.old.part", "older");
    const fs::path path = folder.path() / "c";
    fs::remove(path);
    if (*left) folder.write("c", left);
    { const NewFile begun{path}; }
    CHECK(read_file(path) == (*left ? left : "older"));
    CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
  }
}
