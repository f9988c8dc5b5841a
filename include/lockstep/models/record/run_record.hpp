// The record of a run: a folder that says what ran where, what it measured, and what happened when.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/models/fit/observer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

class RunTrace;

/// Writes the folder of a run. It is an observer of `fit`:
///
///   RunRecord record{strategy, {.folder = "run1"}};
///   fit(strategy, model, optimizer, data, options, record);
///   record.finish();
///
/// A program with a loop of its own calls `step` after each step instead, and `evaluation` and `checkpoint` where they
/// apply.
///
/// The folder holds run.json (what the run is), metrics.jsonl (a line for each step and evaluation), timeline.jsonl
/// (starts, evaluations, checkpoints, failures and the end), if `ledger` is given ledger.jsonl and ledger.shards.jsonl
/// (digests, so that others can check the run), where.txt and stacks (where ranks were: SIGUSR2, see Runtime), and if
/// `trace` is set a folder of that name. docs/reference.md lists their fields.
///
/// A line is in its file when the call returns, so a killed run loses none; the last line of a killed one may be cut
/// off. Only the chief writes, except that each rank writes its own trace, and any rank may write where.txt, its own
/// stack, and to the timeline the failure that it says on stderr, if it sees the folder. If somebody removes or renames
/// a file during the run, a warning says so at its next line, and `finish` and `stop` throw.
///
/// The chief holds the folder until `finish`, or until the record is destroyed.
///
/// The constructor is COLL. The other methods are LOCAL: every rank may call them, and on ranks other than the chief
/// they write nothing but their trace. If the chief cannot write a file, it throws a CheckpointError that names the
/// file.
class LOCKSTEP_API RunRecord final : public Observer {
 public:
  struct Options {
    /// Made if it does not exist. If empty, there is no folder, and no file but `metrics`.
    std::filesystem::path folder = {};
    /// Set if this run may go on with what an earlier start of it left in the folder: the number of steps after which
    /// it goes on, 0 if no checkpoint was found. Lines of metrics about later steps are removed, so that a resumed
    /// run's metrics equal those of an uninterrupted one, except for times and `parts`. If not set, the folder must
    /// hold no run.
    std::optional<std::int64_t> resume_after = {};
    /// The file of metrics, if it is to be elsewhere. A device or a pipe will do.
    std::filesystem::path metrics = {};
    /// Whether each rank keeps a trace in the folder's `trace`: its last half million spans (trace::Span, and those of
    /// the library), in a file of 32 MiB that is there also if the rank is killed. `finish` converts them for Perfetto
    /// or chrome://tracing; lockstep-inspect does so for a killed run. A process can keep only one trace at a time.
    bool trace = false;
    /// What decides the bits of the run, as a JSON object: data, model, options, kernels. If not empty, the folder gets
    /// a ledger, which begins with it. Its entries are the steps that `fit` records (FitOptions::record_every), and the
    /// checkpoints. It depends neither on ranks nor on times, if variables that are averaged when they are read are the
    /// same on every rank, as `fit` keeps them. The strategy must outlive the record.
    std::string ledger = {};
    /// Whether the ledger also gets the digest of the weights that a run begins with: for those from a file, of which
    /// `ledger` says nothing. The variables must be sealed.
    bool initial_weights = false;
    /// A JSON object whose members run.json gets too, such as {"options":{"width":64}}, in place of those of its own.
    /// The members of "paths" are files.
    std::string about = {};
    /// If not null, receives every call after the record does. Must outlive the record.
    Observer* next = nullptr;
    // How messages name what the program's user gave: "--out run1 holds a run already; expected --continue, which …".
    std::string folder_name = "run folder";
    std::string metrics_name = "metrics file";
    std::string resume_name = "RunRecord::Options::resume_after";
  };

  /// What a program with a loop of its own knows of a step. What is left out is not written.
  struct StepNumbers {
    double loss = 0;
    std::int64_t samples = 0;  ///< in the step's batch, on all ranks
    std::int64_t epoch = 0;    ///< from 1
    std::optional<double> learning_rate = {};
    std::optional<double> gradient_norm = {};
  };

  struct EvaluationNumbers {
    double loss = 0;
    std::optional<double> accuracy = {};
    double seconds = 0;  ///< how long it took
    std::int64_t epoch = 0;
  };

  /// Never replaces a file that no run has written: it refuses a folder that holds one under such a name.
  ///
  /// COLL, blocking, in cross-replica context or the default one. ConfigError on the chief, in one line that begins
  /// with the name of an option, if the folder cannot be written, if another process uses it, if it holds a run and
  /// `resume_after` is not set, and if a file that it would replace holds something else; CheckpointError if a file in
  /// the folder cannot be written, or, before anything is changed, cannot be read; PeerError on the others.
  /// CheckpointError on a rank that cannot make its trace. InvalidArgument if `about` or `ledger` is no JSON object, or
  /// `resume_after` negative.
  RunRecord(Strategy& strategy, Options options, Here here = Here::current());
  RunRecord(const RunRecord&) = delete;
  ~RunRecord() override;

  /// After a step, with the number of steps made. Time and samples are counted from the start, samples together with
  /// those of the steps that were made before.
  void step(std::int64_t step, const StepNumbers& numbers);
  void evaluation(std::int64_t step, const EvaluationNumbers& numbers);

  /// After a checkpoint was saved. `seconds`: how long the steps waited for it. `path`: where it is.
  void checkpoint(std::int64_t step, double seconds = 0, const std::filesystem::path& path = {});

  /// The run ends early after `step` steps, because a rank was asked to (Strategy::stop_requested). Said once.
  /// CheckpointError, after everything is written, if somebody has moved or removed a file.
  void stop(std::int64_t step);

  /// The run is complete. `result` is a JSON object for run.json; if empty, there is none. InvalidArgument for any
  /// other text; CheckpointError as for `stop`. Nothing is written after this.
  void finish(std::string_view result = {});

  bool wants_gradient_norm() const override;
  void on_step(const Step& report) override;
  void on_digests(const Digests& digests) override;
  void on_evaluating(const Evaluation::Progress& progress) override;
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Parts& report) override;
  void on_step_end(const State& state) override;
  void on_stop(const State& state) override;
  void on_drift(std::int64_t step, const DriftError& found) override;
  void on_audit(const AuditError& found) override;

 private:
  class Files;
  Observer* next_;
  std::unique_ptr<Files> files_;  ///< null on all ranks but the chief, and where nothing is written
  detail::StrategyAddress strategy_;
  std::unique_ptr<RunTrace> trace_;  ///< of this rank; null if there is none
  bool stopped_ = false;
  int exceptions_before_;
};

}  // namespace lockstep
