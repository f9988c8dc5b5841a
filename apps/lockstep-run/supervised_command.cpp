#include "apps/lockstep-run/supervised_command.hpp"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.hpp>
#include <lockstep/input/shards.hpp>

namespace lockstep::run {
namespace {

/// Removes an option with its value, in either of its two forms.
void remove_option(std::vector<std::string>& words, const std::string& option) {
  for (auto word = words.begin(); word != words.end();) {
    const bool apart = *word == option;
    if (!apart && !word->starts_with(option + "=")) {
      ++word;
      continue;
    }
    word = words.erase(word);
    if (apart && word != words.end()) word = words.erase(word);
  }
}

}  // namespace

SupervisedCommand::SupervisedCommand(std::vector<std::string> words) : words_{std::move(words)} {
  if (words_.empty() || words_.front().empty())
    throw ConfigError{"no command was given: expected lockstep-run [options] -- lockstep-train …"};
  // mpirun begins another program there.
  if (std::ranges::find(words_, ":") != words_.end())
    throw ConfigError{"':' is a word of the command: expected one program, and mpirun would start two"};
  is_training_ = std::filesystem::path{words_.front()}.filename() == "lockstep-train";
  if (!is_training_) return;
  checkpoints_ = value_of("--checkpoint-dir").value_or("");
  if (checkpoints_.empty())
    throw ConfigError{
        "lockstep-train without --checkpoint-dir: expected a folder of checkpoints, without which a restart would "
        "begin "
        "anew"};
}

std::optional<std::string> SupervisedCommand::value_of(const std::string& option) const {
  for (std::size_t i = 1; i < words_.size(); ++i) {
    if (words_[i] == option && i + 1 < words_.size()) return words_[i + 1];
    if (words_[i].starts_with(option + "=")) return words_[i].substr(option.size() + 1);
  }
  return std::nullopt;
}

bool SupervisedCommand::fixes_ranks() const {
  return is_training_ && value_of("--cluster-spec").has_value();
}

/// Of the training that `first_ranks` began. Nothing if this is no training, or its shards are wrong, which it says
/// itself.
std::optional<int> SupervisedCommand::shards(int first_ranks, const SeenCheckpoints& seen) const {
  if (!is_training_) return std::nullopt;
  if (seen.shards) return seen.shards;
  try {
    const auto given = value_of("--shards");
    const bool on_gpus = value_of("--device") == "cuda";
    const ShardRequest request = given     ? parse_shards(*given)
                                 : on_gpus ? ShardRequest{ShardRequest::Kind::per_rank}
                                           : ShardRequest{};
    return resolve_shards(request, first_ranks).shards;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

bool SupervisedCommand::fits(int ranks, int first_ranks, const SeenCheckpoints& seen) const {
  if (ranks == first_ranks) return true;
  if (fixes_ranks()) return false;
  const auto count = shards(first_ranks, seen);
  if (!count) return true;
  try {
    return resolve_shards({ShardRequest::Kind::count, *count}, ranks).shards == *count;
  } catch (const ConfigError&) {
    return false;
  }
}

std::vector<std::string> SupervisedCommand::again(int ranks, int first_ranks, const SeenCheckpoints& seen) const {
  std::vector<std::string> words = words_;
  if (!is_training_) return words;
  const std::string from = value_of("--resume").value_or("none");
  if (seen.written || from == "none" || from == "auto") {
    remove_option(words, "--resume");
    words.insert(words.end(), {"--resume", "auto"});
  }
  if (const auto count = shards(first_ranks, seen); count && ranks != first_ranks) {
    remove_option(words, "--shards");
    words.insert(words.end(), {"--shards", std::to_string(*count)});
  }
  return words;
}

}  // namespace lockstep::run
