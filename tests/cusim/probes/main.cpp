// gpu-probes: tries what NVIDIA's documentation says of CUDA's runtime, cuBLASLt and NCCL. This process never calls
// CUDA: it forks others for that, so that a probe that fails, hangs or ends its process takes no other with it.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.hpp"

using namespace lockstep::probes;

namespace {

constexpr int skipped_code = 77;
constexpr int found_code = 86;
constexpr int most_seconds = 30;  ///< for one probe

int usage(std::FILE* to, int code) {
  std::fputs(
      "usage: gpu-probes [--list] [--only NAME]...\n\n"
      "Tries statements of NVIDIA's documentation on the GPU, and prints a line for each: \"holds NAME\", \"DIFFERS\n"
      "NAME: expected ..., got ...\", or \"not tried NAME: why\". Exits 1 if any differs, 77 where there is no GPU.\n",
      to);
  return code;
}

// --- The process that calls CUDA ---

std::string result_of(const Probe& probe) {
  try {
    probe.run();
    return "holds " + probe.name;
  } catch (const Differs& differs) {
    return "DIFFERS " + probe.name + ": expected " + differs.expected + ", got " + differs.got;
  } catch (const NotTried& not_tried) {
    return "not tried " + probe.name + ": " + not_tried.why;
  } catch (const std::exception& other) {
    return "DIFFERS " + probe.name + ": expected no exception, got " + other.what();
  }
}

/// Runs these probes, up to the first that differs, and writes a line for each.
int run_here(int to, const std::vector<Probe>& probes) {
  // Kernels that are loaded at their first launch may wait for the whole GPU, and streams that share a connection for
  // each other.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (probes.front().where == Where::with_partner) start_partner();
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skipped_code;
  for (const Probe& probe : probes) {
    (void)cudaGetLastError();
    std::string line = result_of(probe);
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    if (write(to, line.data(), line.size()) < 0) return 1;
    if (line.starts_with("DIFFERS")) break;
  }
  return 0;
}

// --- The process that starts the others ---

class Child {
 public:
  explicit Child(const std::vector<Probe>& probes) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    std::fflush(nullptr);
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      std::exit(run_here(ends[1], probes));
    }
    close(ends[1]);
    from_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { close(from_); }

  /// Nothing once the process has ended, or after the time for one probe.
  std::optional<std::string> line() {
    for (;;) {
      if (const auto end = text_.find('\n'); end != std::string::npos) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return line;
      }
      pollfd waiting{from_, POLLIN, 0};
      const int ready = poll(&waiting, 1, most_seconds * 1000);
      if (ready < 0 && errno == EINTR) continue;
      char part[4096];
      const ssize_t got = ready > 0 ? read(from_, part, sizeof part) : 0;
      has_hung_ = ready == 0;
      if (got <= 0) return std::nullopt;
      text_.append(part, static_cast<std::size_t>(got));
    }
  }

  /// How the process ended, in words, and its exit code.
  std::pair<std::string, int> end() {
    if (has_hung_) kill(process_, SIGKILL);
    int status = 0;
    (void)waitpid(process_, &status, 0);
    if (has_hung_) return {"no end within " + std::to_string(most_seconds) + " s", -1};
    if (!WIFEXITED(status)) return {"signal " + std::to_string(WTERMSIG(status)), -1};
    return {"exit code " + std::to_string(WEXITSTATUS(status)), WEXITSTATUS(status)};
  }

 private:
  pid_t process_ = -1;
  int from_ = -1;
  bool has_hung_ = false;
  std::string text_;
};

/// The probes from `first` on that go into one process.
std::size_t together_from(const std::vector<Probe>& probes, std::size_t first) {
  if (probes[first].where != Where::together) return first + 1;
  while (first < probes.size() && probes[first].where == Where::together) ++first;
  return first;
}

int run_all(const std::vector<Probe>& probes) {
  std::size_t differ = 0;
  std::size_t at = 0;
  while (at < probes.size()) {
    const std::size_t end = together_from(probes, at);
    Child child{{probes.begin() + static_cast<std::ptrdiff_t>(at), probes.begin() + static_cast<std::ptrdiff_t>(end)}};
    bool goes_on = true;
    while (at < end && goes_on) {
      std::string line;
      if (const auto said = child.line()) {
        line = *said;
        goes_on = !line.starts_with("DIFFERS");
      } else {
        const auto [words, code] = child.end();
        if (code == skipped_code) {
          std::fputs("gpu-probes: no GPU here\n", stderr);
          return skipped_code;
        }
        const Probe& probe = probes[at];
        line = probe.where == Where::ends_cusim && code == found_code
                   ? "holds " + probe.name
                   : "DIFFERS " + probe.name + ": expected an answer, got " + words;
        goes_on = false;
      }
      std::puts(line.c_str());
      std::fflush(stdout);
      if (line.starts_with("DIFFERS")) ++differ;
      ++at;
    }
    if (at == end || !goes_on) (void)child.end();
  }
  return differ > 0 ? 1 : 0;
}

std::vector<Probe> chosen(const std::vector<std::string>& names) {
  std::vector<Probe> probes = all_probes();
  if (names.empty()) return probes;
  std::erase_if(probes, [&](const Probe& probe) { return std::ranges::find(names, probe.name) == names.end(); });
  return probes;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  std::vector<std::string> only;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") return usage(stdout, 0);
    if (words[i] == "--list") {
      for (const Probe& probe : all_probes()) std::puts(probe.name.c_str());
      return 0;
    }
    if (words[i] != "--only" || i + 1 == words.size()) return usage(stderr, 2);
    only.push_back(words[++i]);
    if (chosen({only.back()}).empty()) {
      std::fprintf(stderr, "gpu-probes: there is no probe '%s'; --list names all\n", only.back().c_str());
      return 2;
    }
  }
  return run_all(chosen(only));
}
