#include "apps/lockstep-bench/step_task.hpp"

#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/base/element_count.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

constexpr std::int64_t side = 28, classes = 10, context = 128;

// Random labels cannot be learnt, but training should not diverge.
constexpr double learning_rate = 1e-3;

std::vector<std::uint8_t> random_bytes(std::int64_t count, std::uint64_t stream) {
  const auto bytes = static_cast<std::size_t>(count);
  std::vector<std::uint32_t> words((bytes + 3) / 4);
  RandomStream{1, RandomStream::Purpose::simulation, stream}.words(0, words);
  std::vector<std::uint8_t> result(bytes);
  std::memcpy(result.data(), words.data(), bytes);
  return result;
}

ImageData::Set random_images(std::int64_t count) {
  ImageData::Set images{
      .rows = side, .columns = side, .pixels = random_bytes(count * side * side, 0), .labels = random_bytes(count, 1)};
  for (std::uint8_t& label : images.labels) label %= classes;
  return images;
}

TextSet random_text(std::int64_t count) {
  return {.tokens = tokens_of_text(random_bytes(count * context + 1, 0)), .context = context};
}

}  // namespace

std::string_view name_of(StepModel model) {
  switch (model) {
    case StepModel::mlp: return "mlp";
    case StepModel::convnet: return "convnet";
    case StepModel::gpt: return "gpt";
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(model))};
}

RandomSamples::RandomSamples(StepModel model, std::int64_t count) {
  if (model == StepModel::gpt) {
    source_ = std::make_unique<TextSamples>(random_text(count));
  } else {
    images_ = random_images(count);
    source_ = std::make_unique<ImageSamples>(images_, DType::f32);
  }
}

std::unique_ptr<nn::Model> make_model(StepModel model, std::int64_t hidden, Strategy& strategy,
                                      std::shared_ptr<const ops::Kernels> kernels, nn::Model::Precision precision) {
  switch (model) {
    case StepModel::mlp: {
      const nn::MlpOptions options{
          .inputs = side * side, .hidden = {hidden, hidden}, .classes = classes, .precision = precision};
      return nn::make_mlp(strategy, options, std::move(kernels));
    }
    case StepModel::convnet: {
      const nn::ConvnetOptions options{.height = side, .width = side, .classes = classes, .precision = precision};
      return nn::make_convnet(strategy, options, std::move(kernels));
    }
    case StepModel::gpt: {
      const nn::GptOptions options{.layers = 4, .heads = 4, .width = 128, .context = context, .precision = precision};
      return nn::make_gpt(strategy, options, std::move(kernels));
    }
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(model))};
}

std::int64_t parameters_of(const nn::Model& model) {
  std::int64_t sum = 0;
  for (const Variable& variable : model.variables()) sum += element_count(variable.shape());
  return sum;
}

std::int64_t state_bytes_of(const nn::Model& model) {
  std::set<const detail::StoreSegment*> segments;
  for (const Variable& variable : model.variables()) segments.insert(inside(variable).state().segment.get());
  std::int64_t bytes = 0;
  for (const detail::StoreSegment* const segment : segments)
    for (const auto& [name, values] : segment->slots) bytes += static_cast<std::int64_t>(values.view().bytes());
  return bytes;
}

std::unique_ptr<Optimizer> make_optimizer(StepModel model) {
  if (model == StepModel::gpt) return std::make_unique<AdamW>(AdamW::Options{.learning_rate = learning_rate});
  return std::make_unique<Sgd>(Sgd::Options{.learning_rate = learning_rate, .momentum = 0.9});
}

}  // namespace lockstep::bench
