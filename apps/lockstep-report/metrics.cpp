#include "apps/lockstep-report/metrics.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <string>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-report/json_line.hpp"
#include "apps/lockstep-report/json_members.hpp"

namespace lockstep::report {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

/// The numbers of a line, in the order in which lockstep-train writes them: then each is found at once.
enum Key : std::size_t {
  step,
  epoch,
  samples,
  batch,
  loss,
  bits_per_byte,
  r2,
  mean_absolute_error,
  accuracy,
  learning_rate,
  gradient_norm,
  seconds,
  keys
};
constexpr std::array<std::string_view, keys> key_names = {
    "step",     "epoch",         "samples",       "batch",  "loss", "bits_per_byte", "r2", "mean_absolute_error",
    "accuracy", "learning_rate", "gradient_norm", "seconds"};

class Reader {
 public:
  explicit Reader(Metrics& metrics) : metrics_{metrics} {}

  void read(const Line& line) {
    if (!fill(line.text)) {
      metrics_.lines.count_unreadable(line);
      return;
    }
    if (kind_ == "train" && step_)
      add_step();
    else if (kind_ == "eval" && step_)
      add_evaluation();
    else if (kind_ == "parts")
      add_parts(line);
    else if (kind_.empty() || kind_ == "train" || kind_ == "eval")
      metrics_.lines.count_unreadable(line);
    else
      ++metrics_.lines.unknown;
  }

 private:
  /// False for a line that is no whole object.
  bool fill(std::string_view line) {
    values_.fill({});
    kind_ = {};
    std::size_t next = 0;
    if (!visit_members(line, [&](std::string_view key, std::string_view value) {
          if (key == "kind") {
            kind_ = value;
            return;
          }
          for (std::size_t tried = 0; tried < keys; ++tried) {
            const std::size_t candidate = next + tried < keys ? next + tried : next + tried - keys;
            if (key_names[candidate] != key) continue;
            values_[candidate] = value;
            next = candidate + 1;
            return;
          }
        }))
      return false;
    step_ = integer_in(values_[step]);
    return true;
  }

  double number(Key key) const { return values_[key].empty() ? none : number_in(values_[key]); }

  void add_step() {
    ++metrics_.lines.used;
    metrics_.steps = *step_;
    metrics_.epochs = integer_in(values_[epoch]).value_or(metrics_.epochs);
    metrics_.last_loss = number(loss);
    if (!std::isfinite(metrics_.last_loss)) {
      if (!metrics_.not_finite) metrics_.not_finite = {*step_, 0};
      ++metrics_.not_finite->steps;
    }
    // The clock of a run begins anew when it is resumed.
    const double clock = number(seconds);
    const double took = clock < clock_ ? clock : clock - clock_;
    if (std::isfinite(clock)) clock_ = clock;
    if (took > 0) metrics_.training_seconds += took;
    const double seen = number(samples);
    double in_batch = number(batch);
    if (std::isnan(in_batch)) in_batch = seen - samples_;
    if (std::isfinite(seen)) samples_ = seen;
    metrics_.train.add(
        {*step_, seen, metrics_.training_seconds},
        {metrics_.last_loss, number(learning_rate), number(gradient_norm), took > 0 ? in_batch / took : none,
         took > 0 ? took : none, in_batch > 0 ? in_batch : none, none, none});
  }

  void add_evaluation() {
    ++metrics_.lines.used;
    const double value = number(loss);
    metrics_.last_evaluation_loss = value;
    if (std::isfinite(value) && (!metrics_.lowest_evaluation_loss || value < metrics_.lowest_evaluation_loss->loss))
      metrics_.lowest_evaluation_loss = {value, *step_};
    if (const double took = number(seconds); took > 0) metrics_.evaluation_seconds += took;
    metrics_.evaluations.add(
        {*step_, samples_, metrics_.training_seconds},
        {value, number(accuracy), number(bits_per_byte), number(r2), number(mean_absolute_error), none, none, none});
  }

  void add_parts(const Line& line) {
    try {
      metrics_.parts.add(parse_foreign_json(as_utf8(line.text)));
      ++metrics_.lines.used;
    } catch (const Error&) {
      metrics_.lines.count_unreadable(line);
    }
  }

  Metrics& metrics_;
  std::string_view kind_;
  std::array<std::string_view, keys> values_;
  std::optional<std::int64_t> step_;
  double clock_ = 0, samples_ = 0;
};

}  // namespace

void read_metrics(const std::filesystem::path& path, Metrics& metrics) {
  Reader reader{metrics};
  for_each_line(path, [&](const Line& line) { reader.read(line); });
}

}  // namespace lockstep::report
