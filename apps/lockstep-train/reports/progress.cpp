#include "apps/lockstep-train/reports/progress.hpp"

#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "apps/lockstep-train/reports/progress_line.hpp"
#include "core/base/descriptor.hpp"
#include "core/base/open_line.hpp"

namespace lockstep {
namespace {

/// The columns of the terminal behind `descriptor`; empty if it is none.
std::optional<std::size_t> columns_of(int descriptor) {
  if (descriptor < 0 || ::isatty(descriptor) != 1) return std::nullopt;
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// The same of the launcher's terminal, if a launcher has started this rank.
std::optional<std::size_t> columns_of_job(int descriptor) {
  if (!std::getenv("OMPI_COMM_WORLD_RANK") && !std::getenv("PMI_RANK")) return columns_of(descriptor);
  // The chief's parent is the launcher if both are on one node; otherwise it is a daemon without a terminal.
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getppid(), descriptor);
  const Descriptor launcher{::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)};
  return columns_of(launcher.get());
}

constexpr std::chrono::milliseconds shortest_pause{100};

}  // namespace

std::unique_ptr<Observer> make_progress(ShowProgress show) {
  switch (show) {
    case ShowProgress::yes: return std::make_unique<Progress>(STDERR_FILENO, progress_style(STDERR_FILENO));
    case ShowProgress::json: return std::make_unique<JsonProgress>(STDERR_FILENO);
    case ShowProgress::no: break;
  }
  return std::make_unique<Observer>();
}

ProgressStyle progress_style(int stream) {
  // Such a terminal, as in an editor, would show the sequence that clears the rest of a line.
  const char* const terminal = std::getenv("TERM");
  if (terminal && std::string_view{terminal} == "dumb") return ProgressStyle::lines;
  return columns_of_job(stream) ? ProgressStyle::one_line : ProgressStyle::lines;
}

Progress::Progress(int stream, ProgressStyle style)
    : stream_{stream}, writer_{stream}, style_{style}, left_{std::make_unique<TimeLeft>()} {}

Progress::~Progress() = default;

bool Progress::due() const {
  const auto pause = style_ == ProgressStyle::one_line ? shortest_pause : std::chrono::seconds{10};
  return Clock::now() - last_ >= pause;
}

std::size_t Progress::width() const {
  if (style_ == ProgressStyle::lines) return std::numeric_limits<std::size_t>::max();
  // Asked for each line, as windows change. A terminal may wrap when its last column is written.
  return columns_of_job(stream_).value_or(80) - 1;
}

void Progress::draw(const std::string& line) {
  last_ = Clock::now();
  if (style_ == ProgressStyle::one_line) {
    if (begin_open_line()) writer_.write("\r" + line + "\x1b[K");
  } else {
    writer_.write(line + "\n");
  }
}

void Progress::on_step(const Observer::Step& report) {
  left_->on_step(report);
  const bool shown = due() || report.step == 1 || report.step == report.steps;
  if (shown) draw(step_line(report, left_->seconds(), width(), waiting_));
  on_step_line_ = style_ == ProgressStyle::one_line;
  not_shown_ = shown ? std::nullopt : std::optional{report};
}

void Progress::end_line() {
  if (end_open_line()) writer_.write("\n");
}

/// The line of the last step before an evaluation stays.
void Progress::end_step_line() {
  if (on_step_line_ && not_shown_) draw(step_line(*not_shown_, left_->seconds(), width(), waiting_));
  if (on_step_line_) end_line();
  on_step_line_ = false;
}

void Progress::on_evaluating(const Observer::Evaluation::Progress& progress) {
  left_->on_evaluating(progress);
  if (!due()) return;
  end_step_line();
  draw(evaluating_line(progress, left_->seconds(), width()));
}

void Progress::on_evaluation(const Observer::Evaluation& report) {
  left_->on_evaluation(report);
  end_step_line();
  draw(evaluation_line(report, width()));
  if (style_ == ProgressStyle::one_line) end_line();
}

void Progress::on_parts(const Observer::Parts& report) {
  waiting_ = waiting_share(report);
}

JsonProgress::JsonProgress(int stream) : writer_{stream}, left_{std::make_unique<TimeLeft>()} {}

JsonProgress::~JsonProgress() = default;

bool JsonProgress::due() const {
  return Clock::now() - last_ >= shortest_pause;
}

/// In one piece, as other ranks write to the same stream.
void JsonProgress::print(const std::string& line) {
  last_ = Clock::now();
  writer_.write(line + '\n');
}

void JsonProgress::on_step(const Observer::Step& report) {
  left_->on_step(report);
  if (due() || report.step == 1 || report.step == report.steps) print(step_json(report, left_->seconds(), waiting_));
}

void JsonProgress::on_evaluating(const Observer::Evaluation::Progress& progress) {
  left_->on_evaluating(progress);
  if (due()) print(evaluating_json(progress, left_->seconds()));
}

void JsonProgress::on_evaluation(const Observer::Evaluation& report) {
  left_->on_evaluation(report);
  print(evaluation_json(report));
}

void JsonProgress::on_parts(const Observer::Parts& report) {
  waiting_ = waiting_share(report);
}

}  // namespace lockstep
