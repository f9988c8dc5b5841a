#include "apps/lockstep-train/reports/run_facts.hpp"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <type_traits>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "apps/lockstep-train/saved/model_description.hpp"
#include "apps/lockstep-train/saved/training_facts.hpp"
#include "core/base/foreign_json.hpp"
#include "core/cluster/cluster_spec.hpp"
#include "models/record/run_folder.hpp"

namespace lockstep {
namespace {

template <class Value>
OrderedJson json_of(const Value& value) {
  return value;
}
OrderedJson json_of(ModelKind kind) {
  return name_of(kind);
}
OrderedJson json_of(DType dtype) {
  return name_of(dtype);
}
OrderedJson json_of(nn::Model::Precision precision) {
  return precision == nn::Model::Precision::bf16 ? "bf16" : "full";
}
OrderedJson json_of(DataSchema::Task task) {
  return task == DataSchema::Task::regression ? "regression" : "classes";
}
OrderedJson json_of(DataSchema::Scaling scaling) {
  return scaling == DataSchema::Scaling::standard ? "standard" : "none";
}
OrderedJson json_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd: return "sgd";
    case OptimizerKind::momentum: return "momentum";
    case OptimizerKind::adamw: return "adamw";
  }
  return {};
}

template <class Value>
OrderedJson json_of(const std::optional<Value>& value) {
  return value ? json_of(*value) : OrderedJson{};
}

void add_model(OrderedJson& all, const TrainingOptions& options) {
  all["model"] = json_of(options.model);
  all["dtype"] = json_of(options.dtype);
  all["precision"] = json_of(options.precision);
  if (options.model != ModelKind::gpt) all["classes"] = json_of(options.classes);
  switch (*options.model) {
    case ModelKind::mlp:
      all["hidden"] = json_of(options.hidden);
      all["task"] = json_of(options.task);
      all["scale"] = json_of(options.scaling);
      break;
    case ModelKind::convnet:
      all["batch-norm"] = options.batch_norm == nn::ConvnetOptions::BatchNorm::per_shard;
      all["sync-batch-norm"] = options.batch_norm == nn::ConvnetOptions::BatchNorm::whole_batch;
      all["dropout"] = json_of(options.dropout);
      break;
    case ModelKind::gpt:
      all["layers"] = json_of(options.layers);
      all["heads"] = json_of(options.heads);
      all["embed"] = json_of(options.embed);
      all["context"] = json_of(options.context);
      all["vocabulary"] = json_of(options.vocabulary);
      all["binary"] = options.binary;
      all["recompute"] = options.recompute;
      break;
  }
}

void add_training(OrderedJson& all, const TrainingOptions& options, const FitOptions& fit) {
  all["epochs"] = json_of(options.epochs);
  all["steps"] = fit.steps;
  all["global-batch"] = fit.global_batch;
  all["accumulate"] = fit.accumulate;
  all["prefetch"] = fit.prefetch;
  all["optimizer"] = json_of(options.optimizer);
  all["learning-rate"] = json_of(options.learning_rate);
  if (options.optimizer == OptimizerKind::momentum) all["momentum"] = options.momentum;
  all["schedule"] = options.schedule == ScheduleKind::cosine ? "cosine" : "constant";
  all["warmup-steps"] = options.warmup_steps;
  all["weight-decay"] = options.weight_decay;
  all["clip-norm"] = json_of(options.clip_norm);
  all["seed"] = fit.seed;
  all["eval-every"] = json_of(fit.evaluate_every);
  all["eval-samples"] = json_of(fit.evaluation_samples);
  all["attest-every"] = json_of(fit.attest_every);
  all["attest-first"] = fit.attest_first;
  all["audit-every"] = json_of(fit.audit_every);
  all["on-divergence"] = fit.on_divergence == FitOptions::OnDivergence::stop ? "stop" : "continue";
  all["shards"] = fit.shards;
  all["threads"] = options.threads;
}

OrderedJson options_in(const RunFacts& facts) {
  OrderedJson all = OrderedJson::object();
  for (const auto& [name, text] : facts.options.given) all[name] = text.empty() ? OrderedJson(true) : OrderedJson(text);
  all["data"] = facts.options.data.string();
  add_model(all, facts.options);
  add_training(all, facts.options, facts.fit);
  all["freeze"] = facts.fit.frozen;
  return all;
}

/// The spec that the runtime has read; null without one.
OrderedJson cluster_of(const TrainingOptions& options) {
  std::string text;
  if (const auto file = options.given.find("cluster-spec"); file != options.given.end()) {
    text = read_cluster_spec(file->second);
  } else if (const char* const variable = std::getenv("TF_CONFIG")) {
    text = variable;
  }
  try {
    return text.empty() ? OrderedJson{} : parse_foreign_json(text);
  } catch (const Error&) {
    return {};  // it is another by now
  }
}

}  // namespace

std::string to_json(const RunFacts& facts) {
  const TrainingOptions& options = facts.options;
  const auto path = [](const std::filesystem::path& file) {
    return file.empty() ? OrderedJson{} : OrderedJson(file.string());
  };
  const OrderedJson json{
      {"program", "lockstep-train"},
      {"options", options_in(facts)},
      {"cluster", cluster_of(options)},
      {"fingerprint", OrderedJson::array({facts.kernels})},
      {"data",
       {{"digest", to_hex(facts.data_digest)},
        {"schema", OrderedJson::parse(facts.schema.to_json())},
        {"samples", facts.samples},
        {"test_samples", facts.test_samples}}},
      {"paths",
       {{"checkpoints", path(options.checkpoints)},
        {"export", path(options.exported_weights)},
        {"events", options.tensorboard ? path(RunLayout{options.run_folder}.events()) : OrderedJson{}}}}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string ledger_json(const RunFacts& facts) {
  OrderedJson training = OrderedJson::object();
  for (const auto& [name, value] : training_facts(facts.options, facts.fit, facts.data_digest)) training[name] = value;
  OrderedJson json{{"training", std::move(training)}, {"kernels", facts.kernels}};
  if (!facts.compression.empty()) json["compression"] = facts.compression;
  json["schema"] = OrderedJson::parse(facts.schema.to_json());
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace lockstep
