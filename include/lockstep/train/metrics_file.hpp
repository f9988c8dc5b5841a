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
/// line is in the file when the call returns, so a run that is killed loses none. For the chief alone.
class MetricsFile final : public Observer {
 public:
  /// Begins an empty file. ConfigError, naming it, if that cannot be done.
  explicit MetricsFile(std::filesystem::path path);

  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;

 private:
  /// Error, naming the file, if the line could not be written.
  void write(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
