#include "apps/lockstep-run/supervised_command.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-train/options/command_line.hpp"
#include "apps/lockstep-train/saved/shared_shards.hpp"
#include "core/cluster/device_list.hpp"
#include "core/order/shard_request.hpp"
#include "core/order/shares.hpp"

namespace lockstep::run {
namespace {

void set_option(std::vector<std::string>& words, const std::string& option, const std::string& value) {
  words = without_option(words, option);
  words.insert(words.end(), {option, value});
}

}  // namespace

SupervisedCommand::SupervisedCommand(std::vector<std::string> words) : words_{std::move(words)} {
  if (words_.empty() || words_.front().empty())
    throw ConfigError{"no command was given: expected lockstep-run [options] -- lockstep-train …"};
  // mpirun begins another program there.
  if (std::ranges::find(words_, ":") != words_.end())
    throw ConfigError{"':' is a word of the command: expected one program, and mpirun would start two"};
  if (std::filesystem::path{words_.front()}.filename() != "lockstep-train") return;
  training_ = read(words_);
  if (training_->checkpoints.empty())
    throw ConfigError{
        "lockstep-train without --checkpoint-dir or --run-dir: expected a folder of checkpoints, without which a "
        "restart "
        "would begin anew"};
}

SupervisedCommand::Training SupervisedCommand::read(const std::vector<std::string>& words) {
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const lockstep::CommandLine line = lockstep::parse_command_line(static_cast<int>(argv.size()), argv.data());
  // With --device auto, only the ranks know whether there are GPUs; here they count as none.
  const bool on_gpus = line.runtime.devices.empty()
                           ? line.runtime.device == "cuda"
                           : DeviceList::parse(line.runtime.devices).kind() == DeviceKind::cuda;
  ShardRequest shards = line.training.shards;
  if (shards.kind == ShardRequest::Kind::automatic && on_gpus) shards.kind = ShardRequest::Kind::per_rank;
  return {.checkpoints = line.training.checkpoints,
          .run_folder = line.training.run_folder,
          .names_cluster = !line.runtime.cluster_spec.empty(),
          .names_start = line.training.resume.from == Resume::From::path,
          .needs_gpus = on_gpus && !line.runtime.allow_shared_gpu,
          .reads = {line.training.data, line.training.initial_weights.file, line.training.resume.path},
          .shards = shards,
          .threads = line.training.threads,
          .keeps_subtrees = line.training.threads > 1 || on_gpus || line.runtime.reductions.gradient_compression,
          .stall_timeout = line.runtime.stall_timeout};
}

std::vector<std::filesystem::path> SupervisedCommand::needed_paths() const {
  if (!training_) return {};
  std::vector<std::filesystem::path> paths = training_->reads;
  std::erase(paths, "");
  // A training makes the folders that are missing. What is there on this host must be there on all.
  for (const std::filesystem::path& written : {training_->run_folder, training_->checkpoints}) {
    if (written.empty()) continue;
    std::error_code ignored;
    std::filesystem::path folder = std::filesystem::absolute(written);
    while (!std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
    if (std::ranges::find(paths, folder) == paths.end()) paths.push_back(std::move(folder));
  }
  return paths;
}

std::chrono::duration<double> SupervisedCommand::stall_timeout() const {
  return training_ ? training_->stall_timeout : RuntimeOptions{}.stall_timeout;
}

/// Of the training that `first_ranks` began. Nothing if this is no training, or its shards do not fit the ranks, which
/// it says itself.
std::optional<int> SupervisedCommand::shards(int first_ranks, const SeenCheckpoints& seen) const {
  if (!training_) return std::nullopt;
  // Those that were there at first may be another training's, if this one begins at a checkpoint of its choice.
  if (seen.shards && (seen.written || !training_->names_start)) return seen.shards;
  try {
    return training_->shards.resolve(first_ranks).shards;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::optional<double> SupervisedCommand::relative_time(int ranks, int first_ranks, const SeenCheckpoints& seen) const {
  if (ranks != first_ranks && fixes_ranks()) return std::nullopt;
  const auto count = shards(first_ranks, seen);
  if (!count) return 1. / ranks;
  if (can_share(*count, ranks)) {
    const Shares shares = training_->keeps_subtrees ? Shares{*count, ranks} : Shares::even(*count, ranks);
    return static_cast<double>(shares.largest());
  }
  return ranks == first_ranks ? std::optional{1.} : std::nullopt;  // which it says itself
}

std::vector<std::string> SupervisedCommand::again(int ranks, int first_ranks, const SeenCheckpoints& seen) const {
  std::vector<std::string> words = words_;
  if (!training_) return words;
  if (seen.written || !training_->names_start) set_option(words, "--resume", "auto");
  if (const auto count = shards(first_ranks, seen); count && ranks != first_ranks)
    set_option(words, "--shards", std::to_string(*count));
  return words;
}

}  // namespace lockstep::run
