// The command that is started under mpirun, and what becomes of it when it is started again.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/order/shard_request.hpp"

namespace lockstep::run {

/// What is known of the checkpoints when a job is to be started again.
struct SeenCheckpoints {
  bool written = false;       ///< by the job: `latest` points to one that was not there at the first start
  std::optional<int> shards;  ///< of the training whose they are
};

class SupervisedCommand {
 public:
  /// ConfigError for no words, for options that lockstep-train refuses, and for a lockstep-train without
  /// --checkpoint-dir and --run-dir, which could only begin anew.
  explicit SupervisedCommand(std::vector<std::string> words);

  /// Whether it is a lockstep-train. Any other program is started again with the same words.
  bool is_training() const { return training_.has_value(); }

  /// Empty for other programs.
  std::filesystem::path checkpoints() const { return training_ ? training_->checkpoints : ""; }

  /// The folder of the run. Empty for other programs, and for a training without one.
  std::filesystem::path run_folder() const { return training_ ? training_->run_folder : ""; }

  /// Whether the command names a cluster, which has one number of ranks.
  bool fixes_ranks() const { return training_ && training_->names_cluster; }

  /// What the command reads, and the folders of its run and its checkpoints, or the nearest ones above that exist.
  /// Empty for other programs.
  std::vector<std::filesystem::path> needed_paths() const;
  /// Whether it asks for a GPU for each rank.
  bool needs_gpus() const { return training_ && training_->needs_gpus; }

  /// Of each rank; 1 if unknown.
  int threads() const { return training_ ? training_->threads : 1; }

  /// After which the job of a rank that does not come ends by itself. For other programs the default.
  std::chrono::duration<double> stall_timeout() const;

  const std::vector<std::string>& words() const { return words_; }

  /// For a start of `ranks` after one of `first_ranks`: from the newest checkpoint, with the same shards. A training
  /// that begins at a checkpoint of its own choice begins there until it has written one itself.
  std::vector<std::string> again(int ranks, int first_ranks, const SeenCheckpoints& seen) const;

  /// How long `ranks` take for a step of what `first_ranks` began, but for a factor. Nothing if they cannot go on.
  std::optional<double> relative_time(int ranks, int first_ranks, const SeenCheckpoints& seen) const;

 private:
  /// What matters here of a lockstep-train's options, as it reads them.
  struct Training {
    std::filesystem::path checkpoints;
    std::filesystem::path run_folder;
    bool names_cluster;
    bool names_start;  ///< a checkpoint to begin from
    bool needs_gpus;
    std::vector<std::filesystem::path> reads;
    ShardRequest shards;
    int threads;
    bool keeps_subtrees;  ///< the ranks have one subtree of the shards each (Reductions::shares)
    std::chrono::duration<double> stall_timeout;
  };

  static Training read(const std::vector<std::string>& words);
  std::optional<int> shards(int first_ranks, const SeenCheckpoints& seen) const;

  std::vector<std::string> words_;
  std::optional<Training> training_;
};

}  // namespace lockstep::run
