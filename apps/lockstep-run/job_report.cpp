#include "apps/lockstep-run/job_report.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/supervised_job.hpp"

namespace lockstep::run {
namespace {

using Cause = JobReport::Cause;

/// What follows the name of a replica.
constexpr std::array<std::pair<std::string_view, Cause>, 12> told{{{"is gone:", Cause::gone},
                                                                   {"has stopped:", Cause::stopped},
                                                                   {"cannot be reached:", Cause::stopped},
                                                                   {"is late:", Cause::late},
                                                                   {"is stuck:", Cause::late},
                                                                   {"does not come:", Cause::late},
                                                                   {"is cut off:", Cause::late},
                                                                   {"waited ", Cause::late},
                                                                   {"failed:", Cause::failed},
                                                                   {"called exit(", Cause::failed},
                                                                   {"computed shard ", Cause::miscomputed},
                                                                   {"read other samples ", Cause::miscomputed}}};

/// The part of `text` between two others; empty if there is none.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const auto begin = text.find(before);
  if (begin == text.npos) return {};
  text.remove_prefix(begin + before.size());
  const auto end = after.empty() ? text.size() : text.find(after);
  return end == text.npos ? std::string_view{} : text.substr(0, end);
}

/// Takes `beginning` off `text`.
bool take_off(std::string_view& text, std::string_view beginning) {
  if (!text.starts_with(beginning)) return false;
  text.remove_prefix(beginning.size());
  return true;
}

}  // namespace

void JobReader::take(std::string_view bytes) {
  // The beginning of a longer line is enough.
  constexpr std::size_t longest = 4096;
  while (!bytes.empty()) {
    // prterun ends its own texts with a zero byte, which then precedes the next line.
    if (line_.empty() && bytes.front() == '\0') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() < longest) line_ += bytes.substr(0, end);
    if (end == bytes.size()) return;
    read_line(line_);
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void JobReader::read_line(std::string_view line) {
  const auto add = [](std::string_view host, std::vector<std::string>& hosts) {
    if (!host.empty() && std::ranges::find(hosts, host) == hosts.end()) hosts.emplace_back(host);
  };
  const auto cannot_reach = [&](std::string_view host) { add(host, report_.unreachable); };
  if (const auto begun = line.find(begun_line); begun != line.npos) {
    if (!report_.has_begun) labels_.learn(line.substr(0, begun));
    report_.has_begun = true;
    return;
  }
  // What the launcher says itself has no label, and may look like one.
  if (const auto rest = line.substr(labels_.length(line).value_or(0)); rest.starts_with("lockstep: "))
    line = rest.substr(0, rest.find("&#010;"));  // how Open MPI 5 ends lines in XML
  if (take_off(line, "lockstep: ")) {
    report_.has_spoken = true;
    if (report_.line.empty()) report_.line = fmt::format("lockstep: {}", line);
    // The first line of a job is the cause.
    if (report_.cause != Cause::unknown) return;
    if (line.starts_with("interrupted ")) report_.cause = Cause::interrupted;
    if (line.starts_with("stopped ")) report_.cause = Cause::asked;
    if (line.starts_with("error: ") && line.find(" and no rank is late for it") != line.npos)
      report_.cause = Cause::late;
    if (!take_off(line, "replica ")) return;
    line.remove_prefix(std::min(line.find_first_not_of("0123456789"), line.size()));
    const std::string_view host = line.starts_with(" (") ? between(line, "host ", ")") : std::string_view{};
    if (!host.empty()) line.remove_prefix(line.find(')') + 1);
    (void)take_off(line, " ");
    for (const auto& [words, cause] : told) {
      if (!line.starts_with(words)) continue;
      report_.cause = cause;
      report_.host = host;
      report_.failure = line;
      if (words.starts_with("cannot be reached")) cannot_reach(host);
      return;
    }
    return;
  }
  // Of Open MPI 4, 5 and MPICH.
  for (const char* each :
       {"mpirun was unable to find the specified executable", "mpirun was unable to launch the specified application",
        "prterun was unable to find the specified executable",
        "prterun was unable to launch the specified application"})
    if (line.starts_with(each)) report_.cause = Cause::not_launched;
  if (line.starts_with("[proxy:") && line.find("execvp error on file ") != line.npos)
    report_.cause = Cause::not_launched;
  if (line.find("Remote daemon:") != line.npos) add(between(line, " on node ", ""), report_.lost);
  if (take_off(line, "ssh: ")) {
    cannot_reach(between(line, "connect to host ", " port "));
    cannot_reach(between(line, "Could not resolve hostname ", ":"));
  }
}

}  // namespace lockstep::run
