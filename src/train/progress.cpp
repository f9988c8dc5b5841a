#include <cmath>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/train/progress.hpp>

#include "base/descriptor.hpp"
#include "base/open_line.hpp"

namespace lockstep {
namespace {

/// "0:07", "12:05", "1:02:03".
std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::ceil(seconds));
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressStyle progress_style(std::FILE* stream) {
  const int descriptor = ::fileno(stream);
  bool terminal = ::isatty(descriptor) == 1;
  if (std::getenv("OMPI_COMM_WORLD_RANK") || std::getenv("PMI_RANK")) {
    // The chief's parent is the launcher if both are on one node; otherwise it is a daemon without a terminal.
    const std::string path = fmt::format("/proc/{}/fd/{}", ::getppid(), descriptor);
    const Descriptor launcher{::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)};
    terminal = launcher.get() >= 0 && ::isatty(launcher.get()) == 1;
  }
  return terminal ? ProgressStyle::one_line : ProgressStyle::lines;
}

void Progress::on_step(const StepReport& report) {
  const auto now = Clock::now();
  const auto pause = style_ == ProgressStyle::one_line ? std::chrono::milliseconds{100} : std::chrono::seconds{10};
  const bool last = report.step == report.steps;
  if (now - last_ < pause && !last && report.step != 1) return;
  last_ = now;
  const double left =
      report.seconds / static_cast<double>(report.step) * static_cast<double>(report.steps - report.step);
  const std::string line =
      fmt::format("step {}/{}  epoch {}/{}  loss {:.4f}  {:.0f} samples/s  {} left", report.step, report.steps,
                  report.epoch, report.epochs, report.loss, report.samples_per_second, clock_text(left));
  if (style_ == ProgressStyle::one_line) {
    if (!begin_open_line()) return;
    std::fprintf(stream_, "\r%s\x1b[K", line.c_str());
  } else {
    std::fprintf(stream_, "%s\n", line.c_str());
  }
  std::fflush(stream_);
}

void Progress::on_evaluation(const EvaluationReport& report) {
  const std::string bits = report.bits_per_byte ? fmt::format("  {:.4f} bits/byte", *report.bits_per_byte) : "";
  const std::string line =
      fmt::format("test  step {}  epoch {}  loss {:.4f}{}  accuracy {:.2f}%  {:.1f} s", report.step, report.epoch,
                  report.loss, bits, report.accuracy * 100, report.seconds);
  std::fprintf(stream_, "%s%s\n", end_open_line() ? "\n" : "", line.c_str());
  std::fflush(stream_);
}

}  // namespace lockstep
