// What the checkpoints of the command say that is started again and again.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "apps/lockstep-run/supervised_command.hpp"

namespace lockstep::run {

class SupervisedCheckpoints {
 public:
  /// In `folder`, from now on. An empty path, and a folder that is not on this machine, say nothing.
  explicit SupervisedCheckpoints(std::filesystem::path folder);

  /// Which checkpoint is the newest: its step, and what tells it from an earlier one of that step. Empty for one that
  /// was there at first: a training that goes on from an older checkpoint sets newer ones aside.
  std::string newest_made() const;

  /// The shards are those of the newest checkpoint with a readable manifest. Checkpoints that a training has left and
  /// set aside do not make older ones new.
  SeenCheckpoints seen() const;

 private:
  std::filesystem::path folder_;
  std::set<std::string> at_first_;  ///< identities
};

}  // namespace lockstep::run
