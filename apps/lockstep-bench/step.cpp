#include "apps/lockstep-bench/step.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "apps/lockstep-bench/agreement_listener.hpp"
#include "apps/lockstep-bench/arithmetic.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/step_run.hpp"
#include "apps/lockstep-bench/step_statistics.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/order/shard_request.hpp"

namespace lockstep::bench {
namespace {

class AgreementTimer final : public AgreementListener {
 public:
  AgreementTimer(StepClock& clock, MpiBaseline& mpi) : clock_{clock}, mpi_{mpi} {}

  void on_begin(std::int64_t) override {
    interrupted_ = clock_.current();
    if (interrupted_ == Part::communication) return;
    clock_.enter(Part::waiting);
    mpi_.barrier();
    clock_.enter(Part::agreement);
  }
  void on_end() override { clock_.enter(interrupted_); }

 private:
  StepClock& clock_;
  MpiBaseline& mpi_;
  Part interrupted_ = Part::other;
};

/// How one of the compared runs differs from the others.
struct Variant {
  int shards;
  nn::Model::Precision precision;
  ops::Kernels::Choice kernels = ops::Kernels::Choice::automatic;
};

/// What to compare: the number of shards asked for with one per rank, bf16 with full precision, or the reference
/// kernels with those of a usual run.
std::vector<Variant> variants_of(const StepOptions& options, Runtime& runtime) {
  std::vector<Variant> variants{{shards_of(options, runtime), options.precision}};
  if (options.compare == StepOptions::Compare::kernels) {
    variants.push_back(variants.front());
    variants.front().kernels = ops::Kernels::Choice::reference;
    return variants;
  }
  Variant other{runtime.size(), nn::Model::Precision::full};
  if (options.precision != nn::Model::Precision::full) other.shards = variants.front().shards;
  if (options.precision != other.precision || variants.front().shards != other.shards) variants.push_back(other);
  return variants;
}

/// Each run's checkpoints have a folder of their own. Empty if there are none.
std::filesystem::path folder_for(const std::filesystem::path& checkpoints, const Variant& variant) {
  if (checkpoints.empty()) return checkpoints;
  return checkpoints /
         fmt::format("shards-{}{}", variant.shards, variant.precision == nn::Model::Precision::bf16 ? "-bf16" : "");
}

/// COLL. The means over the ranks.
std::vector<PartTimes> mean_over_ranks(const std::vector<PartTimes>& steps, MpiBaseline& mpi) {
  std::vector<double> values;
  for (const PartTimes& step : steps) values.insert(values.end(), step.of_part.begin(), step.of_part.end());
  values = mpi.mean(std::move(values));
  std::vector<PartTimes> means(steps.size());
  auto value = values.begin();
  for (PartTimes& step : means)
    for (double& part : step.of_part) part = *value++;
  return means;
}

/// COLL. The rate of a large product on each rank while all of them compute one, as their mean.
double rate_of_rank(LargeProduct& product, MpiBaseline& mpi) {
  mpi.barrier();
  return mpi.mean({product.rate()}).front();
}

/// What was measured of one run. One block of each kind for each iteration.
struct Measured {
  std::vector<Block> blocks;
  std::vector<double> pauses;  ///< until all ranks go on after a save, in milliseconds
  std::vector<Block> beside;   ///< while a checkpoint is being written
};

/// COLL. Adds a pause and a block beside the writing of a checkpoint.
void measure_checkpoint(StepRun& run, std::int64_t steps, MpiBaseline& mpi, Measured& measured) {
  mpi.barrier();
  const double pause = microseconds([&] {
    run.save_checkpoint();
    mpi.barrier();
  });
  measured.pauses.push_back(mpi.largest({pause}).front() / 1e3);
  measured.beside.push_back(mean_over_ranks(run.block(steps), mpi));
  run.finish_checkpoint();
}

constexpr std::size_t digits = 7;  // "1234.56"

/// What a row begins with.
Row head_of(const StepRun& run, double floor, double step, const StepOptions& options) {
  const bool of_kernels = options.compare == StepOptions::Compare::kernels;
  Row row{{"model", "", std::string{run.model()}, Place::title},
          {"parameters", "", run.parameters(), Place::title},
          {"batch", "", run.global_batch(), Place::title},
          {"floor", "ms", floor, Place::title},
          {"shards", "", std::int64_t{run.shards()}, of_kernels ? Place::title : Place::column, digits - 1}};
  if (of_kernels) row.push_back({"kernels", "", std::string{run.kernels()}, Place::column, digits + 2});
  if (options.precision != nn::Model::Precision::full)
    row.push_back({"precision", "", std::string{run.precision() == nn::Model::Precision::bf16 ? "bf16" : "full"},
                   Place::column, digits + 2});
  row.push_back({"step", "ms", step, Place::column, digits});
  return row;
}

/// Between kernels, loading samples counts as `other`: it does not depend on them, and the table keeps its width.
void add_parts(Row& row, const PartTimes& step, const StepOptions& options) {
  const auto cell = [&](const char* name, Part part) { return Cell{name, "ms", step.of(part), Place::column, digits}; };
  const bool of_kernels = options.compare == StepOptions::Compare::kernels;
  if (!of_kernels) row.push_back(cell("data", Part::data));
  row.insert(row.end(), {cell("forward", Part::forward), cell("backward", Part::backward),
                         cell("waiting", Part::waiting), cell("communication", Part::communication),
                         cell("agreement", Part::agreement), cell("optimizer", Part::optimizer)});
  const double other = step.of(Part::other) + (of_kernels ? step.of(Part::data) : 0);
  row.push_back({"other", "ms", other, Place::column, digits});
}

void add_checkpoints(Row& row, const Measured& measured) {
  std::vector<double> of_step;
  for (std::size_t i = 0; i < measured.pauses.size(); ++i)
    of_step.push_back(measured.pauses[i] / typical_step({measured.blocks[i]}).whole());
  row.insert(row.end(), {{"pause", "ms", median(measured.pauses), Place::column, digits},
                         {"of_step", "pause/step", median(of_step), Place::column, digits},
                         {"beside", "step/step", ratio_of(measured.beside, measured.blocks), Place::column, digits}});
}

}  // namespace

std::int64_t global_batch_of(const StepOptions& options) {
  if (options.global_batch) return *options.global_batch;
  switch (options.model) {
    case StepModel::mlp: return 256;
    case StepModel::convnet: return 128;
    case StepModel::gpt: return 16;
  }
  return 1;
}

int shards_of(const StepOptions& options, Runtime& runtime) {
  int shards = 0;
  runtime.strategy().run([&](ReplicaContext&) {
    const ShardRequest::Choice choice = options.shards.resolve(runtime.size());
    if (runtime.is_chief() && !choice.note.empty()) log::info(choice.note);
    shards = choice.shards;
  });
  return shards;
}

void add_reductions(Row& row, const ReductionOptions& reductions, std::int64_t state_bytes, MpiBaseline& mpi) {
  if (!reductions.gradient_compression && !reductions.shard_optimizer) return;
  const double state = mpi.mean({static_cast<double>(state_bytes)}).front();
  row.insert(row.end(),
             {{"compression", "",
               std::string{reductions.gradient_compression ? name_of(*reductions.gradient_compression) : "none"},
               Place::title},
              {"state", "B", static_cast<std::int64_t>(state), Place::title}});
}

void bench_step(Runtime& runtime, const StepOptions& options, const AddRow& add) {
  const std::int64_t global_batch = global_batch_of(options);
  const std::vector<Variant> variants = variants_of(options, runtime);
  MpiBaseline mpi;
  StepClock clock;
  std::optional<RandomSamples> samples;
  runtime.strategy().run([&](ReplicaContext&) { samples.emplace(options.model, step_batches * global_batch); });
  const auto meet = [&] { mpi.barrier(); };
  const ReductionOptions reductions = timed_reductions(clock, meet, options.reductions);
  std::vector<std::unique_ptr<StepRun>> runs;
  for (const Variant& variant : variants)
    runs.push_back(std::make_unique<StepRun>(
        runtime.make_strategy(reductions), clock, *samples,
        StepRun::Options{options.model, global_batch, variant.shards, options.threads, options.hidden,
                         folder_for(options.checkpoints, variant), variant.precision, variant.kernels}));

  const auto kernels = ops::make_kernels(ops::Kernels::Choice::automatic, {}, runtime.strategy().stream());
  LargeProduct product{*kernels, options.precision};
  std::vector<double> rates;

  std::vector<Measured> measured(runs.size());
  const AgreementTimer agreements{clock, mpi};
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      measured[run].blocks.push_back(mean_over_ranks(runs[run]->block(options.steps), mpi));
      if (!options.checkpoints.empty()) measure_checkpoint(*runs[run], options.steps, mpi, measured[run]);
      if (i < 0) measured[run] = {};
    }
    const double rate = rate_of_rank(product, mpi);
    if (i >= 0) rates.push_back(rate);
  }
  const double flops = flops_per_sample(options.model, options.hidden) * static_cast<double>(global_batch);
  const double floor = flops / (median(rates) * runtime.size()) * 1e3;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::vector<Block>& blocks = measured[run].blocks;
    const PartTimes step = typical_step(blocks);
    Row row = head_of(*runs[run], floor, step.whole(), options);
    if (options.checkpoints.empty())
      add_parts(row, step, options);
    else
      add_checkpoints(row, measured[run]);
    add_reductions(row, options.reductions, runs[run]->state_bytes(), mpi);
    row.insert(row.end(), {{"ratio", "to last", ratio_of(blocks, measured.back().blocks), Place::column, digits}});
    add(row);
  }
}

}  // namespace lockstep::bench
