#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/models/record/run_record.hpp>

#include "core/base/foreign_json.hpp"
#include "core/watch/watch_notes.hpp"
#include "models/record/failure_note.hpp"
#include "models/record/ledger.hpp"
#include "models/record/metrics_file.hpp"
#include "models/record/run_description.hpp"
#include "models/record/run_folder.hpp"
#include "models/record/run_trace.hpp"
#include "models/record/timeline.hpp"
#include "sync/checkpoint/exclusive_use.hpp"
#include "sync/checkpoint/file.hpp"

namespace lockstep {

/// The files, on the chief. What is not wanted is not there.
class RunRecord::Files {
 public:
  /// Opens them, and notes the start of the run. Before anything is changed, everything has been read.
  Files(const Options& options, OrderedJson ranks) : layout_{options.folder}, options_{options} {
    const std::int64_t before = options.resume_after.value_or(0);
    step_ = before;
    Earlier earlier;
    if (!options.folder.empty()) {
      use_ = lock_run_folder(options, options.resume_after ? RunStart::may_resume : RunStart::anew);
      if (options.trace) require_own_trace(layout_.trace(), options_.folder_name);
      earlier = read_earlier(before);
    }
    if (!options.metrics.empty())
      metrics_.emplace(options.metrics, before, options_.metrics_name);
    else if (use_)
      metrics_.emplace(layout_.metrics(), before, options_.folder_name);
    if (metrics_) samples_before_ = metrics_->samples_before();
    if (!use_) return;
    begin(std::move(ranks), earlier);
    open_ledger(std::move(earlier.ledger));
  }

  /// Where the rank that ends the job is to note that.
  std::optional<FailureNote> failure_note() const {
    if (!timeline_) return std::nullopt;
    return FailureNote{std::filesystem::absolute(layout_.timeline()), timeline_->inode(), timeline_->start()};
  }

  /// Null if there is none.
  LedgerFile* ledger() {
    if (ledger_) use_->require_not_lost();
    return ledger_ ? &*ledger_ : nullptr;
  }

  /// After what has been written. The run goes on if a file is no longer where it was, and says so once.
  void warn_of_loss() {
    warn_unless([this] { require_in_place(); });
  }

  /// The same after each step, which looks at no other file than the one that it has written to.
  void warn_of_lost_metrics() {
    warn_unless([this] {
      if (metrics_) metrics_->require_in_place();
    });
  }

  MetricsFile* metrics() { return metrics_ ? &*metrics_ : nullptr; }

  void step(std::int64_t step, const StepNumbers& numbers) {
    step_ = step;
    if (!metrics_) return;
    samples_ += numbers.samples;
    const std::chrono::duration<double> elapsed = Clock::now() - begin_;
    const double seconds = elapsed.count() - evaluation_seconds_;
    OrderedJson line{{"kind", "train"}, {"step", step}};
    if (numbers.epoch > 0) line["epoch"] = numbers.epoch;
    if (numbers.samples > 0) {
      line["samples"] = samples_before_ + samples_;
      line["batch"] = numbers.samples;
    }
    line["loss"] = numbers.loss;
    if (numbers.learning_rate) line["learning_rate"] = *numbers.learning_rate;
    if (numbers.gradient_norm) line["gradient_norm"] = *numbers.gradient_norm;
    line["seconds"] = seconds;
    if (numbers.samples > 0) line["samples_per_second"] = static_cast<double>(samples_) / seconds;
    metrics_->write(line.dump());
    warn_of_lost_metrics();
  }

  void evaluation(std::int64_t step, const EvaluationNumbers& numbers) {
    evaluation_seconds_ += numbers.seconds;
    OrderedJson line{{"kind", "eval"}, {"step", step}};
    if (numbers.epoch > 0) line["epoch"] = numbers.epoch;
    line["loss"] = numbers.loss;
    if (numbers.accuracy) line["accuracy"] = *numbers.accuracy;
    line["seconds"] = numbers.seconds;
    if (metrics_) metrics_->write(line.dump());
    add("evaluation", {{"step", step}, {"seconds", numbers.seconds}});
  }

  void made(std::int64_t step) { step_ = step; }
  std::int64_t made() const { return step_; }

  void checkpoint(std::int64_t step, double seconds, const std::filesystem::path& path) {
    if (!timeline_) return;
    OrderedJson fields{{"step", step}, {"seconds", seconds}};
    if (!path.empty()) fields["path"] = path_in(layout_.folder, path);
    add("checkpoint", fields);
  }

  /// Adds a line to the timeline.
  void add(std::string_view kind, const OrderedJson& fields) {
    if (!timeline_) return;
    use_->require_not_lost();
    timeline_->add(kind, fields);
    warn_of_loss();
  }

  /// Where the folder is not the run's any more, it gets no run.json.
  void end(std::string_view kind, OrderedJson result) {
    add(kind, {{"step", step_}});
    if (use_ && timeline_->file().is_in_place()) {
      description_["ended"] = time_text();
      description_["result"] = std::move(result);
      write_description();
    }
  }

  /// CheckpointError if a file is no longer where it was.
  void require_in_place() const {
    if (timeline_) timeline_->file().require_in_place();
    if (metrics_) metrics_->require_in_place();
    if (ledger_) ledger_->require_in_place();
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class RequireInPlace>
  void warn_unless(RequireInPlace&& require) {
    if (is_loss_told_) return;
    try {
      require();
    } catch (const CheckpointError& error) {
      is_loss_told_ = true;
      log::warning(fmt::format("{}; what the run still writes is lost", error.what()));
    }
  }

  /// What an earlier start has left in the folder.
  struct Earlier {
    OrderedJson description = OrderedJson::object();
    Timeline::Kept timeline;
    LedgerFile::Kept ledger;
  };

  std::string name_of(const std::filesystem::path& file) const {
    return fmt::format("{} {}", options_.folder_name, file.string());
  }

  Earlier read_earlier(std::int64_t steps) const {
    return {.description = read_description(layout_.description(), name_of(layout_.description())),
            .timeline = Timeline::find(layout_.timeline(), name_of(layout_.timeline())),
            .ledger = LedgerFile::find({layout_.ledger(), layout_.ledger_of_shards()}, steps, options_.folder_name)};
  }

  void open_ledger(LedgerFile::Kept kept) {
    if (options_.ledger.empty()) {
      // One of an earlier start would no longer be about the whole run.
      std::error_code ignored;
      for (const std::filesystem::path& file : {layout_.ledger(), layout_.ledger_of_shards()})
        std::filesystem::remove(file, ignored);
      return;
    }
    ledger_.emplace(LedgerFile::Paths{layout_.ledger(), layout_.ledger_of_shards()}, std::move(kept),
                    parse_object(options_.ledger, "RunRecord::Options::ledger"), options_.folder_name);
  }

  void begin(OrderedJson ranks, const Earlier& earlier) {
    timeline_.emplace(layout_.timeline(), name_of(layout_.timeline()), earlier.timeline);
    const auto starts = earlier.description.find("starts");
    const bool counts = starts != earlier.description.end() && starts->is_number_integer();
    timeline_->set_start(std::max(timeline_->start(), counts ? starts->get<std::int64_t>() : 0) + 1);
    const std::size_t count = ranks.size();
    description_ = describe_run(std::move(ranks));
    description_["starts"] = timeline_->start();
    if (const auto started = earlier.description.find("started");
        started != earlier.description.end() && started->is_string())
      description_["started"] = *started;
    description_["paths"] = {{"metrics", (options_.metrics.empty() ? layout_.metrics() : options_.metrics).string()},
                             {"timeline", layout_.timeline().string()}};
    if (!options_.about.empty())
      description_.update(parse_object(options_.about, "RunRecord::Options::about"), /*merge_objects=*/true);
    for (OrderedJson& path : description_["paths"])
      if (path.is_string()) path = path_in(layout_.folder, path.get<std::string>());
    write_description();
    add("start", {{"ranks", count}, {"step", step_}, {"resumed", step_ > 0}});
  }

  void write_description() {
    use_->require_not_lost();
    const std::string text = description_.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
    NewFile file{layout_.description(), options_.folder_name};
    file.write(std::as_bytes(std::span{text}));
    file.commit();
  }

  RunLayout layout_;
  Options options_;
  std::shared_ptr<ExclusiveUse> use_;  ///< of the folder; null without one
  std::optional<MetricsFile> metrics_;
  std::optional<Timeline> timeline_;
  std::optional<LedgerFile> ledger_;
  OrderedJson description_;
  std::int64_t step_ = 0;  ///< made
  std::int64_t samples_before_ = 0, samples_ = 0;
  Clock::time_point begin_ = Clock::now();
  double evaluation_seconds_ = 0;
  bool is_loss_told_ = false;
};

namespace {

/// As text, for the other ranks.
std::string text_of(const std::optional<FailureNote>& note) {
  if (!note) return {};
  return OrderedJson{{"timeline", note->timeline.string()}, {"inode", note->inode}, {"start", note->start}}.dump(
      -1, ' ', false, OrderedJson::error_handler_t::replace);
}

FailureNote parse_note(const std::string& text) {
  const OrderedJson note = OrderedJson::parse(text);
  return {note["timeline"].get<std::string>(), note["inode"], note["start"]};
}

void write_note(const RunLayout& layout, const std::filesystem::path& file, const std::string& text) {
  // Not the folder of the run: if that is gone, so is what this is about.
  std::error_code ignored;
  if (file.parent_path() == layout.stacks()) std::filesystem::create_directory(layout.stacks(), ignored);
  NewFile note{file, "file of the run"};
  note.write(std::as_bytes(std::span{text}));
  note.commit();
}

/// LOCAL. What this process learns of a job that goes on, or is about to end, goes to the folder as well.
void note_in_folder(const FailureNote& note) {
  note_failures(note);
  struct stat status = {};
  if (::stat(note.timeline.c_str(), &status) != 0 || status.st_ino != note.inode) return;
  const RunLayout layout{note.timeline.parent_path()};
  const auto write = [layout](const auto& file, const std::string& text) { write_note(layout, file, text); };
  keep_watch_notes(std::make_shared<WatchNotes>(WatchNotes{layout.where(), layout.stacks(), write}));
}

void forget_folder() {
  keep_watch_notes(nullptr);
  forget_failures();
}

}  // namespace

RunRecord::RunRecord(Strategy& strategy, Options options, Here here)
    : next_{options.next}, strategy_{strategy}, exceptions_before_{std::uncaught_exceptions()} {
  if (options.resume_after.value_or(0) < 0)
    throw InvalidArgument{
        fmt::format("RunRecord::Options::resume_after is {}; expected 0 or more", *options.resume_after)};
  if (!options.about.empty()) (void)parse_object(options.about, "RunRecord::Options::about");
  if (!options.ledger.empty()) (void)parse_object(options.ledger, "RunRecord::Options::ledger");
  if (options.folder.empty() && options.metrics.empty()) return;
  const OrderedJson ranks = options.folder.empty() ? OrderedJson{} : gather_ranks(strategy, here);
  const bool keeps_trace = options.trace && !options.folder.empty();
  const std::filesystem::path trace = RunLayout{options.folder}.trace();
  const auto open = [&] {
    files_ = std::make_unique<Files>(options, ranks);
    if (keeps_trace) clear_trace(trace);
    return text_of(files_->failure_note());
  };
  if (const std::string note = strategy.broadcast_object(open, here).value(); !note.empty())
    note_in_folder(parse_note(note));
  // A run that was killed after it had saved a checkpoint has not said so.
  if (const std::int64_t made = options.resume_after.value_or(0);
      (made > 0 || options.initial_weights) && files_ && files_->ledger())
    files_->ledger()->add_weights(made, digest_of_weights(strategy.store()));
  if (keeps_trace) trace_ = std::make_unique<RunTrace>(strategy, trace, ranks, here);
}

RunRecord::~RunRecord() {
  // The job says how it failed when this object is gone.
  if (std::uncaught_exceptions() <= exceptions_before_) forget_folder();
}

void RunRecord::step(std::int64_t step, const StepNumbers& numbers) {
  if (files_) files_->step(step, numbers);
}

void RunRecord::evaluation(std::int64_t step, const EvaluationNumbers& numbers) {
  if (files_) files_->evaluation(step, numbers);
}

void RunRecord::checkpoint(std::int64_t step, double seconds, const std::filesystem::path& path) {
  if (!files_) return;
  files_->checkpoint(step, seconds, path);
  if (files_->ledger()) files_->ledger()->add_weights(step, digest_of_weights(strategy_.strategy().store()));
}

void RunRecord::on_digests(const Digests& digests) {
  if (files_ && files_->ledger()) {
    files_->ledger()->add(digests);
    files_->warn_of_loss();
  }
  if (next_) next_->on_digests(digests);
}

void RunRecord::stop(std::int64_t step) {
  if (!files_ || stopped_) return;
  stopped_ = true;
  files_->made(step);
  files_->end("stop", nullptr);
  files_->require_in_place();
}

void RunRecord::finish(std::string_view result) {
  OrderedJson object = result.empty() ? OrderedJson{} : parse_object(result, "the result of RunRecord::finish");
  if (files_ && files_->ledger()) files_->ledger()->end(files_->made());
  if (files_) files_->end("end", std::move(object));
  if (const auto trace = std::exchange(trace_, nullptr)) trace->write_pictures();
  if (files_) files_->require_in_place();
  files_.reset();
  forget_folder();
}

bool RunRecord::wants_gradient_norm() const {
  return (files_ && files_->metrics()) || (next_ && next_->wants_gradient_norm());
}

void RunRecord::on_step(const Observer::Step& report) {
  if (files_) {
    files_->made(report.step);
    if (files_->metrics()) files_->metrics()->on_step(report);
    files_->warn_of_lost_metrics();
  }
  if (next_) next_->on_step(report);
}

void RunRecord::on_evaluating(const Observer::Evaluation::Progress& progress) {
  if (next_) next_->on_evaluating(progress);
}

void RunRecord::on_evaluation(const Observer::Evaluation& report) {
  if (files_) {
    if (files_->metrics()) files_->metrics()->on_evaluation(report);
    files_->add("evaluation", {{"step", report.step}, {"seconds", report.seconds}});
  }
  if (next_) next_->on_evaluation(report);
}

void RunRecord::on_parts(const Observer::Parts& report) {
  if (files_ && files_->metrics()) files_->metrics()->on_parts(report);
  if (next_) next_->on_parts(report);
}

void RunRecord::on_step_end(const Observer::State& state) {
  if (next_) next_->on_step_end(state);
}

void RunRecord::on_stop(const Observer::State& state) {
  stop(state.steps);
  if (next_) next_->on_stop(state);
}

void RunRecord::on_drift(std::int64_t step, const DriftError& found) {
  if (files_ && files_->metrics()) files_->metrics()->on_drift(step, found);
  if (next_) next_->on_drift(step, found);
}

void RunRecord::on_audit(const AuditError& found) {
  if (files_ && files_->metrics()) files_->metrics()->on_audit(found);
  if (next_) next_->on_audit(found);
}

}  // namespace lockstep
