// Checkpoints beside those of one training: those that it left, of others, damaged ones, and readers beside a writer.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "checkpoint_support.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "support/quiet_log.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/checkpoint_writer.hpp"
#include "sync/checkpoint/folder.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

void save_all(const fs::path& folder, const std::vector<int>& steps) {
  for (const int step : steps) Training{static_cast<float>(step)}.save(folder, step, CheckpointLoss{steps.back(), 1});
}

void flip_a_byte(const fs::path& checkpoint) {
  std::fstream file{checkpoint / "weights.safetensors", std::ios::in | std::ios::out | std::ios::binary};
  file.seekp(-1, std::ios::end);
  file.put('x');
}

void ignore(const CheckpointError&) {}

}  // namespace

TEST_CASE("what a training left is set aside, by name, and the links lead to what stays") {
  const TemporaryDirectory folder;
  save_all(folder.path(), {10, 20, 25, 30});
  CHECK(set_aside_after(folder.path(), 30, 10) == Names{});
  CHECK(set_aside_after(folder.path(), 20, 10) == Names{"step-30", "step-25"});
  CHECK(names_in(folder.path()) == Names{"best", "latest", "step-10", "step-20", "step-25.aside", "step-30.aside"});
  CHECK(fs::read_symlink(folder.path() / "latest") == "step-20");
  CHECK(fs::read_symlink(folder.path() / "best") == "step-10");
  CHECK(weight_in(folder.path() / "step-30.aside") == 30);  // for whoever names it
  Training{1}.save(folder.path(), 30);
  CHECK(set_aside_after(folder.path(), 20, {}) == Names{"step-30"});
  CHECK(names_in(folder.path()) ==
        Names{"latest", "step-10", "step-20", "step-25.aside", "step-30.aside", "step-30.aside-2"});
  CHECK(set_aside_after(folder.path(), none_stays, {}) == Names{"step-20", "step-10"});
  CHECK(checkpoints_in(folder.path()).empty());
  CHECK_FALSE(fs::is_symlink(fs::symlink_status(folder.path() / "latest")));
}

TEST_CASE("one that is killed while it sets checkpoints aside has set aside none or all, for every reader") {
  int killed = 0, begun = 0, untouched = 0;
  for (bool finished = false; !finished; killed += finished ? 0 : 1) {
    const TemporaryDirectory folder;
    save_all(folder.path(), {20, 25, 30});
    ChildProcess process{[&] {
      mishap = {.kind = Mishap::Kind::kill, .calls_before = killed};
      (void)set_aside_after(folder.path(), 20, {});
      return 0;
    }};
    const int status = process.wait();
    finished = status == 0;
    REQUIRE((finished || status == -SIGKILL));
    CAPTURE(killed);
    const std::string newest = checkpoints_in(folder.path()).front().filename();
    CHECK((newest == "step-20" || (newest == "step-30" && !finished)));
    ++(newest == "step-20" ? begun : untouched);
    if (newest != "step-20") continue;
    CHECK(weight_in(checkpoint_at(folder.path() / "latest")) >= 20);
    finish_setting_aside(folder.path());
    CHECK(checkpoint_at(folder.path() / "latest") == folder.path() / "step-20");
    Names names = names_in(folder.path());
    std::erase_if(names, [](const std::string& name) { return name.ends_with(".part"); });
    CHECK(names == Names{"latest", "step-20", "step-25.aside", "step-30.aside"});
  }
  CHECK(begun > 3);
  CHECK(untouched > 2);
}

TEST_CASE("a note about what stays that cannot be looked at is a failure, and not missing") {
  const TemporaryDirectory folder;
  save_all(folder.path(), {20, 30});
  const fs::path note = folder.path() / ".setting-aside";
  fs::create_symlink(note.filename(), note);  // stat says ELOOP
  CHECK_THROWS_WITH(checkpoints_in(folder.path()), Catch::Contains(note.string()) && Catch::Contains("cannot be read"));
  fs::remove(note);
  CHECK(checkpoints_in(folder.path()).size() == 2);
}

TEST_CASE("checkpoints that are damaged or foreign do not count among those that are kept") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  save_all(folder.path(), {10, 15, 18, 20, 21, 30});
  flip_a_byte(folder.path() / "step-18");
  {
    CheckpointWriter writer{folder.path(), 3};
    writer.begin(CheckpointWriter::Origin{20, {}}, 0);
    writer.set_foreign({15});
    const Training next{22};
    for (const std::int64_t step : {22, 24}) {
      writer.write({.step = step}, next.files(), Stream::host());
      writer.wait();
      const Names names = names_in(folder.path());
      CHECK(std::ranges::count(names, "step-10") == (step == 22 ? 1 : 0));
      CHECK(std::ranges::count(names, "step-20") == 1);
    }
  }
  CHECK(names_in(folder.path()) ==
        Names{".lock", "latest", "step-20", "step-21.aside", "step-22", "step-24", "step-30.aside"});
}

TEST_CASE("a training that restored nothing sets aside what is newer than its first checkpoint, once") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  save_all(folder.path(), {3, 9});
  CheckpointWriter writer{folder.path(), 3};
  const Training training{5};
  for (const std::int64_t step : {5, 4}) {
    writer.begin({}, step);
    writer.write({.step = step}, training.files(), Stream::host());
    writer.wait();
  }
  CHECK(names_in(folder.path()) == Names{".lock", "latest", "step-3", "step-4", "step-5", "step-9.aside"});
}

TEST_CASE("a reader takes what is there now for what was removed or replaced meanwhile, and calls nothing damaged") {
  const TemporaryDirectory folder;
  const fs::path all = folder.path();
  save_all(all, {1, 2, 3});
  int passed_over = 0, readings = 0;
  std::function<void()> meanwhile;
  const auto read = [&](const fs::path& checkpoint) {
    const Manifest manifest = read_checkpoint(checkpoint);
    if (++readings == 1) meanwhile();
    return read_tensors(open_checkpoint_file(checkpoint, manifest, "weights.safetensors"),
                        Training{0}.files().front().tensors)
        .front()
        .to_vector<float>()
        .front();
  };
  const auto newest_while = [&](std::function<void()> change) {
    meanwhile = std::move(change);
    readings = 0;
    return read_newest(all, read, [&](const CheckpointError&) { ++passed_over; }).value();
  };
  CHECK(newest_while([&] { remove_folder(all / "step-3"); }) == 2);
  CHECK(newest_while([&] { Training{7}.save(all, 2); }) == 7);
  CHECK(newest_while([&] {
          Training{8}.save(all, 4);
          remove_folder(all / "step-2");
        }) == 8);
  CHECK(passed_over == 0);

  const auto read_while = [&](const char* name, std::function<void()> change) {
    meanwhile = std::move(change);
    readings = 0;
    return read_checkpoint_at(all / name, read);
  };
  CHECK(read_while("latest", [&] {
          Training{9}.save(all, 5);
          remove_folder(all / "step-4");
        }) == 9);
  CHECK(read_while("step-5", [&] { Training{10}.save(all, 5); }) == 10);
  CHECK_THROWS_WITH(read_while("step-5", [&] { remove_folder(all / "step-5"); }),
                    Catch::EndsWith("step-5: was removed while it was read, as by a training that goes on"));
  CHECK(read_while("latest", [] {}) == 1);  // the link led to what was removed
  // What is damaged and stays is damaged.
  Training{6}.save(all, 6);
  flip_a_byte(all / "step-6");
  CHECK_THROWS_WITH(read_while("latest", [] {}), Catch::Contains("step-6/weights.safetensors: entry 'w' has been alt"));
  CHECK(newest_while([] {}) == 1);
  CHECK(passed_over == 1);
}

TEST_CASE("one that is replaced again and again is not read for ever") {
  const TemporaryDirectory folder;
  int readings = 0;
  Training{1}.save(folder.path(), 1);
  const auto replaced = [&](const fs::path& checkpoint) -> int {
    ++readings;
    Training{1}.save(folder.path(), 1);
    throw CheckpointError{checkpoint.string() + ": is half of one"};
  };
  CHECK_THROWS_WITH(read_checkpoint_at(folder.path() / "step-1", replaced),
                    Catch::EndsWith("was replaced repeatedly while it was read"));
  CHECK(readings == most_readings);
  CHECK_THROWS_AS(read_newest(folder.path(), replaced, ignore), CheckpointError);
}

TEST_CASE("'latest' and 'best' are found where there are no links, and where they lead to nothing") {
  const TemporaryDirectory folder;
  const fs::path all = folder.path();
  for (const int step : {1, 2, 3}) Training{static_cast<float>(step)}.save(all, step, CheckpointLoss{1, 0.5});
  const auto check_found = [&] {
    CHECK(checkpoint_at(all / "latest") == all / "step-3");
    CHECK(checkpoint_at(all / "latest/") == all / "step-3");
    CHECK(checkpoint_at(all / "best") == all / "step-1");
    CHECK(checkpoint_at(all / "step-2") == all / "step-2");
    CHECK(checkpoint_at(all / "other") == all / "other");
  };
  check_found();
  for (const char* link : {"latest", "best"}) fs::remove(all / link);
  check_found();
  for (const char* link : {"latest", "best"}) fs::create_symlink("step-9", all / link);
  check_found();
  // Rotation keeps the best one without a link, too.
  for (const char* link : {"latest", "best"}) fs::remove(all / link);
  remove_old_checkpoints(all, 1, all / "step-3");
  CHECK(names_in(all) == Names{"step-1", "step-3"});
}
