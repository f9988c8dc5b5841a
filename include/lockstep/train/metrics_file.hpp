// Metrics as a file of JSON objects, one a line.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>

#include <lockstep/train/observer.hpp>

namespace lockstep {

/// Writes
///   {"kind":"train","step","epoch","samples","loss","seconds","samples_per_second"}   after every step
///   {"kind":"eval","step","epoch","loss","accuracy","seconds"}                        after every evaluation
/// and "bits_per_byte" behind the loss of an evaluation on text, with numbers that read back as the same doubles. Every
/// line is in the file when the call returns, so a run that is killed loses none. What an attestation found is one
/// object in a file beside it, FILE.attestation.json:
///   {"step","message","blamed":[REPLICA,…],"differing":[{"name","digests":[DIGEST OF REPLICA 0,…]},…]}
/// For the chief alone.
class MetricsFile final : public Observer {
 public:
  /// Begins an empty file, and removes what an earlier run found. ConfigError, naming it, if that cannot be done.
  explicit MetricsFile(std::filesystem::path path);

  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;

  /// The file is whole when the call returns; where it could not be written, the log says so.
  void on_drift(std::int64_t step, const DriftError& found) override;

 private:
  /// Error, naming the file, if the line could not be written.
  void write(const std::string& line);
  std::filesystem::path attestation_path() const;

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
