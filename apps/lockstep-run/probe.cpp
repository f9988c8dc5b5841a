#include "apps/lockstep-run/probe.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/lockstep-run/host_inquiry.hpp"

namespace lockstep::run {
namespace {

/// Run by sh on a host, with the program, the ranks there, the bytes that a rank wants in /dev/shm, whether it wants a
/// GPU, whether the program answers to --version, and paths. First the program's version, then a line for each thing
/// that is missing.
constexpr const char* script = R"sh(
program=$1 ranks=$2 bytes=$3 gpus=$4 has_version=$5
shift 5
if [ "$has_version" = 1 ]; then
  version=$("$program" --version 2>&1)
else
  version='not found'
  command -v "$program" > /dev/null && version=any
fi && echo "version $version" | head -n 1 ||
  echo "lacks $program does not run there: $(echo "$version" | head -n 1)"
for path; do [ -e "$path" ] || echo "lacks $path is not there"; done
free=$(df -Pk /dev/shm 2> /dev/null | awk 'NR == 2 { print $4 }')
[ "${free:-0}" -ge $((bytes * ranks / 1024)) ] ||
  echo "lacks /dev/shm has ${free:-0} KB free; expected $((bytes * ranks / 1024)) KB or more"
if [ "$gpus" = 1 ]; then
  found=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU')
  [ "$found" -ge "$ranks" ] || echo "lacks GPUs: nvidia-smi finds $found; expected $ranks"
fi
)sh";

/// Lines that begin with `word`, without it.
std::vector<std::string> lines_of(const std::string& text, const std::string& word) {
  std::vector<std::string> found;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(word + " ")) found.push_back(line.substr(word.size() + 1));
  return found;
}

std::string version_in(const std::string& answer) {
  const std::vector<std::string> versions = lines_of(answer, "version");
  return versions.empty() ? "" : versions.front();
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::vector<std::string> probe(const ProbeOptions& options) {
  const auto question = [&](const std::string& host) {
    const auto found = std::ranges::find(options.hosts, host, &Host::name);
    std::vector<std::string> words{"sh",
                                   "-c",
                                   script,
                                   "sh",
                                   options.program,
                                   std::to_string(found->slots),
                                   std::to_string(options.shared_bytes_of_rank),
                                   options.needs_gpus ? "1" : "0",
                                   options.has_version ? "1" : "0"};
    for (const std::filesystem::path& path : options.paths) words.push_back(path);
    return words;
  };
  std::vector<std::string> names;
  for (const Host& host : options.hosts) names.push_back(host.name);
  HostInquiry inquiry{options.mpirun, names, options.patience, question};
  while (!inquiry.poll())
    if (!options.wait(std::chrono::milliseconds{20})) return {};

  // What most of them have is right; of as many, what the first has.
  std::string usual;
  std::ptrdiff_t most = 0;
  std::vector<std::string> versions;
  for (const std::string& name : names) versions.push_back(version_in(inquiry.answer(name)));
  for (const std::string& version : versions) {
    const auto count = std::ranges::count(versions, version);
    if (!version.empty() && count > most) {
      usual = version;
      most = count;
    }
  }
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    std::vector<std::string> lacks = lines_of(inquiry.answer(name), "lacks");
    const std::string version = version_in(inquiry.answer(name));
    if (has(inquiry.silent(), name))
      lacks = {"does not answer"};
    else if (has(inquiry.unreachable(), name))
      lacks = {"cannot be reached"};
    else if (!version.empty() && version != usual)
      lacks.push_back(fmt::format("has {}, and the others have {}", version, usual));
    else if (version.empty() && lacks.empty())
      lacks = {"gave no answer that is understood"};
    if (!lacks.empty()) lines.push_back(fmt::format("host {}: {}", name, fmt::join(lacks, "; ")));
  }
  return lines;
}

}  // namespace lockstep::run
