#include "apps/lockstep-run/job_segments.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

namespace lockstep::run {
namespace {

constexpr std::string_view digits = "0123456789";

}  // namespace

std::string_view job_of_segment(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  // Open MPI 4 and 5.
  if (!name.starts_with("vader_segment.") && !name.starts_with("sm_segment.")) return {};
  const auto rank = name.rfind('.') + 1;
  // Of a host, a user, a job and a rank. The name of a host may have dots.
  if (std::ranges::count(name, '.') < 4 || rank == name.size() || name.find_first_not_of(digits, rank) != name.npos)
    return {};
  return path.substr(0, path.size() - (name.size() - rank));
}

void JobSegments::learn(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) {
    std::ifstream maps{fmt::format("/proc/{}/maps", process)};
    for (std::string line; std::getline(maps, line);) {
      const auto path = line.find('/');
      const std::string_view job = path == line.npos ? "" : job_of_segment(std::string_view{line}.substr(path));
      if (!job.empty()) jobs_.emplace(job);
    }
  }
}

void JobSegments::remove() const {
  for (const std::string& job : jobs_) {
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path{job}.parent_path();
    std::vector<std::filesystem::path> left;
    for (const auto& entry : std::filesystem::directory_iterator{folder, ignored})
      if (job_of_segment(entry.path().native()) == job) left.push_back(entry.path());
    for (const std::filesystem::path& segment : left) std::filesystem::remove(segment, ignored);
  }
}

}  // namespace lockstep::run
