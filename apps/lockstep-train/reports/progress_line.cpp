#include "apps/lockstep-train/reports/progress_line.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "core/base/foreign_json.hpp"
#include "models/record/evaluation_json.hpp"

namespace lockstep {
namespace {

constexpr double memory_seconds = 10;

/// Of a training step, whose backward pass takes about twice as long as its forward pass.
constexpr double forward_part = 1. / 3;

std::string quality_text(const Observer::Evaluation& report) {
  if (!report.r_squared) return fmt::format("accuracy {:.2f}%", report.accuracy * 100);
  return fmt::format("R2 {:.4f}, mean error {:.4g}", *report.r_squared, *report.mean_absolute_error);
}

}  // namespace

void TimeLeft::on_step(const Observer::Step& report) {
  const double duration = report.seconds - training_seconds_;
  training_seconds_ = report.seconds;
  // The second step replaces the first.
  const double counted = ++steps_ < 2 ? 1 : 1 / static_cast<double>(steps_ - 1);
  step_seconds_ += std::max(counted, 1 - std::exp(-duration / memory_seconds)) * (duration - step_seconds_);
  samples_per_step_ = static_cast<double>(report.samples) / static_cast<double>(report.step);
  steps_left_ = report.steps - report.step;
  samples_to_evaluate_ = static_cast<double>(report.evaluations_left) * static_cast<double>(report.evaluation_samples);
  evaluated_ = 0;
}

void TimeLeft::on_evaluating(const Observer::Evaluation::Progress& progress) {
  evaluated_ = static_cast<double>(progress.done);
  evaluated_seconds_ = progress.seconds / evaluated_;
  // No step has told of this evaluation where nothing is trained.
  samples_to_evaluate_ = std::max(samples_to_evaluate_, static_cast<double>(progress.samples));
}

void TimeLeft::on_evaluation(const Observer::Evaluation& report) {
  evaluated_seconds_ = report.seconds / static_cast<double>(report.samples);
  samples_to_evaluate_ -= static_cast<double>(report.samples);
  evaluated_ = 0;
}

std::optional<double> TimeLeft::seconds() const {
  if (steps_ == 1 && steps_left_ > 0) return {};
  const double evaluated_seconds =
      evaluated_seconds_ > 0 ? evaluated_seconds_ : step_seconds_ / samples_per_step_ * forward_part;
  return step_seconds_ * static_cast<double>(steps_left_) + evaluated_seconds * (samples_to_evaluate_ - evaluated_);
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::ceil(seconds));
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

namespace {

/// The last words of `line` that fit, which have the numbers; otherwise the first that do. None is cut.
std::string words_within(const std::string& line, std::size_t width) {
  for (std::size_t blank = line.find(' '); blank != line.npos; blank = line.find(' ', blank + 1))
    if (line.size() - blank - 1 <= width) return line.substr(blank + 1);
  const std::size_t blank = line.rfind(' ', width);
  return blank == line.npos ? std::string{} : line.substr(0, blank);
}

}  // namespace

std::string fitted(std::initializer_list<LinePiece> pieces, std::size_t width) {
  std::vector<LinePiece> kept{pieces};
  std::erase_if(kept, [](const LinePiece& piece) { return piece.text.empty(); });
  while (true) {
    std::string line;
    for (const LinePiece& piece : kept) line += (line.empty() ? "" : "  ") + piece.text;
    if (line.size() <= width) return line;
    if (kept.size() < 2) return words_within(line, width);
    kept.erase(std::ranges::max_element(kept, {}, &LinePiece::rank));
  }
}

namespace {

std::string left_text(std::optional<double> seconds) {
  return seconds ? fmt::format("{} left", clock_text(*seconds)) : "";
}

/// A NaN has a sign, which means nothing.
std::string loss_text(double loss) {
  return std::isnan(loss) ? "loss nan" : fmt::format("loss {:.4f}", loss);
}

}  // namespace

std::optional<double> waiting_share(const Observer::Parts& report) {
  if (report.replicas.size() < 2 || !(report.seconds > 0)) return {};
  double waiting = 0;
  for (const Observer::Parts::Replica& each : report.replicas) waiting += each.waiting;
  return waiting / report.seconds / static_cast<double>(report.replicas.size());
}

std::string step_line(const Observer::Step& report, std::optional<double> seconds_left, std::size_t width,
                      std::optional<double> waiting) {
  return fitted({{fmt::format("step {}/{}", report.step, report.steps), 0},
                 {fmt::format("epoch {}/{}", report.epoch, report.epochs), 3},
                 {loss_text(report.loss), 1},
                 {fmt::format("{:.0f} samples/s", report.samples_per_second), 4},
                 {waiting ? fmt::format("{:.0f}% waiting", *waiting * 100) : "", 5},
                 {left_text(seconds_left), 2}},
                width);
}

std::string evaluating_line(const Observer::Evaluation::Progress& progress, std::optional<double> seconds_left,
                            std::size_t width) {
  return fitted({{"test", 0},
                 {progress.step > 0 ? fmt::format("step {}", progress.step) : "", 3},
                 {progress.epoch > 0 ? fmt::format("epoch {}", progress.epoch) : "", 4},
                 {fmt::format("{}%", progress.done * 100 / progress.samples), 1},
                 {left_text(seconds_left), 2}},
                width);
}

std::string evaluation_line(const Observer::Evaluation& report, std::size_t width) {
  return fitted({{"test", 0},
                 {report.step > 0 ? fmt::format("step {}", report.step) : "", 3},
                 {report.epoch > 0 ? fmt::format("epoch {}", report.epoch) : "", 4},
                 {loss_text(report.loss), 1},
                 {report.bits_per_byte ? fmt::format("{:.4f} bits/byte", *report.bits_per_byte) : "", 2},
                 {quality_text(report), 2},
                 {fmt::format("{:.1f} s", report.seconds), 5}},
                width);
}

std::string step_json(const Observer::Step& report, std::optional<double> seconds_left, std::optional<double> waiting) {
  return OrderedJson{{"kind", "step"},
                     {"step", report.step},
                     {"steps", report.steps},
                     {"epoch", report.epoch},
                     {"epochs", report.epochs},
                     {"loss", report.loss},
                     {"samples_per_second", report.samples_per_second},
                     {"waiting", waiting ? OrderedJson(*waiting) : OrderedJson{}},
                     {"seconds_left", seconds_left ? OrderedJson(*seconds_left) : OrderedJson{}}}
      .dump();
}

std::string evaluating_json(const Observer::Evaluation::Progress& progress, std::optional<double> seconds_left) {
  return OrderedJson{
      {"kind", "evaluating"},        {"step", progress.step},
      {"epoch", progress.epoch},     {"done", progress.done},
      {"samples", progress.samples}, {"seconds_left", seconds_left ? OrderedJson(*seconds_left) : OrderedJson{}}}
      .dump();
}

std::string evaluation_json(const Observer::Evaluation& report) {
  OrderedJson json{{"kind", "evaluation"}, {"step", report.step}, {"epoch", report.epoch}};
  add_evaluation(json, report);
  json["seconds"] = report.seconds;
  return json.dump();
}

}  // namespace lockstep
