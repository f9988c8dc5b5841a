// Every target on the inputs in the tree, and what they are called says what becomes of them: `replay CORPUS`, where
// CORPUS/TARGET holds files whose names begin with "accepted" or "refused".
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/targets.hpp"

namespace {

namespace fs = std::filesystem;
using namespace lockstep::fuzz;

std::string content_of(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// What the target does with the file.
std::string outcome(const Target& target, const fs::path& path) {
  try {
    return target.read(content_of(path)) ? "accepted" : "refused";
  } catch (const BrokenPromise& broken) {
    return "broken promise: " + broken.what;
  } catch (const std::exception& error) {
    return std::string{"other exception: "} + error.what();
  }
}

/// The number of failures.
int replay(const Target& target, const fs::path& folder) {
  int accepted = 0, refused = 0, failures = 0;
  for (const auto& entry : fs::directory_iterator{folder}) {
    const std::string name = entry.path().filename(), found = outcome(target, entry.path());
    accepted += found == "accepted";
    refused += found == "refused";
    if (name.starts_with(found)) continue;
    std::fprintf(stderr, "%s: %s\n", entry.path().c_str(), found.c_str());
    ++failures;
  }
  std::printf("%s: %d accepted, %d refused\n", std::string{target.name}.c_str(), accepted, refused);
  if (accepted > 0 && refused > 0) return failures;
  std::fprintf(stderr, "%s: expected inputs of both kinds\n", folder.c_str());
  return failures + 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int failures = 0;
  for (const Target& target : targets()) failures += replay(target, fs::path{argv[1]} / target.name);
  return failures == 0 ? 0 : 1;
}
