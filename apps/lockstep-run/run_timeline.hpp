// The timeline of the run that is started again and again: failures that no rank could write there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::run {

class RunTimeline {
 public:
  /// In the folder of a run. An empty path, and a folder that is not on this machine, get no lines.
  explicit RunTimeline(std::filesystem::path folder);

  /// Before a job begins. What is there by now is of earlier ones.
  void begin();

  /// After a job that failed. Adds the failure if the job has said there that it began, and not how it ended, and no
  /// other process writes to the folder.
  void end(const std::string& line, int exit_code) const;

 private:
  bool lacks_an_end() const;

  std::filesystem::path folder_;
  std::uint64_t before_ = 0;  ///< bytes of earlier jobs
};

}  // namespace lockstep::run
