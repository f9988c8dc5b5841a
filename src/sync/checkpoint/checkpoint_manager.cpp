#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>

#include "core/base/excerpt.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/checkpoint/checkpoint_files.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/checkpoint_writer.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/checkpoint/safetensors.hpp"
#include "sync/checkpoint/shared_counter.hpp"
#include "sync/checkpoint/strategy_values.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/fit_progress.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

bool has_tensor(const Manifest& manifest, std::string_view file, std::string_view tensor) {
  const Manifest::File* const found = manifest.file(file);
  return found && std::ranges::find(found->digests, tensor, &std::pair<std::string, std::uint64_t>::first) !=
                      found->digests.end();
}

/// In what the training of a checkpoint differs from that of `options`. Empty if in nothing that counts.
std::string other_training(const Manifest& manifest, const CheckpointManager::Options& options) {
  TrainingFacts facts = manifest.training;
  if (options.weights_only)
    std::erase_if(facts, [&](const auto& fact) {
      return std::ranges::find(options.training, fact.first, &TrainingFacts::value_type::first) ==
             options.training.end();
    });
  return options.difference ? options.difference(facts) : difference(facts, options.training);
}

std::string told_compression(const std::string& compression) {
  return compression.empty() ? "uncompressed gradients" : "gradients compressed to " + excerpt(compression);
}

/// Warns of what changes results, and does not make another training.
void compare_arithmetic(const ReadCheckpoint& read, const CheckpointManager::Options& options) {
  if (options.weights_only) return;
  const auto& [path, there] = read;
  if (there.kernels != options.kernels)
    log::warning(fmt::format("checkpoint {} was computed by {}, and goes on with {}: low-order bits may differ",
                             path.string(), excerpt(there.kernels), options.kernels));
  if (there.compression != options.compression)
    log::warning(fmt::format("checkpoint {} was computed with {}, and goes on with {}: results may differ",
                             path.string(), told_compression(there.compression),
                             told_compression(options.compression)));
}

/// How many calls of `fit` there were before the one that a checkpoint was saved in. Nothing if its state says
/// something else.
std::optional<int> fits_before_in(const ProgramState& state) {
  const auto found = state.find(detail::FitProgress::fits_before_name);
  if (found == state.end()) return 0;
  const std::string& text = found->second;
  int fits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fits);
  return error == std::errc{} && end == text.data() + text.size() && fits >= 0 ? std::optional{fits} : std::nullopt;
}

/// CheckpointError if the program cannot go on from the checkpoint's state.
void require_state(const std::filesystem::path& checkpoint, const Manifest& manifest,
                   const CheckpointManager::Options& options) {
  if (!options.weights_only && !fits_before_in(manifest.state))
    fail_checkpoint(checkpoint.string(),
                    fmt::format("its state has '{}' as \"{}\"; expected how many calls of fit there were",
                                excerpt(manifest.state.at(detail::FitProgress::fits_before_name)),
                                detail::FitProgress::fits_before_name));
  if (!options.check) return;
  try {
    options.check({manifest.step, manifest.state, checkpoint});
  } catch (const Error& error) {
    fail_checkpoint(checkpoint.string(), error.what());
  }
}

/// Reads every byte before it sets a value.
ReadCheckpoint read_values(const std::filesystem::path& checkpoint, const Manifest& manifest,
                           const CheckpointManager::Options& options, StrategyValues& values) {
  require_state(checkpoint, manifest, options);
  auto files = files_of(values, options.weights_only ? FilesOf::weights : FilesOf::everything);
  SharedCounter shared;
  std::vector<std::vector<Tensor>> tensors;
  for (TensorFile& file : files) {
    if (file.name == optimizer_file)
      shared.take_missing(file.tensors, [&](std::string_view name) { return has_tensor(manifest, file.name, name); });
    tensors.push_back(read_tensors(open_checkpoint_file(checkpoint, manifest, file.name), file.tensors));
  }
  for (std::size_t i = 0; i < files.size(); ++i) values.set(files[i].tensors, tensors[i]);
  shared.restore(checkpoint.string());
  return {checkpoint, manifest};
}

/// CheckpointError if the checkpoint is not complete, or of another training.
ReadCheckpoint read_whole(const std::filesystem::path& checkpoint, const CheckpointManager::Options& options,
                          StrategyValues& values) {
  const Manifest manifest = read_checkpoint(checkpoint);
  if (const std::string other = other_training(manifest, options); !other.empty())
    fail_checkpoint(checkpoint.string(), other);
  return read_values(checkpoint, manifest, options, values);
}

/// The newest complete checkpoint. What it passes over, it logs.
std::optional<ReadCheckpoint> read_newest_whole(const CheckpointManager::Options& options, StrategyValues& values) {
  std::string other;  // of another training: the end of the search, as older ones are of it too
  const auto read = [&](const std::filesystem::path& checkpoint) {
    Manifest manifest = read_checkpoint(checkpoint);
    other = other_training(manifest, options);
    return other.empty() ? read_values(checkpoint, manifest, options, values)
                         : ReadCheckpoint{checkpoint, std::move(manifest)};
  };
  auto newest = read_newest(options.folder, read, [](const CheckpointError& error) {
    log::warning(fmt::format("passed over: {}", error.what()));
  });
  if (!other.empty()) fail_checkpoint(newest->path.string(), other);
  return newest;
}

/// The step of a checkpoint in `folder`; none_stays for one that is elsewhere, or has another name.
std::int64_t step_within(const std::filesystem::path& folder, const std::filesystem::path& checkpoint) {
  std::error_code unknown;
  const auto step = step_in(checkpoint.filename().string());
  return step && std::filesystem::equivalent(checkpoint.parent_path(), folder, unknown) ? *step : none_stays;
}

/// Those of the checkpoints in the folder from which a training cannot go on that has gone on from one with the facts
/// `own`, or that those of `options` describe.
std::set<std::int64_t> foreign_steps(const CheckpointManager::Options& options, const TrainingFacts& own) {
  std::set<std::int64_t> foreign;
  std::error_code none;
  if (!std::filesystem::is_directory(options.folder, none)) return foreign;
  for (const std::filesystem::path& checkpoint : checkpoints_in(options.folder)) try {
      const Manifest manifest = read_manifest(checkpoint);
      if (manifest.training != own && !other_training(manifest, options).empty()) foreign.insert(manifest.step);
    } catch (const CheckpointError&) {
      // The writer finds out that it is damaged.
    }
  return foreign;
}

/// What the program gives, and how far `fit` has come.
ProgramState with_progress(ProgramState state, Strategy& strategy) {
  const auto& progress = inside(strategy.store()).fit_progress();
  if (progress && !state.contains(detail::FitProgress::state_name)) state.merge(progress->saved());
  return state;
}

/// LOCAL, on every rank. Where the next `fit` goes on.
void note_progress(Strategy& strategy, const CheckpointManager::Resumed& resumed) {
  const auto state = resumed.state.find(detail::FitProgress::state_name);
  detail::FitProgress::of(strategy.store())
      .restore({.checkpoint = resumed.checkpoint.string(),
                .step = resumed.step,
                .state = state == resumed.state.end() ? std::nullopt : std::optional{state->second},
                .fits_before = fits_before_in(resumed.state).value(),
                .optimizer_steps = detail::FitProgress::optimizer_steps(strategy.store())});
}

/// What every rank gets of a checkpoint: folder, step, state, and the best one.
using Restored = std::tuple<std::string, std::int64_t, ProgramState, std::optional<CheckpointLoss>>;

}  // namespace

/// What this training was restored from, on the chief.
struct CheckpointManager::Origin {
  std::filesystem::path checkpoint;
  std::int64_t step;
  TrainingFacts training;
};

CheckpointManager::CheckpointManager(Strategy& strategy, Options options)
    : strategy_{strategy}, options_{std::move(options)} {
  if (options_.folder.empty()) throw InvalidArgument{"checkpoints without a folder"};
  if (options_.every.value_or(1) < 1)
    throw InvalidArgument{fmt::format("{} steps between checkpoints; expected at least 1", *options_.every)};
  if (options_.keep < 1)
    throw InvalidArgument{fmt::format("{} checkpoints to keep; expected at least 1", options_.keep)};
  safetensors::require_writable(options_.metadata);
  if (is_chief()) writer_ = std::make_unique<CheckpointWriter>(options_.folder, options_.keep);
}

CheckpointManager::~CheckpointManager() = default;

bool CheckpointManager::is_chief() const {
  return strategy_.rank() == 0;
}

bool CheckpointManager::is_best(double loss) const {
  return std::isfinite(loss) && (!best_ || loss < best_->loss);
}

/// On the chief. What a checkpoint fails with is a warning if it is optional.
void CheckpointManager::call_writer(const std::function<void(CheckpointWriter&)>& call) {
  try {
    call(*writer_);
  } catch (const CheckpointError& error) {
    if (!options_.optional) throw;
    log::warning(fmt::format("the training goes on without this checkpoint: {}", error.what()));
  }
}

/// On the chief. Nothing is being written afterwards, and a manager that is going to write has the folder for itself.
void CheckpointManager::prepare_writer() {
  call_writer(&CheckpointWriter::wait);
  if (options_.every) call_writer(&CheckpointWriter::hold);
}

/// On the chief. The newest checkpoint in the folder is one from which this training goes on.
void CheckpointManager::begin_after(std::int64_t step) {
  if (writer_->has_begun()) return;
  std::optional<CheckpointWriter::Origin> origin;
  if (resumed_) origin = {step_within(options_.folder, resumed_->checkpoint), {}};
  if (origin && best_) origin->best = best_->step;
  try {
    writer_->begin(origin, step);
    writer_->set_foreign(foreign_steps(options_, resumed_ ? resumed_->training : options_.training));
  } catch (const CheckpointError& error) {
    if (!options_.optional) throw;
    log::warning(fmt::format("the training continues beside checkpoints that it has not made: {}", error.what()));
  }
}

void CheckpointManager::begin(Here here) {
  on_chief(strategy_, here, [&] {
    if (resumed_) begin_after(resumed_->step);
  });
}

void CheckpointManager::pass(std::int64_t step) {
  if (is_chief() && options_.every && !writer_->has_begun())
    detail::announcing_failure(inside(strategy_).group().meeting(), [&] { begin_after(step); });
  report_failure();
}

void CheckpointManager::report_failure() {
  if (!is_chief()) return;
  const BusyClock::During looking{BusyClock::Part::checkpoint};
  detail::announcing_failure(inside(strategy_).group().meeting(), [&] { call_writer(&CheckpointWriter::poll); });
}

void CheckpointManager::save(std::int64_t step, const State& state, std::optional<double> loss, Here here) {
  if (step < 0) throw InvalidArgument{fmt::format("a checkpoint of step {}; expected 0 or more", step)};
  const BusyClock::During saving{BusyClock::Part::checkpoint};
  const Scope scope = detail::enter(strategy_, {"save", here});
  StrategyValues values{strategy_, here};
  report_failure();
  inside(strategy_).agree(TagKind::save, here, (options_.folder / checkpoint_name(step)).string());
  values.combine(here);
  if (loss && is_best(*loss)) best_ = std::make_unique<const CheckpointLoss>(CheckpointLoss{step, *loss});
  if (!is_chief()) return;
  MeetingPoint& meeting = inside(strategy_).group().meeting();
  const auto alone = meeting.working_alone();
  detail::announcing_failure(meeting, [&] {
    // An optional one that fails does not keep the next from being written.
    call_writer(&CheckpointWriter::wait);
    begin_after(step);
    const auto best = best_ ? std::optional{*best_} : std::nullopt;
    writer_->write({step,
                    best,
                    options_.training,
                    options_.kernels,
                    options_.compression,
                    with_progress(state, strategy_),
                    options_.metadata,
                    {}},
                   files_of(values), strategy_.stream());
  });
}

void CheckpointManager::finish(Here here) {
  on_chief(strategy_, here, [&] { prepare_writer(); });
}

std::optional<CheckpointManager::Resumed> CheckpointManager::resume_latest(Here here) {
  return restore("resume_latest", here, options_.folder,
                 [&](StrategyValues& values) { return read_newest_whole(options_, values); });
}

CheckpointManager::Resumed CheckpointManager::resume(const std::filesystem::path& path, Here here) {
  const auto read = [&](StrategyValues& values, const std::filesystem::path& found) {
    // So that a link is told as what it points to.
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::canonical(found, error);
    const std::filesystem::path& checkpoint = error ? found : whole;
    require_one_checkpoint(checkpoint);
    return read_whole(checkpoint, options_, values);
  };
  return *restore("resume", here, path, [&](StrategyValues& values) -> std::optional<ReadCheckpoint> {
    return read_checkpoint_at(path, [&](const std::filesystem::path& found) { return read(values, found); });
  });
}

/// COLL. `read`, on the chief, sets the values; every rank gets them.
std::optional<CheckpointManager::Resumed> CheckpointManager::restore(
    std::string_view call, const Here& here, const std::filesystem::path& path,
    const std::function<std::optional<ReadCheckpoint>(StrategyValues&)>& read) {
  const Scope scope = detail::enter(strategy_, {call, here});
  StrategyValues values{strategy_, here};
  inside(strategy_).agree(TagKind::restore, here, path.string());
  const auto read_values = [&]() -> std::optional<Restored> {
    prepare_writer();
    const auto found = read(values);
    if (!found) return std::nullopt;
    compare_arithmetic(*found, options_);
    if (!options_.weights_only) {
      resumed_ = std::make_unique<const Origin>(Origin{found->path, found->manifest.step, found->manifest.training});
      writer_->begin_anew();
    }
    // One that is gone, or is in another folder, would keep this training from having a best one.
    std::optional<CheckpointLoss> best = found->manifest.best;
    const bool is_here = step_within(options_.folder, found->path) != none_stays;
    if (best && (!is_here || is_gone(options_.folder / checkpoint_name(best->step)))) best.reset();
    return Restored{found->path.string(), found->manifest.step, found->manifest.state, best};
  };
  const auto restored = strategy_.broadcast_object(read_values, here).value();
  if (!restored) return std::nullopt;
  values.spread(here);
  const auto& [folder, step, state, best] = *restored;
  best_ = best ? std::make_unique<const CheckpointLoss>(*best) : nullptr;
  Resumed resumed{step, state, folder};
  if (!options_.weights_only) {
    inside(strategy_).group().meeting().continue_after(static_cast<std::uint64_t>(step));
    note_progress(strategy_, resumed);
  } else if (const auto& progress = inside(strategy_.store()).fit_progress()) {
    progress->forget_restored();
  }
  return resumed;
}

bool CheckpointManager::has_checkpoints(Here here) {
  const Scope scope = detail::enter(strategy_, {"has_checkpoints", here});
  const auto any = [&] {
    prepare_writer();
    return !checkpoints_in(options_.folder).empty();
  };
  return strategy_.broadcast_object(any, here).value();
}

}  // namespace lockstep
