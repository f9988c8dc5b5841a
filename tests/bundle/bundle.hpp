// A bundle of fakes (fakes/), on a machine with a fake GPU, for scripts/gpu-check. FAKE, words between blanks, is what
// goes wrong.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/job.hpp"

namespace lockstep::test {

using Json = nlohmann::ordered_json;

inline std::filesystem::path from_meson(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::runtime_error{std::string{name} + " is not set: run this with `meson test`"};
  return value;
}

class Bundle {
 public:
  explicit Bundle(const std::string& gpu_libraries = "") {
    for (const char* script : {"gpu-check", "gpu-target.sh"})
      std::filesystem::copy_file(from_meson("LOCKSTEP_SCRIPTS") / script, path() / script);
    std::filesystem::copy(from_meson("LOCKSTEP_FAKES") / "bin", path() / "bin");
    std::filesystem::create_directory(path() / "data");
    folder_.write("data/images", "");
    folder_.write("LICENSE", "A licence\n");
    folder_.write("VERSION", "lockstep 1.2.3\ncommit abcdef0\nglibc 2.5\ncuda 13.0\ngpu_archs sm_90\ngpu_libraries " +
                                 gpu_libraries + "\n");
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  void write(const std::filesystem::path& name, const std::string& contents) const { folder_.write(name, contents); }
  Json table() const { return Json::parse(read_file(path() / "gpu-check.json")); }

  Outcome check(const std::vector<std::string>& arguments = {}, Environment environment = {}) const {
    std::vector<std::string> command{path() / "gpu-check"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command, {.environment = environment_with(std::move(environment))});
  }

  /// What gpu-check finds on a machine with a fake GPU, beside or instead of which `own` says something.
  Environment environment_with(Environment own) const {
    own.emplace("PATH", (from_meson("LOCKSTEP_FAKES") / "tools").string() + ":" + std::getenv("PATH"));
    // No libraries of the one who runs the tests.
    own.emplace("HOME", path());
    own.emplace("LD_LIBRARY_PATH", "");
    own.emplace("CUDA_VISIBLE_DEVICES", "0");
    return own;
  }

 private:
  TemporaryDirectory folder_;
};

/// "name ranks result" of every row.
inline std::vector<std::string> results(const Json& table) {
  std::vector<std::string> rows;
  for (const Json& row : table["checks"])
    rows.push_back(row["name"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + " " +
                   row["result"].get<std::string>());
  return rows;
}

/// The failed rows as "name ranks: value".
inline std::vector<std::string> failures(const Json& table) {
  std::vector<std::string> rows;
  for (const Json& row : table["checks"])
    if (row["result"] == "failed")
      rows.push_back(row["name"].get<std::string>() + " " + std::to_string(row["ranks"].get<int>()) + ": " +
                     (row["value"].is_string() ? row["value"].get<std::string>() : row["value"].dump()));
  return rows;
}

using Lines = std::vector<std::string>;

}  // namespace lockstep::test
