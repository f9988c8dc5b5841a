#include "apps/lockstep-train/saved/recorded_files.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/saved/checkpoint_observer.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/saved_difference.hpp"

namespace lockstep {

RecordedFiles::RecordedFiles(Strategy& strategy, const Places& places, Manifest expected, std::int64_t steps)
    : strategy_{strategy}, places_{places}, expected_{std::move(expected)}, steps_{steps} {
  const auto find = [&] {
    std::vector<std::int64_t> saved;
    if (!places.checkpoints.empty())
      for (const std::filesystem::path& each : checkpoints_in(places.checkpoints)) try {
          if (has_manifest(each)) saved.push_back(read_manifest(each).step);
        } catch (const CheckpointError&) {
          if (!is_gone(each)) throw;  // else a training that is under way has removed it
        }
    return std::tuple{places.weights.string(), std::move(saved)};
  };
  auto [weights, saved] = strategy_.broadcast_object(find).value();
  places_.weights = weights;
  saved_ = std::move(saved);
}

std::string RecordedFiles::difference_after(const Observer::State& state) {
  if (std::ranges::find(saved_, state.steps) != saved_.end()) {
    expected_.state = program_state_of(state);
    const std::filesystem::path checkpoint = places_.checkpoints / checkpoint_name(state.steps);
    if (std::string wrong = difference_of_checkpoint(strategy_, checkpoint, expected_); !wrong.empty()) return wrong;
    ++checkpoints_;
  }
  if (state.steps != steps_ || places_.weights.empty()) return {};
  std::string wrong = difference_of_weights(strategy_, places_.weights, expected_.metadata);
  has_weights_ = wrong.empty();
  return wrong;
}

}  // namespace lockstep
