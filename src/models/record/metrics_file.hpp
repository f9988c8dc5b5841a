// Metrics as a file of JSON objects, one per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/models/fit/observer.hpp>

#include "models/record/kept_file.hpp"

namespace lockstep {

class ExclusiveUse;

/// Writes
///   {"kind":"train","step","epoch","samples","batch","loss","learning_rate","gradient_norm","seconds",
///    "samples_per_second"}
///   {"kind":"eval","step","epoch","loss","accuracy","seconds"}
///   {"kind":"parts","step","steps","seconds","ranks":[{"replica","name","host",the
///   parts,"waiting","late","mostly"},…]}
/// after every step, every evaluation and every Observer::Parts, with "bits_per_byte" after the loss of an evaluation
/// on text, and "r2" and "mean_absolute_error" in the place of the accuracy where numbers are predicted. Numbers read
/// back as the same doubles; those that are not finite are null. Every line reaches the file before the call returns,
/// so a run that is killed loses none; CheckpointError, naming the file, if it cannot be written. The findings of an
/// attestation are one object in FILE.attestation.json beside it:
///   {"step","message","blamed":[REPLICA,…],"differing":[{"name","digests":[DIGEST OF REPLICA 0,…]},…]}
/// and those of an audit, in FILE.audit.json:
///   {"step","shard","message","blamed":[REPLICA,…],"value"}
/// For the chief alone. One process writes a file at a time.
class MetricsFile final : public Observer {
 public:
  /// Removes the findings of an earlier run, and from the file every line but those of the first `steps` steps, after
  /// which this run continues. ConfigError, naming the file, if the path is none that can be written, if the file or
  /// the findings are of something else, or if another process writes it; CheckpointError, before anything is changed,
  /// if the file cannot be read, and if the disk is full. Messages begin with `name` and the path.
  explicit MetricsFile(std::filesystem::path path, std::int64_t steps = 0, std::string name = "--metrics");

  bool wants_gradient_norm() const override { return true; }
  void on_step(const Step& report) override;
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Parts& report) override;

  /// The findings are complete when the call returns. If they cannot be written, logs an error.
  void on_drift(std::int64_t step, const DriftError& found) override;
  void on_audit(const AuditError& found) override;

  /// Writes a line that the caller has made: an object with "kind" and "step" first. CheckpointError, naming the
  /// file, if it cannot be written.
  void write(const std::string& line);

  /// CheckpointError if the file is no longer where it was.
  void require_in_place() const { file_->require_in_place(); }

  /// How many samples those first steps had, as the last line says; 0 without such a line.
  std::int64_t samples_before() const { return samples_before_; }

 private:
  std::filesystem::path findings_of(std::string_view check) const;
  /// Logs an error if that fails.
  void write_findings(std::string_view check, const std::string& text) const;

  std::filesystem::path path_;
  std::string name_;  ///< with the path
  std::int64_t samples_before_ = 0;
  std::shared_ptr<ExclusiveUse> use_;  ///< null for what is no file, such as a pipe
  std::optional<KeptFile> file_;       ///< always there
};

}  // namespace lockstep
