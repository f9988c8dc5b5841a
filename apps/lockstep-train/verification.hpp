// Checking a training by computing a part of it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/observer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/saved/recorded_files.hpp"
#include "models/record/ledger.hpp"

namespace lockstep {

/// The run that is to be checked, as its folder has it.
struct RecordedRun {
  std::filesystem::path folder;
  std::vector<std::string> command;   ///< of its last start
  int shards = 0;                     ///< that it had
  std::string device;                 ///< what its ranks computed on: cpu or cuda
  std::filesystem::path checkpoints;  ///< their folder
  std::filesystem::path weights;      ///< exported at the end; empty if there are none in the folder of the run
  Ledger ledger;
};

/// Whether the run began with weights from a file, as its ledger says.
bool begins_with_weights(const RecordedRun& run);

/// LOCAL. ConfigError if `folder` holds no run of lockstep-train, or none with a ledger. CheckpointError, naming the
/// file, for a ledger that is not as it was written, or that ends before the run did.
RecordedRun read_run(const std::filesystem::path& folder);

/// COLL. MismatchError unless all ranks have read the same run: each reads the folder by itself, and hosts may have
/// copies that differ.
void require_same_on_all(Strategy& strategy, const RecordedRun& run);

/// Observer::Digests to keep.
struct StepDigests {
  std::int64_t step = 0;
  double loss = 0;
  std::vector<std::string> values;
  std::vector<std::uint64_t> of_shards;
  std::optional<std::uint64_t> weights = {};  ///< after the step, if known
};

struct VerificationResult {
  std::int64_t from = 0;  ///< after how many steps it began: those of a checkpoint, or 0
  std::int64_t to = 0;    ///< the last step
  // What was confirmed.
  std::int64_t entries = 0;      ///< of the ledger
  std::int64_t checkpoints = 0;  ///< saved after one of these steps
  bool has_weights = false;      ///< whether the exported weights were, too
};

/// Compares what a training yields with a ledger, and with the files that the run saved. All ranks throw AuditError at
/// the first thing that differs, which names the step, the shard and what differs in it, or the file. Ends the training
/// after step `last`, by an exception that Trainer::verify catches.
class LedgerCheck final : public Observer {
 public:
  /// COLL, as all that follow. `run` is the same on all ranks, and must outlive it, as `files` must.
  LedgerCheck(Strategy& strategy, const RecordedRun& run, RecordedFiles& files, std::int64_t first, std::int64_t last);

  void on_digests(const Digests& digests) override;
  void on_step_end(const State& state) override;

  std::int64_t confirmed() const { return confirmed_; }
  /// Entries that are to come.
  std::int64_t left() const { return std::ssize(left_); }

 private:
  /// `what` differs in a step.
  [[noreturn]] void fail(const std::string& what, AuditError::Finding finding);
  [[noreturn]] void fail_with(const std::string& sentence, AuditError::Finding finding);
  void require_reached(std::int64_t step);
  void require_same_shards(const Digests& digests, const Ledger::Entry& entry);

  Strategy& strategy_;
  const RecordedRun& run_;
  RecordedFiles& files_;
  std::vector<Ledger::Entry> left_;  ///< the next one last
  std::int64_t last_;
  std::int64_t confirmed_ = 0;
};

}  // namespace lockstep
