#include "apps/lockstep-train/saved/model_description.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/base/foreign_json.hpp"
#include "models/nn/batch_norm.hpp"
#include "models/nn/layer_norm.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

template <class Value, std::size_t count>
using Names = std::array<std::pair<std::string_view, Value>, count>;

constexpr Names<ModelKind, 3> model_kinds{
    {{"mlp", ModelKind::mlp}, {"convnet", ModelKind::convnet}, {"gpt", ModelKind::gpt}}};
constexpr Names<DType, 2> weight_types{{{"f32", DType::f32}, {"f64", DType::f64}}};
constexpr Names<nn::Model::Precision, 2> precisions{
    {{"full", nn::Model::Precision::full}, {"bf16", nn::Model::Precision::bf16}}};
constexpr Names<nn::MlpOptions::Loss, 2> losses{
    {{"cross_entropy", nn::MlpOptions::Loss::cross_entropy}, {"squared_error", nn::MlpOptions::Loss::squared_error}}};
constexpr Names<nn::ConvnetOptions::BatchNorm, 3> batch_norms{
    {{"none", nn::ConvnetOptions::BatchNorm::none},
     {"per_shard", nn::ConvnetOptions::BatchNorm::per_shard},
     {"whole_batch", nn::ConvnetOptions::BatchNorm::whole_batch}}};

template <class Value, std::size_t count>
std::string_view name_in(const Names<Value, count>& names, Value value) {
  for (const auto& [name, each] : names)
    if (each == value) return name;
  throw InvalidArgument{fmt::format("{} has no name", static_cast<int>(value))};
}

/// What all models of a kind have in common.
Json form_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::mlp: return {{"weight", "[inputs, outputs]"}, {"activation", "relu"}};
    case ModelKind::convnet:
      return {{"image", "[height, width, channels]"},
              {"filter", "[height, width, inputs, outputs]"},
              {"weight", "[inputs, outputs]"},
              {"kernel", 3},
              {"stride", 1},
              {"padding", 0},
              {"pool", 2},
              {"batch_norm", "before activation"},
              {"epsilon", nn::BatchNormOptions{}.epsilon},
              {"activation", "relu"}};
    case ModelKind::gpt:
      return {{"weight", "[inputs, outputs]"},
              {"norm", "before each part"},
              {"epsilon", nn::LayerNormOptions{}.epsilon},
              {"qkv", "queries, keys, values"},
              {"expansion", 4},
              {"activation", "gelu, tanh form"},
              {"output", "token embedding"}};
  }
  return {};
}

/// Reads the fields of one object, and says which of them is wrong.
class DescriptionReader {
 public:
  explicit DescriptionReader(const Json& object) : object_{object} {}

  const Json& field(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw Error{fmt::format("has no \"{}\"", name)};
    return *found;
  }

  std::int64_t size(const char* name, std::int64_t smallest = 1) const { return size_in(field(name), name, smallest); }

  std::vector<std::int64_t> sizes(const char* name) const {
    const Json& list = field(name);
    if (!list.is_array()) fail(name, "expected a list of whole numbers");
    std::vector<std::int64_t> sizes;
    for (const Json& each : list) sizes.push_back(size_in(each, name, 1));
    return sizes;
  }

  double fraction(const char* name) const {
    const Json& number = field(name);
    if (!number.is_number() || !(number.get<double>() >= 0 && number.get<double>() < 1))
      fail(name, "expected a number from 0 to below 1");
    return number.get<double>();
  }

  template <class Value, std::size_t count>
  Value choice(const char* name, const Names<Value, count>& names) const {
    const Json& text = field(name);
    std::vector<std::string_view> known;
    for (const auto& [each, value] : names) {
      if (text == each) return value;
      known.push_back(each);
    }
    fail(name, fmt::format("expected {}", fmt::join(known, " or ")));
  }

  [[noreturn]] void fail(const char* name, std::string_view expected) const {
    throw Error{fmt::format("\"{}\": {}; {}", name, shown(field(name)), expected)};
  }

 private:
  std::int64_t size_in(const Json& number, const char* name, std::int64_t smallest) const {
    constexpr std::uint64_t largest = std::uint64_t{1} << 40;
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > largest || number.get<std::int64_t>() < smallest)
      fail(name, fmt::format("expected a whole number from {}", smallest));
    return number.get<std::int64_t>();
  }

  const Json& object_;
};

void read_sizes(const DescriptionReader& reader, ModelDescription& model) {
  switch (model.kind) {
    case ModelKind::mlp:
      model.sample = reader.sizes("sample");
      model.hidden = reader.sizes("hidden");
      model.outputs = reader.size("outputs");
      model.loss = reader.choice("loss", losses);
      return;
    case ModelKind::convnet:
      model.sample = reader.sizes("sample");
      model.outputs = reader.size("outputs");
      model.batch_norm = reader.choice("batch_norm", batch_norms);
      model.dropout = reader.fraction("dropout");
      return;
    case ModelKind::gpt:
      model.layers = reader.size("layers");
      model.heads = reader.size("heads");
      model.embed = reader.size("width");
      model.context = reader.size("context");
      model.vocabulary = reader.size("vocabulary");
      return;
  }
}

}  // namespace

std::string_view name_of(ModelKind kind) {
  return name_in(model_kinds, kind);
}

std::string to_json(const ModelDescription& model) {
  Json json{{"kind", name_in(model_kinds, model.kind)},
            {"dtype", name_in(weight_types, model.dtype)},
            {"precision", name_in(precisions, model.precision)}};
  switch (model.kind) {
    case ModelKind::mlp:
      json.update({{"sample", model.sample},
                   {"hidden", model.hidden},
                   {"outputs", model.outputs},
                   {"loss", name_in(losses, model.loss)}});
      break;
    case ModelKind::convnet:
      json.update({{"sample", model.sample},
                   {"filters", nn::ConvnetOptions{}.filters},
                   {"hidden", nn::ConvnetOptions{}.hidden},
                   {"outputs", model.outputs},
                   {"batch_norm", name_in(batch_norms, model.batch_norm)},
                   {"dropout", model.dropout}});
      break;
    case ModelKind::gpt:
      json.update({{"layers", model.layers},
                   {"heads", model.heads},
                   {"width", model.embed},
                   {"context", model.context},
                   {"vocabulary", model.vocabulary}});
      break;
  }
  json["form"] = form_of(model.kind);
  return json.dump();
}

ModelDescription parse_model_description(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) throw Error{"is no JSON object"};
  const DescriptionReader reader{parsed};
  ModelDescription model{.kind = reader.choice("kind", model_kinds),
                         .dtype = reader.choice("dtype", weight_types),
                         .precision = reader.choice("precision", precisions)};
  if (reader.field("form") != form_of(model.kind)) reader.fail("form", "expected that of this version's models");
  read_sizes(reader, model);
  return model;
}

}  // namespace lockstep
