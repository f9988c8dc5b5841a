#include "apps/lockstep-train/saved/saved_model.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "core/base/excerpt.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {
namespace {

constexpr const char* model_key = "lockstep.model";
constexpr const char* data_key = "lockstep.data";

/// An option as the user writes it, with its value.
template <class Value>
std::string written(const char* option, const Value& value) {
  return fmt::format("{} {}", option, excerpt(fmt::format("{}", value)));
}
std::string written(const char* option, const std::vector<std::int64_t>& sizes) {
  return fmt::format("{} {}", option, excerpt(fmt::format("{}", fmt::join(sizes, ","))));
}
std::string written(const char* option, ModelKind kind) {
  return fmt::format("{} {}", option, name_of(kind));
}
std::string written(const char* option, DType dtype) {
  return fmt::format("{} {}", option, name_of(dtype));
}
std::string written(const char* option, nn::Model::Precision precision) {
  return fmt::format("{} {}", option, precision == nn::Model::Precision::bf16 ? "bf16" : "full");
}
std::string written(const char* option, DataSchema::Task task) {
  return fmt::format("{} {}", option, task == DataSchema::Task::regression ? "regression" : "classes");
}
std::string written(const char* option, DataSchema::Scaling scaling) {
  return fmt::format("{} {}", option, scaling == DataSchema::Scaling::standard ? "standard" : "none");
}
std::string written(const char*, nn::ConvnetOptions::BatchNorm kind) {
  switch (kind) {
    case nn::ConvnetOptions::BatchNorm::none: return "no batch norm";
    case nn::ConvnetOptions::BatchNorm::per_shard: return "--batch-norm";
    case nn::ConvnetOptions::BatchNorm::whole_batch: return "--sync-batch-norm";
  }
  return {};
}

/// Fills in options from weights.
class Completion {
 public:
  explicit Completion(const SavedModel& saved) : role_{saved.role}, from_{saved.from.string()} {}

  template <class Value>
  void take(const char* option, std::optional<Value>& given, const Value& there) const {
    if (role_ == SavedModel::Role::initial && given) return;  // where the variables differ, the weights do not match
    take_as_it_is(option, given, there);
  }

  /// Refuses a contradiction for initial weights too: where their variables fit data that are used in another way, they
  /// compute nonsense.
  template <class Value>
  void take_as_it_is(const char* option, std::optional<Value>& given, const Value& there) const {
    if (given && *given != there)
      throw ConfigError{fmt::format("{}: contradicts {}, which has {}; expected the same, or no such option",
                                    written(option, *given), from_, written(option, there))};
    given = there;
  }

  void take_vocabulary(std::optional<std::int64_t>& given, const std::optional<std::int64_t>& there) const {
    if (role_ == SavedModel::Role::restored && given && !there)
      throw ConfigError{fmt::format("{}: contradicts {}, whose model is of the bytes of texts; expected no such option",
                                    written("--vocabulary", *given), from_)};
    if (there) take("--vocabulary", given, *there);
  }

 private:
  SavedModel::Role role_;
  std::string from_;
};

DataSchema::Task task_of(const ModelDescription& model) {
  return model.loss == nn::MlpOptions::Loss::squared_error ? DataSchema::Task::regression : DataSchema::Task::classes;
}

void take_model(const Completion& completion, const ModelDescription& model, TrainingOptions& options) {
  completion.take("--model", options.model, model.kind);
  if (options.model != model.kind) return;
  require_options_of(model.kind, options);
  completion.take("--dtype", options.dtype, model.dtype);
  completion.take("--precision", options.precision, model.precision);
  switch (model.kind) {
    case ModelKind::mlp:
      completion.take("--hidden", options.hidden, model.hidden);
      completion.take_as_it_is("--task", options.task, task_of(model));
      if (options.task == DataSchema::Task::classes) completion.take("--classes", options.classes, model.outputs);
      return;
    case ModelKind::convnet:
      completion.take("--batch-norm", options.batch_norm, model.batch_norm);
      completion.take("--dropout", options.dropout, model.dropout);
      completion.take("--classes", options.classes, model.outputs);
      return;
    case ModelKind::gpt:
      completion.take("--layers", options.layers, model.layers);
      completion.take("--heads", options.heads, model.heads);
      completion.take("--embed", options.embed, model.embed);
      completion.take("--context", options.context, model.context);
      return;
  }
}

void take_data(const Completion& completion, const DataSchema& data, TrainingOptions& options) {
  if (options.model == ModelKind::gpt) {
    completion.take_vocabulary(options.vocabulary, data.vocabulary);
    options.binary |= data.kind == "bytes";  // given for a model of texts, it allows more and changes none of its data
  }
  if (!data.label_column.empty()) completion.take("--label-column", options.label_column, data.label_column);
  if (data.split == DataSchema::Split::hash)
    completion.take("--test-fraction", options.test_fraction, data.test_fraction);
  if (data.columns.empty()) return;
  // Labels are read by the schema's names of classes.
  if (data.task == DataSchema::Task::classes)
    completion.take_as_it_is("--classes", options.classes, static_cast<std::int64_t>(data.classes.size()));
  completion.take_as_it_is("--scale", options.scaling,
                           data.scales.empty() ? DataSchema::Scaling::none : DataSchema::Scaling::standard);
}

/// What a run reads of weights before it has a model.
std::filesystem::path first_place(const TrainingOptions& options) {
  switch (options.resume.from) {
    case Resume::From::none: return {};
    case Resume::From::newest: return options.checkpoints;
    case Resume::From::path: return options.resume.path;
  }
  return {};
}

template <class Parse>
auto parse_part(const WeightsMetadata& metadata, const char* key, const std::filesystem::path& from, Parse&& parse)
    -> std::optional<decltype(parse(std::string{}))> {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  try {
    return parse(found->second);
  } catch (const Error& error) {
    throw CheckpointError{fmt::format("checkpoint {}: {} {}", from.string(), key, error.what())};
  }
}

SavedModel saved_in(const WeightsMetadata& metadata, const std::filesystem::path& from) {
  return {.from = from,
          .model = parse_part(metadata, model_key, from,
                              [](const std::string& text) { return parse_model_description(text); }),
          .data = parse_part(metadata, data_key, from,
                             [](const std::string& text) { return DataSchema::parse(text, "value"); })};
}

}  // namespace

WeightsMetadata metadata_of(const ModelDescription& model, const DataSchema& data) {
  return {{model_key, to_json(model)}, {data_key, data.to_json()}};
}

namespace {

/// A new training reads a table by the schema of its initial weights, and other data by its own options.
std::optional<SavedModel> initial(SavedModel saved, const TrainingOptions& options) {
  saved.role = SavedModel::Role::initial;
  if (saved.data && saved.data->columns.empty()) saved.data.reset();
  if (saved.data) {
    saved.data->label_column = options.label_column.value_or(saved.data->label_column);
    if (saved.data->split == DataSchema::Split::hash)
      saved.data->test_fraction = options.test_fraction.value_or(saved.data->test_fraction);
  }
  return saved.model ? std::optional{std::move(saved)} : std::nullopt;
}

}  // namespace

std::optional<SavedModel> find_saved_model(Strategy& strategy, const TrainingOptions& options, RestoredParts restored) {
  std::filesystem::path from = first_place(options);
  std::optional<WeightsMetadata> metadata = from.empty() ? std::nullopt : read_weights_metadata(strategy, from);
  const bool begins_anew = !metadata && restored == RestoredParts::everything;
  // Before data are read in another way than the training reads them.
  if (!from.empty() && !metadata && (options.resume.from == Resume::From::path || restored == RestoredParts::weights)) {
    require_one_checkpoint(from);
    throw CheckpointError{fmt::format("checkpoint {}: there is none", from.string())};
  }
  if (const auto& [file, match] = options.initial_weights; !metadata && !file.empty()) {
    from = file;
    if (match == InitialWeights::Match::all) metadata = read_weights_metadata(strategy, from);
  }
  if (!metadata) return std::nullopt;
  SavedModel saved = saved_in(*metadata, from);
  if (begins_anew) return initial(std::move(saved), options);
  if (saved.data) return saved;
  if (strategy.rank() == 0)
    log::warning(
        fmt::format("{} does not say what its model and data are: the options and the order of columns are "
                    "taken as they are given",
                    from.string()));
  return saved;
}

void warn_of_columns(const WeightsMetadata& described, const std::filesystem::path& from, const DataSchema& data) {
  std::optional<DataSchema> there;
  try {
    there = saved_in(described, from).data;
  } catch (const CheckpointError& error) {
    log::warning(error.what());  // the weights may be good all the same
  }
  if (!there || there->columns.empty() || data.columns.empty() || there->columns == data.columns) return;
  const auto different = std::ranges::mismatch(there->columns, data.columns);
  const auto name_at = [](const std::vector<std::string>& columns, auto at) {
    return at == columns.end() ? std::string{"none"} : fmt::format("\"{}\"", excerpt(*at));
  };
  const auto number = different.in1 - there->columns.begin() + 1;
  log::warning(fmt::format("the weights in {} are of other columns than these data: input {} was {}, and is {}",
                           from.string(), number, name_at(there->columns, different.in1),
                           name_at(data.columns, different.in2)));
}

TrainingOptions complete_by(const std::optional<SavedModel>& saved, TrainingOptions options) {
  if (saved) {
    const Completion completion{*saved};
    if (saved->model) take_model(completion, *saved->model, options);
    const bool same_kind = !saved->model || options.model == saved->model->kind;
    if (saved->data && same_kind) take_data(completion, *saved->data, options);
  }
  require_options_of(options.model.value_or(ModelKind::mlp), options);
  return with_defaults(options);
}

}  // namespace lockstep
