#include "apps/lockstep-train/verification.hpp"

#include <algorithm>
#include <bit>
#include <exception>
#include <numeric>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "apps/lockstep-train/reports/run_facts.hpp"
#include "apps/lockstep-train/tasks/optimizer_choice.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "core/base/digest.hpp"
#include "core/base/file_io.hpp"
#include "core/control/meeting_point.hpp"
#include "core/order/shard_request.hpp"
#include "models/fit/frozen_variables.hpp"
#include "models/record/run_description.hpp"
#include "models/record/run_folder.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// A member of run.json. ConfigError if it is not there.
const OrderedJson& member(const std::filesystem::path& file, const OrderedJson& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end())
    throw ConfigError{fmt::format("{}: has no \"{}\"; expected a run of lockstep-train", file.string(), key)};
  return *found;
}

OrderedJson description_in(const std::filesystem::path& file) {
  std::string text;
  try {
    text = read_text(open_to_read(file, file.string()), longest_description, file.string());
  } catch (const FileError& error) {
    if (!is_about_path(error.code())) throw;
    throw ConfigError{fmt::format("{}; expected the folder of a run", error.what())};
  }
  try {
    return with_memory(file.string(), [&] { return parse_foreign_json(text); });
  } catch (const FileError&) {
    throw;
  } catch (const Error& fault) {
    throw ConfigError{fmt::format("{}: {}", file.string(), fault.what())};
  }
}

/// The newest checkpoint of less than `step` steps; empty if there is none. CheckpointError if one is damaged.
std::filesystem::path checkpoint_before(const std::filesystem::path& folder, std::int64_t step) {
  for (const std::filesystem::path& each : checkpoints_in(folder)) try {
      if (read_manifest(each).step < step) return each;
    } catch (const CheckpointError&) {
      if (!is_gone(each)) throw;  // else a training that is under way has removed it
    }
  return {};
}

/// What describes the model of a run and its data: the folder of its checkpoints if there are any, or else the exported
/// weights. Empty if there is neither.
std::filesystem::path weights_of(const RecordedRun& run) {
  if (!run.checkpoints.empty() && !checkpoints_in(run.checkpoints).empty()) return run.checkpoints;
  return run.weights;
}

/// Steps between those that the ledger has of `steps`, so that each of them is recorded again. The last of the training
/// always is.
std::optional<std::int64_t> interval_of(const Ledger& ledger, Range steps, std::int64_t last) {
  std::int64_t every = 0;
  for (const Ledger::Entry& entry : ledger.entries)
    if (!entry.weights && entry.step > steps.first && entry.step <= steps.last && entry.step != last)
      every = std::gcd(every, entry.step);
  return every > 0 ? every : last;
}

/// If the ledger has other weights after `steps` steps than `store`: CheckpointError, or ConfigError for the weights
/// from `file` with which the run begins.
void require_weights_of(const RecordedRun& run, std::int64_t steps, VariableStore& store,
                        const std::filesystem::path& file) {
  const auto differs = [&](const Ledger::Entry& entry) {
    return entry.weights && entry.step == steps && *entry.weights != digest_of_weights(store);
  };
  if (std::ranges::none_of(run.ledger.entries, differs)) return;
  if (steps > 0)
    throw CheckpointError{fmt::format("{}: holds other weights than the ledger has for step {}",
                                      (run.checkpoints / checkpoint_name(steps)).string(), steps)};
  if (file.empty())
    throw ConfigError{
        "the run began with weights from a file, which the command of its last start does not name; expected "
        "--init-from FILE"};
  throw ConfigError{
      fmt::format("--init-from {}: holds other weights than those that the run began with, as the ledger "
                  "has them; expected the file that it had",
                  file.string())};
}

/// What ends a training that has made all steps that are asked for, on all ranks alike. A request to stop would hold
/// for later trainings of the process too.
struct EnoughSteps {};

/// Keeps what the steps yield, and ends after the last.
class DigestKeeper final : public Observer {
 public:
  DigestKeeper(Strategy& strategy, Range steps) : strategy_{strategy}, steps_{steps} {}

  void on_digests(const Digests& digests) override {
    if (digests.step < steps_.first || digests.step > steps_.last) return;
    kept_.push_back({digests.step,
                     digests.loss,
                     {digests.values.begin(), digests.values.end()},
                     {digests.of_shards.begin(), digests.of_shards.end()},
                     std::nullopt});
  }
  void on_step_end(const State& state) override {
    if (!kept_.empty() && kept_.back().step == state.steps) kept_.back().weights = digest_of_weights(strategy_.store());
    if (state.steps >= steps_.last) throw EnoughSteps{};
  }

  std::vector<StepDigests> kept() && { return std::move(kept_); }

 private:
  Strategy& strategy_;
  Range steps_;  ///< both ends belong to it
  std::vector<StepDigests> kept_;
};

}  // namespace

bool begins_with_weights(const RecordedRun& run) {
  return !run.ledger.entries.empty() && run.ledger.entries.front().step == 0;
}

RecordedRun read_run(const std::filesystem::path& folder) {
  const RunLayout layout{folder};
  const std::filesystem::path file = layout.description();
  const OrderedJson run = description_in(file);
  RecordedRun recorded{.folder = folder};
  bool has_ended = false;
  try {
    if (member(file, run, "program") != "lockstep-train")
      throw ConfigError{
          fmt::format("{}: is of {}; expected a run of lockstep-train", file.string(), shown(run["program"]))};
    recorded.command = member(file, run, "command").get<std::vector<std::string>>();
    const OrderedJson& shards = member(file, member(file, run, "options"), "shards");
    constexpr std::int64_t most_shards = 1 << 20;
    if (recorded.command.empty() || !shards.is_number_integer() || shards < 1 || shards > most_shards)
      throw ConfigError{fmt::format("{}: has {} words of a command and {} shards; expected a run of lockstep-train",
                                    file.string(), recorded.command.size(), shown(shards))};
    recorded.shards = shards.get<int>();
    const OrderedJson& ranks = member(file, run, "ranks");
    const bool has_any = ranks.is_array() && !ranks.empty();
    const OrderedJson& device = member(file, has_any ? ranks.front() : ranks, "device");
    recorded.device = device.get<std::string>() == "cpu" ? "cpu" : "cuda";
    const OrderedJson& paths = member(file, run, "paths");
    if (const OrderedJson& checkpoints = member(file, paths, "checkpoints"); checkpoints.is_string())
      recorded.checkpoints = folder / checkpoints.get<std::string>();
    // Others may have written since to a place outside of the folder.
    std::error_code none;
    if (std::filesystem::exists(layout.weights(), none)) recorded.weights = layout.weights();
    has_ended = member(file, run, "result").is_object();
  } catch (const OrderedJson::exception& fault) {
    throw ConfigError{fmt::format("{}: {}; expected a run of lockstep-train", file.string(), fault.what())};
  }
  std::error_code error;
  if (!std::filesystem::exists(layout.ledger(), error))
    throw ConfigError{fmt::format("{}: holds no ledger; expected a run without --ledger off", folder.string())};
  recorded.ledger = Ledger::read(layout.ledger());
  if (has_ended && !recorded.ledger.is_complete)
    throw CheckpointError{fmt::format("{}: has no end, although the run has ended; its last lines are missing",
                                      layout.ledger().string())};
  return recorded;
}

void require_same_on_all(Strategy& strategy, const RecordedRun& run) {
  (void)strategy.same_on_all(fmt::format("a ledger with the last chain {}", run.ledger.chain));
  const OrderedJson rest{run.command, run.shards, run.device, run.checkpoints.string()};
  (void)strategy.same_on_all(fmt::format(
      "a run.json of digest {}", to_hex(digest_of(rest.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)))));
}

LedgerCheck::LedgerCheck(Strategy& strategy, const RecordedRun& run, RecordedFiles& files, std::int64_t first,
                         std::int64_t last)
    : strategy_{strategy}, run_{run}, files_{files}, last_{last} {
  for (const Ledger::Entry& entry : run.ledger.entries | std::views::reverse)
    if (entry.step > first && entry.step <= last) left_.push_back(entry);
}

void LedgerCheck::fail(const std::string& what, AuditError::Finding finding) {
  fail_with(fmt::format("step {} is not as the ledger has it: {}", finding.step, what), std::move(finding));
}

void LedgerCheck::fail_with(const std::string& sentence, AuditError::Finding finding) {
  inside(strategy_).group().meeting().fail(std::make_exception_ptr(AuditError{sentence, std::move(finding)}));
}

void LedgerCheck::on_digests(const Digests& digests) {
  require_reached(digests.step);
  if (left_.empty() || left_.back().step != digests.step || left_.back().weights) return;
  const Ledger::Entry entry = left_.back();
  left_.pop_back();
  const Ledger::Entry here = Ledger::entry_of(digests);
  if (here.shards != entry.shards || here.samples != entry.samples) require_same_shards(digests, entry);
  if (here != entry) fail("its loss", {.step = entry.step, .shard = -1, .value = "loss", .blamed = {}});
  ++confirmed_;
}

/// Whether all entries before `step` were met: the training comes to each of its steps.
void LedgerCheck::require_reached(std::int64_t step) {
  if (!left_.empty() && left_.back().step < step)
    fail("the training has no such entry", {.step = left_.back().step, .shard = -1, .value = {}, .blamed = {}});
}

/// COLL: the chief reads what the ledger says of each shard.
void LedgerCheck::require_same_shards(const Digests& digests, const Ledger::Entry& entry) {
  const auto read = [&]() -> std::string {
    try {
      const auto there = Ledger::shards_of(RunLayout{run_.folder}.ledger_of_shards(), entry, digests.values.size());
      if (there.size() != digests.of_shards.size()) throw CheckpointError{" they are of another number of shards"};
      const auto [a, b] = std::ranges::mismatch(there, digests.of_shards);
      return a == there.end() ? std::string{} : fmt::format("{}", a - there.begin());
    } catch (const CheckpointError& fault) {
      return fmt::format("! {}", fault.what());
    }
  };
  const std::string found = strategy_.broadcast_object(read).value();
  if (found.empty() || found.starts_with('!'))
    fail(fmt::format("{} differ; which shard it is cannot be told{}",
                     entry.samples == Ledger::entry_of(digests).samples ? "results of its shards" : "its samples",
                     found.empty() ? "" : ":" + found.substr(1)),
         {.step = entry.step, .shard = -1, .value = {}, .blamed = {}});
  const auto index = static_cast<std::size_t>(std::stoull(found));
  const auto shard = static_cast<std::int64_t>(index / digests.values.size());
  const std::string& value = digests.values[index % digests.values.size()];
  fail(fmt::format("{} of shard {}", value, shard), {.step = entry.step, .shard = shard, .value = value, .blamed = {}});
}

void LedgerCheck::on_step_end(const State& state) {
  require_reached(state.steps);
  if (!left_.empty() && left_.back().step == state.steps && left_.back().weights) {
    const Ledger::Entry entry = left_.back();
    left_.pop_back();
    if (digest_of_weights(strategy_.store()) != *entry.weights)
      fail("the weights after it", {.step = entry.step, .shard = -1, .value = "weights", .blamed = {}});
    ++confirmed_;
  }
  if (const std::string wrong = files_.difference_after(state); !wrong.empty())
    fail_with(fmt::format("{}; expected what step {} yields, as the ledger has it", wrong, state.steps),
              {.step = state.steps, .shard = -1, .value = wrong, .blamed = {}});
  if (state.steps < last_) return;
  require_reached(last_ + 1);
  throw EnoughSteps{};
}

/// COLL. A start that went on from a checkpoint may have left out of its command what that says of model and data. All
/// checkpoints of the run say it, and so do its exported weights.
void Trainer::complete_options_of(const RecordedRun& run) {
  const auto find = [&] { return weights_of(run).string(); };
  options_.resume = {};
  if (const std::string weights = strategy_.broadcast_object(find).value(); !weights.empty())
    options_.resume = {.from = Resume::From::path, .path = weights};
  complete_options(RestoredParts::everything);
}

void Trainer::prepare_again(const RecordedRun& run, std::int64_t first) {
  complete_options_of(run);
  const auto find = [&] { return run.checkpoints.empty() ? "" : checkpoint_before(run.checkpoints, first).string(); };
  options_.resume = {};
  if (const std::string start = strategy_.broadcast_object(find).value(); !start.empty())
    options_.resume = {.from = Resume::From::path, .path = start};
  // Ranks with one shard each have kernels of several threads, if they have threads.
  const bool one_per_rank = ranks() == run.shards && choose_shards(run.shards).one_per_rank;
  if (!one_per_rank) options_.shards = {ShardRequest::Kind::count, run.shards};
  set_up([&] {
    load();
    fit_ = fit_options();
    task_->require_model_fits(fit_, room_on(strategy_));
    optimizer_ = make_optimizer(options_, fit_.steps, *kernels_);
  });
  make_model();
  fit_.frozen = frozen_by(options_.freeze, model_->variables());
  set_up([&] { require_comparable(run); });
  resume();
  if (fit_.start->steps < run.ledger.about_from)
    throw ConfigError{
        fmt::format("there is no checkpoint of step {}, after which the training went on as another; the "
                    "steps before it are of that other training",
                    run.ledger.about_from)};
  if (!options_.initial_weights.file.empty() && fit_.start->steps == 0) (void)take_initial_weights();
  if (inside(strategy_.store()).has_unsealed()) strategy_.seal();
  if (fit_.start->steps == 0) optimizer_->prepare(strategy_, model_->variables());  // as for checkpoints
  require_weights_of(run, fit_.start->steps, strategy_.store(), options_.initial_weights.file);
  fit_.evaluate_every = fit_.steps;
  fit_.evaluation_samples = 1;
}

void Trainer::compute_again(Observer& observer, std::int64_t last) {
  if (is_chief())
    log::info(fmt::format("computes steps {} to {} again, from {}", fit_.start->steps + 1, last,
                          options_.resume.path.empty() ? "the beginning" : options_.resume.path.string()));
  try {
    (void)fit(strategy_, *model_, *optimizer_, task_->samples(), fit_, observer);
  } catch (const EnoughSteps&) {
  }
}

VerificationResult Trainer::verify(const RecordedRun& run, const std::optional<Range>& asked) && {
  require_same_on_all(strategy_, run);
  const std::int64_t newest = run.ledger.entries.empty() ? 0 : run.ledger.entries.back().step;
  const std::int64_t oldest = run.ledger.about_from + 1;
  const Range steps = asked.value_or(Range{oldest, newest});
  if (steps.first < oldest || steps.last < steps.first || steps.last > newest)
    throw ConfigError{fmt::format("--steps {}:{}: expected steps from {} to {}, which the ledger has of this training",
                                  steps.first, steps.last, oldest, newest)};
  prepare_again(run, steps.first);
  if (steps.last > fit_.steps)
    throw ConfigError{
        fmt::format("--steps {}:{}: the command of the run makes {} steps", steps.first, steps.last, fit_.steps)};
  fit_.record_every = interval_of(run.ledger, {fit_.start->steps, steps.last}, fit_.steps);
  const CheckpointManager::Options saved = checkpoint_options();
  RecordedFiles files{strategy_,
                      {run.checkpoints, run.weights},
                      {.training = saved.training, .kernels = saved.kernels, .metadata = saved.metadata},
                      fit_.steps};
  LedgerCheck check{strategy_, run, files, fit_.start->steps, steps.last};
  if (check.left() == 0)
    throw ConfigError{fmt::format("--steps {}:{}: the ledger has no entry of these steps", steps.first, steps.last)};
  compute_again(check, steps.last);
  return {.from = fit_.start->steps,
          .to = steps.last,
          .entries = check.confirmed(),
          .checkpoints = files.checkpoints(),
          .has_weights = files.has_weights()};
}

std::vector<StepDigests> Trainer::record_again(const RecordedRun& run, Range steps) && {
  prepare_again(run, steps.first);
  fit_.record_every = 1;
  DigestKeeper keeper{strategy_, steps};
  compute_again(keeper, steps.last);
  return std::move(keeper).kept();
}

/// In the setup. ConfigError if this training here would have other bits anyway, and CheckpointError if the ledger is
/// of another training than run.json.
void Trainer::require_comparable(const RecordedRun& run) const {
  const FitOptions::Samples samples = task_->samples();
  const OrderedJson here = OrderedJson::parse(ledger_json({.options = options_,
                                                           .fit = fit_,
                                                           .kernels = kernels_->fingerprint(),
                                                           .compression = compression(),
                                                           .data_digest = task_->data_digest(),
                                                           .schema = task_->schema(),
                                                           .samples = samples.train.count(),
                                                           .test_samples = samples.test.count()}));
  const auto in = [](const OrderedJson& about, const char* key) {
    const auto found = about.is_object() ? about.find(key) : about.end();
    return found == about.end() ? OrderedJson{} : *found;
  };
  const auto require_same = [](std::string_view what, const OrderedJson& of_run, const OrderedJson& own) {
    if (of_run != own)
      throw ConfigError{fmt::format("the run has {} {}, and here it is {}: their bits cannot be compared", what,
                                    shown(of_run), shown(own))};
  };
  const OrderedJson &there = run.ledger.about, facts = in(here, "training"), facts_there = in(there, "training");
  for (const auto& [name, value] : facts.items()) require_same(name, in(facts_there, name.c_str()), value);
  require_same("facts", facts_there, facts);
  require_same("a schema", in(there, "schema"), in(here, "schema"));
  if (in(there, "kernels") != in(here, "kernels"))
    throw ConfigError{fmt::format(
        "the run has kernels {}, and here it is {}: their bits cannot be compared; expected a training and a "
        "verification with --kernels reference, whose bits are the same on every machine",
        shown(in(there, "kernels")), shown(in(here, "kernels")))};
  const auto told = [&](const OrderedJson& about) {
    const OrderedJson compression = in(about, "compression");
    return compression.is_null() ? std::string{"not compressed"} : fmt::format("compressed to {}", shown(compression));
  };
  if (in(there, "compression") != in(here, "compression"))
    throw ConfigError{fmt::format(
        "the run has gradients {}, and here they are {}: their bits cannot be compared; expected the same shards on "
        "each node, on any number of ranks",
        told(there), told(here))};
}

}  // namespace lockstep
