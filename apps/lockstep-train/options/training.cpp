#include <cstdint>
#include <optional>
#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"

namespace lockstep {
namespace {

std::uint64_t parse_seed(const std::string& option, const std::string& text) {
  return parse_number<std::uint64_t>(option, text, 0, "a whole number from 0 to 18446744073709551615");
}

/// 0 is never.
std::optional<std::int64_t> parse_interval(const std::string& option, const std::string& text) {
  const std::int64_t steps = parse_count(option, text, 0);
  return steps == 0 ? std::nullopt : std::optional{steps};
}

}  // namespace

OptionGroup training_options() {
  return {
      "Training",
      {
          {.name = "--epochs",
           .value_name = "N",
           .help = "Passes over the training set (default 5, for gpt 1)",
           .set = set(&TrainingOptions::epochs, count()),
           .use = OptionUse::training},
          {.name = "--steps",
           .value_name = "N",
           .help = "Steps to train, instead of epochs; may end within an epoch",
           .set = set(&TrainingOptions::steps, count()),
           .use = OptionUse::training},
          {.name = "--global-batch",
           .value_name = "N",
           .help = "Samples per step over all ranks; any number from 1 (default 256, for gpt 16)",
           .set = set(&TrainingOptions::global_batch, count()),
           .elsewhere = {"batch", "batch-size", "batchsize"}},
          {.name = "--accumulate",
           .value_name = "K",
           .help = "Micro-batches per shard, computed one after the other, so that activations take 1/K of the memory "
                   "(default 1)",
           .set = set(&TrainingOptions::accumulate, count())},
          {.name = "--prefetch",
           .value_name = "N",
           .help = "Batches that a thread of each rank loads ahead of their steps (default 0)",
           .set = set(&TrainingOptions::prefetch, count(0, 1024)),
           .elsewhere = {"workers", "num-workers"}},
          {.name = "--optimizer",
           .value_name = "sgd|momentum|adamw",
           .help = "Optimizer (default momentum, for gpt adamw)",
           .set = set(&TrainingOptions::optimizer, one_of<OptimizerKind>({{"sgd", OptimizerKind::sgd},
                                                                          {"momentum", OptimizerKind::momentum},
                                                                          {"adamw", OptimizerKind::adamw}}))},
          {.name = "--learning-rate",
           .value_name = "X",
           .help = "Learning rate, the peak of the schedule (default 0.03 for mlp and 0.01 for other models with "
                   "momentum, 0.001 for adamw, 0.1 for sgd)",
           .set = set(&TrainingOptions::learning_rate, parse_positive),
           .elsewhere = {"lr"}},
          {.name = "--momentum",
           .value_name = "X",
           .help = "Momentum of --optimizer momentum, from 0 to below 1 (default 0.9)",
           .set = set(&TrainingOptions::momentum, parse_fraction)},
          {.name = "--schedule",
           .value_name = "constant|cosine",
           .help = "How the learning rate changes after warm-up: constant, or cosine decay to 0 at the end of the run "
                   "(default constant)",
           .set = set(&TrainingOptions::schedule,
                      one_of<ScheduleKind>({{"constant", ScheduleKind::constant}, {"cosine", ScheduleKind::cosine}}))},
          {.name = "--warmup-steps",
           .value_name = "N",
           .help = "Steps in which the learning rate rises to its peak (default 0)",
           .set = set(&TrainingOptions::warmup_steps, count(0))},
          {.name = "--weight-decay",
           .value_name = "X",
           .help = "Weight decay, except of biases: added to the gradient, or decoupled from it for adamw (default 0)",
           .set = set(&TrainingOptions::weight_decay, parse_not_negative)},
          {.name = "--clip-norm",
           .value_name = "X",
           .help = "Scale a step's mean gradient down to this norm if it is longer (default: never)",
           .set = set(&TrainingOptions::clip_norm, parse_positive)},
          {.name = "--seed",
           .value_name = "N",
           .help = "Seed of the initial weights, the order of the samples, dropout, --augment and --sample (default 1)",
           .set = set(&TrainingOptions::seed, parse_seed)},
          {.name = "--eval-every",
           .value_name = "K",
           .help = "Steps between evaluations (default: evaluate after each epoch)",
           .set = set(&TrainingOptions::evaluate_every, count()),
           .use = OptionUse::training},
          {.name = "--eval-samples",
           .value_name = "N",
           .help = "Samples of an evaluation, the first of the test set (default: all of them)",
           .set = set(&TrainingOptions::evaluation_samples, count()),
           .use = OptionUse::no_prediction},
          {.name = "--attest-every",
           .value_name = "K",
           .help = "Steps between attestations, in which the ranks compare digests of what they hold; the last step "
                   "attests too; 0: never (default 100)",
           .set = set(&TrainingOptions::attest_every, parse_interval)},
          {.name = "--attest-first",
           .value_name = "N",
           .help =
               "Number of first steps of each start that attest too, to find gradients that are not summed over the "
               "ranks; 0: none (default 2)",
           .set = set(&TrainingOptions::attest_first, count(0, 1'000'000))},
          {.name = "--audit-every",
           .value_name = "K",
           .help = "Steps between audits, in which each rank also computes a part of another's, to find a host that "
                   "computes or reads wrong; 0: never (default 0)",
           .set = set(&TrainingOptions::audit_every, parse_interval)},
          {.name = "--on-divergence",
           .value_name = "stop|continue",
           .help = "What to do when a loss is no finite number: end the run with exit code 8, or go on (default stop)",
           .set = set(&TrainingOptions::on_divergence,
                      one_of<FitOptions::OnDivergence>({{"stop", FitOptions::OnDivergence::stop},
                                                        {"continue", FitOptions::OnDivergence::proceed}}))},
      }};
}

}  // namespace lockstep
