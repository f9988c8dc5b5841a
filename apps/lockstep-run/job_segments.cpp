#include "apps/lockstep-run/job_segments.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "core/base/host_name.hpp"

namespace lockstep::run {
namespace {

using Jobs = std::set<std::string, std::less<>>;

constexpr std::string_view digits = "0123456789";

void add_jobs_of(const std::filesystem::path& process, Jobs& jobs) {
  std::ifstream maps{process / "maps"};
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    const std::string_view job = path == line.npos ? "" : job_of_segment(std::string_view{line}.substr(path));
    if (!job.empty()) jobs.emplace(job);
  }
}

/// The jobs of all processes that may be looked at: those of this user.
Jobs living_jobs() {
  Jobs jobs;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry{"/proc", ignored}, end; !ignored && entry != end;
       entry.increment(ignored))
    if (entry->path().filename().string().find_first_not_of(digits) == std::string::npos)
      add_jobs_of(entry->path(), jobs);
  return jobs;
}

std::optional<std::uint32_t> number(std::string_view text, int base) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

/// By what the names of a job's segments begin with.
bool is_of(std::string_view job, pid_t mpirun) {
  const auto take_last = [&] {
    const auto dot = job.rfind('.');
    const std::string_view last = job.substr(dot + 1);
    job = job.substr(0, dot);
    return last;
  };
  (void)take_last();
  const auto jobid = number(take_last(), 16), user = number(take_last(), 10);
  const std::string_view name = job.substr(job.rfind('/') + 1), host = name.substr(name.find('.') + 1);
  // Containers of one user may share the memory, and each has a process of that number.
  return jobid && user == ::geteuid() && same_host_name(first_label(host), first_label(host_name())) &&
         *jobid >> 16 == job_family(host, mpirun);
}

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

std::uint32_t job_family(std::string_view host, pid_t mpirun) {
  std::uint32_t digest = 0;
  for (const char each : host) {
    digest += static_cast<std::uint32_t>(each);
    digest += digest << 10;
    digest ^= digest >> 6;
  }
  digest += digest << 3;
  digest ^= digest >> 11;
  digest += digest << 15;
  digest ^= static_cast<std::uint32_t>(mpirun);
  return (digest >> 16 ^ digest) & 0xffff;
}

void JobSegments::learn(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) add_jobs_of(folder_of(process), jobs_);
}

void JobSegments::remove(pid_t mpirun) const {
  std::set<std::filesystem::path> folders{"/dev/shm"};
  for (const char* name : {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"})
    if (const char* const chosen = std::getenv(name)) folders.insert(chosen);
  for (const std::string& job : jobs_) folders.insert(std::filesystem::path{job}.parent_path());
  std::vector<std::filesystem::path> left;
  std::error_code ignored;
  for (const std::filesystem::path& folder : folders)
    for (std::filesystem::directory_iterator entry{folder, ignored}, end; !ignored && entry != end;
         entry.increment(ignored))
      if (const std::string_view job = job_of_segment(entry->path().native());
          !job.empty() && (jobs_.contains(job) || is_of(job, mpirun)))
        left.push_back(entry->path());
  if (left.empty()) return;
  const Jobs living = living_jobs();
  for (const std::filesystem::path& segment : left)
    if (!living.contains(job_of_segment(segment.native()))) std::filesystem::remove(segment, ignored);
}

}  // namespace lockstep::run
