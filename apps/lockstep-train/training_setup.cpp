#include "apps/lockstep-train/training_setup.hpp"

#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "apps/lockstep-train/thread_check.hpp"

namespace lockstep {
namespace {

/// Eight small products instead of a large one cost a CPU little and a GPU much.
ShardChoice choose_shards(ShardRequest request, int ranks, DeviceKind device) {
  if (device == DeviceKind::cuda && request.kind == ShardRequest::Kind::automatic)
    return {.shards = ranks, .one_per_rank = true};
  return resolve_shards(request, ranks);
}

/// Found with scripts/sweep-defaults. With momentum, a gradient counts ten times, as momentum is 0.9.
double default_learning_rate(ModelKind model, OptimizerKind optimizer) {
  if (optimizer == OptimizerKind::adamw) return 0.001;
  if (optimizer == OptimizerKind::sgd) return 0.1;
  return model == ModelKind::mlp ? 0.03 : 0.01;
}

std::unique_ptr<TrainingTask> load_task(TrainingOptions& options, const DataRequest& request) {
  switch (*options.model) {
    case ModelKind::mlp:
    case ModelKind::convnet: return load_image_task(options, request);
    case ModelKind::gpt: return load_text_task(options, request);
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(*options.model))};
}

}  // namespace

TrainingOptions with_defaults(TrainingOptions options) {
  const auto fill = []<class Value>(std::optional<Value>& option, std::type_identity_t<Value> value) {
    if (!option) option = std::move(value);
  };
  fill(options.model, ModelKind::mlp);
  fill(options.dtype, DType::f32);
  fill(options.precision, nn::Precision::full);
  fill(options.label_column, "label");
  fill(options.test_fraction, 0.1);
  fill(options.task, DataSchema::Task::classes);
  fill(options.scaling, DataSchema::Scaling::none);
  fill(options.hidden, {512, 512});
  fill(options.batch_norm, nn::BatchNormKind::none);
  fill(options.dropout, 0);
  fill(options.layers, 4);
  fill(options.heads, 4);
  fill(options.embed, 128);
  fill(options.context, 128);
  // They differ for text, where a sample has many labels and a text has many samples.
  const bool text = options.model == ModelKind::gpt;
  if (!options.steps) fill(options.epochs, text ? 1 : 5);
  fill(options.global_batch, text ? 16 : 256);
  fill(options.optimizer, text ? OptimizerKind::adamw : OptimizerKind::momentum);
  fill(options.learning_rate, default_learning_rate(*options.model, *options.optimizer));
  return options;
}

void run_setup(Strategy& strategy, const std::function<void()>& work, Here here) {
  const MeetingPoint::NamedSteps named = strategy.group().meeting().keep_named_steps();
  strategy.set_step(0, RunKind::setup);
  strategy.run([&](ReplicaContext&) { work(); }, here);
}

TrainingSetup set_up(Strategy& strategy, TrainingOptions& options, const DataRequest& request) {
  const ShardChoice shards = choose_shards(options.shards, strategy.num_replicas_in_sync(), strategy.stream().kind());
  if (strategy.group().rank() == 0) {
    if (!shards.note.empty()) log::info(shards.note);
    if (const std::string warning = thread_warning(options.threads, strategy.group().ranks_of_node(), find_cores());
        !warning.empty())
      log::warning(warning);
  }
  // Threads that share the products change their bits, and there are shards so that nothing does.
  const int of_kernels = shards.one_per_rank ? options.threads : 1;
  TrainingSetup setup{.shards = shards.shards,
                      .threads = shards.one_per_rank ? 1 : options.threads,
                      .kernels = ops::make_kernels(options.kernels, {of_kernels}, strategy.stream()),
                      .task = load_task(options, request)};
  if (const std::string text = setup.task->data_text(); strategy.group().rank() == 0 && !text.empty())
    log::info(fmt::format("data: {}", text));
  return setup;
}

void require_same_on_all(Strategy& strategy, const TrainingSetup& setup) {
  (void)strategy.same_on_all(fmt::format("data of digest {}", to_hex(setup.task->data_digest())));
  (void)strategy.same_on_all(setup.kernels->fingerprint());
}

std::string write_sample(Strategy& strategy, TrainingTask& task, std::int64_t step, double loss) {
  const MeetingPoint::NamedSteps named = strategy.group().meeting().keep_named_steps();
  strategy.set_step(step, RunKind::sample);
  std::string text;
  if (strategy.group().rank() != 0) {
    strategy.run([](ReplicaContext&) {});
    return text;
  }
  const auto alone = strategy.group().meeting().working_alone();
  strategy.run([&](ReplicaContext&) {
    if (std::isfinite(loss))
      text = task.write_sample();
    else
      log::warning("there is no sample of a model whose loss is not a finite number");
  });
  return text;
}

}  // namespace lockstep
