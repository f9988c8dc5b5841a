// How often each function was called.
#include "runtime/counts.hpp"

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core.hpp"

namespace cusim {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::uint64_t, std::less<>> calls;
};

Counts& counts() {
  static Counts* const all = new Counts;
  return *all;
}

/// What several functions do.
constexpr std::pair<std::string_view, std::string_view> groups[] = {
    {"cudaLaunchKernelExC", "launches"}, {"cublasLtMatmul", "launches"},   {"cudaMemcpy", "copies"},
    {"cudaMemcpyAsync", "copies"},       {"cudaMalloc", "allocations"},    {"cudaMallocAsync", "allocations"},
    {"cudaMallocHost", "allocations"},   {"cudaHostAlloc", "allocations"},
};

void add(Counts& all, std::string_view name) {
  if (const auto at = all.calls.find(name); at != all.calls.end())
    ++at->second;
  else
    all.calls.emplace(name, 1);
}

/// Appends a line to CUSIM_COUNTS at the process's end.
struct Reporter {
  ~Reporter() {
    if (settings().counts_file.empty()) return;
    std::string line = fmt::format("{{\"rank\": {}", rank());
    const std::lock_guard lock{counts().mutex};
    for (const auto& [name, times] : counts().calls) line += fmt::format(", \"{}\": {}", name, times);
    line += "}\n";
    const int file = open(settings().counts_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const bool is_written = file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (file >= 0) close(file);
    if (!is_written) std::fprintf(stderr, "cusim: cannot write CUSIM_COUNTS=%s\n", settings().counts_file.c_str());
  }
};
const Reporter reporter;

}  // namespace

void count(std::string_view call) {
  const std::lock_guard lock{counts().mutex};
  add(counts(), call);
  for (const auto& [function, group] : groups)
    if (function == call) add(counts(), group);
}

}  // namespace cusim

std::uint64_t cusim_counts(const char* name) {
  const std::lock_guard lock{cusim::counts().mutex};
  const auto at = cusim::counts().calls.find(std::string_view{name});
  return at == cusim::counts().calls.end() ? 0 : at->second;
}
