// Which libraries a program opens that asks for a GPU or for event files, and what it says of one that is missing or
// does not suit it.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include "support/job.hpp"

using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

fs::path from_meson(const char* name) {
  const char* const value = std::getenv(name);
  if (!value) throw std::runtime_error{std::string{name} + " is not set: run this with `meson test`"};
  return value;
}

const std::string file = "liblockstep-cuda.so." LOCKSTEP_VERSION;

/// A copy of the build with liblockstep.so alone, and with three programs, which find it where it lies from them.
class Build {
 public:
  Build() {
    for (const char* const each : {"LOCKSTEP_LIBRARY", "LOCKSTEP_ANSWERS", "LOCKSTEP_GPU_USER", "LOCKSTEP_TRAIN"}) {
      fs::create_directories(place_of(each).parent_path());
      fs::copy_file(from_meson(each), place_of(each));
    }
    fs::rename(place_of("LOCKSTEP_LIBRARY"), libraries() / from_meson("LOCKSTEP_SONAME"));
  }

  fs::path libraries() const { return place_of("LOCKSTEP_LIBRARY").parent_path(); }
  /// The GPU library, as the loader names it that has looked for it from the program.
  std::string loaded_file() const {
    const fs::path program = place_of("LOCKSTEP_ANSWERS").parent_path();
    return program / libraries().lexically_relative(program) / file;
  }
  void copy(const char* library) const { fs::copy_file(from_meson(library), libraries() / file); }
  /// A part of lockstep that lies where Meson builds it.
  void copy_part(const char* library) const { fs::copy_file(from_meson(library), place_of(library)); }
  void write(std::string_view text) const { std::ofstream{libraries() / file} << text; }

  Outcome run(const char* program, const std::vector<std::string>& arguments, const std::string& folders = "") const {
    Environment environment = mpi_environment();
    environment["LD_LIBRARY_PATH"] = folders;
    std::vector<std::string> command{place_of(program)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command, {.environment = environment});
  }

  /// With `folders` in LD_LIBRARY_PATH.
  std::string answers(const std::string& folders = "") const {
    const Outcome outcome = run("LOCKSTEP_ANSWERS", {}, folders);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    return outcome.out;
  }

 private:
  fs::path place_of(const char* variable) const {
    return folder_.path() / from_meson(variable).lexically_relative(from_meson("LOCKSTEP_BUILD"));
  }

  TemporaryDirectory folder_;
};

std::string all_refuse(const std::string& why) {
  std::string answers = "count: 0\nuuids:\nwhy none: " + why + "\n";
  for (const char* const question : {"device", "index", "synchronize", "read", "bytes", "nccl"})
    answers += question + (": " + why + "\n");
  answers += "share: done\n";
  for (const char* const question : {"sum", "add", "divide", "kernels"}) answers += question + (": " + why + "\n");
  return answers + "other copies of the layers: 0\n";
}

const std::string of_the_fake =
    "count: 2\nuuids: one cuda\nwhy none: there are two\ndevice: device 1 is made\nindex: the index is asked for\n"
    "synchronize: the device is waited for\nread: memory is read\nbytes: memory is counted\nnccl: NCCL is started\n"
    "share: sharing is allowed\nsum: pieces are summed\nadd: a sum is added to\ndivide: a tensor is divided\n"
    "kernels: kernels are made\nother copies of the layers: 0\n";

}  // namespace

TEST_CASE(
    "every question about GPUs goes to the library, which brings no second liblockstep.so; exceptions come back") {
  const Build build;
  build.copy("LOCKSTEP_FAKE_BACKEND");
  CHECK(build.answers() == of_the_fake);
}

TEST_CASE("a user's program opens the library through liblockstep.so, and catches its exceptions") {
  const Build build;
  build.copy("LOCKSTEP_FAKE_BACKEND");
  const Outcome outcome = build.run("LOCKSTEP_GPU_USER", {});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "the index is asked for\ncopies of liblockstep.so: 1\n");
}

TEST_CASE("a library in LD_LIBRARY_PATH comes before the one that lies where programs look") {
  const Build build;
  const TemporaryDirectory other;
  build.write("no library");
  fs::copy_file(from_meson("LOCKSTEP_FAKE_BACKEND"), other.path() / file);
  CHECK(build.answers(other.path()) == of_the_fake);
}

TEST_CASE("a library that is missing, or does not suit, is no GPU and a few words that say why") {
  const Build build;
  std::string why;
  SECTION("there is none") {
    why = "this build has no GPU backend";
    // One that was built is elsewhere.
    if (from_meson("LOCKSTEP_HAS_CUDA") == "yes") {
      CHECK_THAT(build.answers(), Catch::Contains("why none: " + file + " was not found in ") &&
                                      Catch::Contains(build.libraries().string() + ", "));
      return;
    }
  }
  SECTION("it belongs to another lockstep") {
    build.copy("LOCKSTEP_OTHER_BACKEND");
    why = file + " belongs to lockstep 0.0.1-other, and this is lockstep " LOCKSTEP_VERSION;
  }
  SECTION("it needs a library that is not there") {
    build.copy("LOCKSTEP_NEEDY_BACKEND");
    why = "libgone-from-here.so, which " + file + " needs, was not found";
  }
  SECTION("it is another library") {
    build.copy("LOCKSTEP_GONE");
    why = file + " is no GPU backend of lockstep";
  }
  SECTION("it is no library") {
    build.write("text");
    why = file + " cannot be loaded: " + build.loaded_file() + ": file too short";
  }
  CHECK(build.answers() == all_refuse(why));
}

TEST_CASE("a program says why there is no GPU only where one is demanded, and trains on the CPU otherwise") {
  const Build build;
  build.copy("LOCKSTEP_NEEDY_BACKEND");
  const auto train = [&](const std::string& device) {
    return build.run("LOCKSTEP_TRAIN",
                     {"--data", from_meson("LOCKSTEP_SMALL_DATA"), "--steps", "2", "--device", device});
  };
  const std::string why = "libgone-from-here.so, which " + file + " needs, was not found";
  const Outcome demanded = train("cuda");
  CHECK(demanded.exit_code == 2);
  CHECK(demanded.err == "lockstep: error: --device cuda: this node has no GPU that can be used: " + why +
                            "; expected one for each rank, or --device cpu\n");
  const Outcome offered = train("auto");
  CHECK(offered.exit_code == 0);
  CHECK(lines_starting_with(offered.err, "lockstep: warning").empty());
  CHECK(offered.err.find("running on the CPU (" + why + ")") != std::string::npos);
  const Outcome refused = train("cpu");
  CHECK(refused.exit_code == 0);
  CHECK(refused.err.find("GPU") == std::string::npos);
}

TEST_CASE("a program finds the library for event files in a build, and says where it looked for one that is gone") {
  if (!std::getenv("LOCKSTEP_TENSORBOARD")) return;  // this build writes no event files
  const Build build;
  const TemporaryDirectory other;
  const auto train = [&](const std::string& folders) {
    return build.run("LOCKSTEP_TRAIN",
                     {"--data", from_meson("LOCKSTEP_SMALL_DATA"), "--steps", "1", "--device", "cpu", "--run-dir",
                      other.path() / "run", "--tensorboard"},
                     folders);
  };
  const std::string name = from_meson("LOCKSTEP_TENSORBOARD").filename();
  const Outcome gone = train(other.path());
  CHECK(gone.exit_code == 2);
  CHECK_THAT(gone.err, Catch::Contains("\nlockstep: error: --tensorboard: " + name + " was not found in " +
                                       other.path().string() + ", ") &&
                           Catch::Contains(build.libraries().string() + ", ") &&
                           Catch::EndsWith("; expected it in one of them, or its folder in LD_LIBRARY_PATH\n"));
  build.copy_part("LOCKSTEP_TENSORBOARD");
  const Outcome found = train("");
  INFO(found.err);
  CHECK(found.exit_code == 0);
  CHECK_FALSE(fs::is_empty(other.path() / "run/events"));
}
