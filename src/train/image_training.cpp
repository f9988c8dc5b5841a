#include <bit>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/input/batch_schedule.hpp>
#include <lockstep/optim/adamw.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/train/image_training.hpp>
#include <lockstep/train/metrics_file.hpp>
#include <lockstep/train/progress.hpp>

#include "train/image_model.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t default_epochs = 5;

/// What the chief does with reports; the other ranks have nobody to tell.
class ChiefObserver final : public Observer {
 public:
  explicit ChiefObserver(const std::filesystem::path& metrics) {
    if (!metrics.empty()) metrics_.emplace(metrics);
  }

  void on_step(const StepReport& report) override {
    if (metrics_) metrics_->on_step(report);
    progress_.on_step(report);
  }
  void on_evaluation(const EvaluationReport& report) override {
    if (metrics_) metrics_->on_evaluation(report);
    progress_.on_evaluation(report);
  }
  void on_drift(std::int64_t step, const DriftError& found) override {
    if (metrics_) metrics_->on_drift(step, found);
  }

 private:
  std::optional<MetricsFile> metrics_;
  Progress progress_{stderr, progress_style(stderr)};
};

class NoObserver final : public Observer {
 public:
  void on_step(const StepReport&) override {}
  void on_evaluation(const EvaluationReport&) override {}
};

/// Eight small products in the place of a large one cost a CPU little and a GPU much.
ShardChoice choose_shards(ShardRequest request, int ranks, DeviceKind device) {
  if (device == DeviceKind::cuda && request.kind == ShardRequest::Kind::automatic) return {ranks, {}};
  return resolve_shards(request, ranks);
}

std::int64_t steps_of(const ImageTrainingOptions& options, const ImageData& data) {
  if (options.steps && options.epochs) throw ConfigError{"--epochs and --steps: expected at most one of the two"};
  if (options.steps) return *options.steps;
  return BatchSchedule{data.train.count(), options.global_batch}.total_steps(options.epochs.value_or(default_epochs));
}

/// As many micro-batches as asked for, if a shard has as many samples.
int micro_batches_of(const ImageTrainingOptions& options, const ImageData& data, int shards) {
  const std::int64_t batch = BatchSchedule{data.train.count(), options.global_batch}.largest_batch();
  const std::int64_t capacity = shard_capacity(batch, shards);
  if (options.accumulate > capacity || options.accumulate > std::numeric_limits<int>::max())
    throw ConfigError{
        fmt::format("--accumulate {}: a batch of {} in {} shard{} has up to {} sample{} in each; expected "
                    "at most as many micro-batches",
                    options.accumulate, batch, shards, shards == 1 ? "" : "s", capacity, capacity == 1 ? "" : "s")};
  return static_cast<int>(options.accumulate);
}

LearningRate learning_rate_of(const ImageTrainingOptions& options, std::int64_t steps) {
  const double otherwise = options.optimizer == OptimizerKind::adamw ? 0.001 : 0.1;
  const std::optional<std::int64_t> decay_steps =
      options.schedule == ScheduleKind::cosine ? std::optional{steps} : std::nullopt;
  return LearningRate{{.peak = options.learning_rate.value_or(otherwise),
                       .warmup_steps = options.warmup_steps,
                       .decay_steps = decay_steps}};
}

void require_warmup_within(std::int64_t warmup_steps, std::int64_t steps) {
  if (warmup_steps >= steps)
    throw ConfigError{fmt::format("--warmup-steps {}: the run has {} step{}; expected fewer to warm up in",
                                  warmup_steps, steps, steps == 1 ? "" : "s")};
}

std::unique_ptr<Optimizer> make_optimizer(const ImageTrainingOptions& options, std::int64_t steps,
                                          const std::shared_ptr<const ops::Kernels>& kernels) {
  const LearningRate learning_rate = learning_rate_of(options, steps);
  if (options.optimizer == OptimizerKind::adamw)
    return std::make_unique<AdamW>(
        AdamWOptions{
            .learning_rate = learning_rate, .weight_decay = options.weight_decay, .clip_norm = options.clip_norm},
        kernels);
  return std::make_unique<Sgd>(
      SgdOptions{.learning_rate = learning_rate,
                 .momentum = options.optimizer == OptimizerKind::momentum ? options.momentum : 0,
                 .weight_decay = options.weight_decay,
                 .clip_norm = options.clip_norm},
      kernels);
}

}  // namespace

ImageTrainingResult train_on_images(Strategy& strategy, const std::string& device,
                                    const ImageTrainingOptions& options) {
  const int rank = strategy.group().rank();
  const int ranks = strategy.num_replicas_in_sync();

  // What may fail on one rank alone fails inside a run, and so on all of them.
  ImageData data;
  FitOptions fit_options;
  std::shared_ptr<const ops::Kernels> kernels;
  std::unique_ptr<Observer> observer = std::make_unique<NoObserver>();
  strategy.run([&](ReplicaContext&) {
    const ShardChoice shards = choose_shards(options.shards, ranks, strategy.stream().kind());
    if (rank == 0 && !shards.note.empty()) log::info(shards.note);
    fit_options.fault = Fault::from_environment(ranks);
    kernels = ops::make_kernels(options.kernels, {options.threads}, strategy.stream());
    data = load_image_data(options.data, options.classes);
    require_model_fits(options, data.train);
    fit_options.global_batch = options.global_batch;
    fit_options.steps = steps_of(options, data);
    fit_options.seed = options.seed;
    require_warmup_within(options.warmup_steps, fit_options.steps);
    fit_options.shards = shards.shards;
    fit_options.accumulate = micro_batches_of(options, data, shards.shards);
    fit_options.evaluate_every = options.evaluate_every;
    fit_options.attest_every = options.attest_every;
    if (rank == 0) observer = std::make_unique<ChiefObserver>(options.metrics);
  });
  (void)strategy.same_on_all(fmt::format("data of digest {}", to_hex(digest(data))));
  (void)strategy.same_on_all(kernels->fingerprint());

  const std::unique_ptr<nn::Model> model = make_image_model(strategy, options, data.train, kernels);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(options, fit_options.steps, kernels);
  if (rank == 0)
    log::info(fmt::format("training {} on {} {} with {} shards: {} steps of up to {} samples", model->name(), ranks,
                          ranks == 1 ? "rank" : "ranks", fit_options.shards, fit_options.steps,
                          fit_options.global_batch));
  ImageTrainingResult result{ranks, fit_options.shards, device, std::string{model->name()}, {}, 0};
  const ImageSamples train{data.train, options.dtype}, test{data.test, options.dtype};
  result.fit = fit(strategy, *model, *optimizer, {train, test}, fit_options, *observer);
  result.weights_digest = weights_digest(model->variables());
  return result;
}

std::uint64_t weights_digest(const VariableList& variables) {
  static_assert(std::endian::native == std::endian::little, "the digest is of little-endian bytes");
  Digest digest;
  for (const Variable& variable : variables) {
    const Tensor weights = Tensor::on_host(variable.local());
    digest.update({weights.view().data(), weights.view().bytes()});
  }
  return digest.value();
}

std::string to_json(const ImageTrainingResult& result) {
  return nlohmann::ordered_json{{"ranks", result.ranks},
                                {"shards", result.shards},
                                {"device", result.device},
                                {"model", result.model},
                                {"steps", result.fit.steps},
                                {"samples", result.fit.samples},
                                {"seconds", result.fit.seconds},
                                {"samples_per_second", static_cast<double>(result.fit.samples) / result.fit.seconds},
                                {"train_loss", result.fit.train_loss},
                                {"eval_loss", result.fit.last_evaluation.loss},
                                {"eval_accuracy", result.fit.last_evaluation.accuracy},
                                {"weights_digest", to_hex(result.weights_digest)}}
      .dump();
}

}  // namespace lockstep
