// What the checkpoints of the command say that is started again and again.
#pragma once

#include <filesystem>
#include <string>

#include "apps/lockstep-run/supervised_command.hpp"

namespace lockstep::run {

class SupervisedCheckpoints {
 public:
  /// In `folder`, from now on. An empty path, and a folder that is not on this machine, say nothing.
  explicit SupervisedCheckpoints(std::filesystem::path folder);

  /// What `latest` points to.
  std::string newest() const;

  /// The shards are those of the newest checkpoint with a readable manifest.
  SeenCheckpoints seen() const;

 private:
  std::filesystem::path folder_;
  std::string at_first_;
};

}  // namespace lockstep::run
