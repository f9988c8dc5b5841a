#include "train/image_model.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/convnet.hpp>
#include <lockstep/nn/mlp.hpp>

namespace lockstep {
namespace {

nn::MlpOptions mlp_options(const ImageTrainingOptions& options, const ImageSet& images) {
  return {.inputs = images.features(),
          .hidden = options.hidden,
          .classes = options.classes,
          .dtype = options.dtype,
          .seed = options.seed};
}

nn::ConvnetOptions convnet_options(const ImageTrainingOptions& options, const ImageSet& images) {
  return {.height = images.rows,
          .width = images.columns,
          .classes = options.classes,
          .batch_norm = options.batch_norm,
          .dropout = options.dropout,
          .dtype = options.dtype,
          .seed = options.seed};
}

/// Of dense layers. Not an integer: it may be anything.
double weights_between(const std::vector<std::int64_t>& sizes) {
  double weights = 0;
  for (std::size_t layer = 1; layer < sizes.size(); ++layer)
    weights += (static_cast<double>(sizes[layer - 1]) + 1) * static_cast<double>(sizes[layer]);
  return weights;
}

/// All but the few of norms and convolutions.
double weights_of(const ImageTrainingOptions& options, const ImageSet& images) {
  std::vector<std::int64_t> sizes;
  if (options.model == ModelKind::convnet) {
    const nn::ConvnetOptions convnet = convnet_options(options, images);
    // Two convolutions of 3 x 3, each without its edge, and a pooling of 2 x 2.
    sizes = {(images.rows - 4) / 2 * ((images.columns - 4) / 2) * convnet.filters[1], convnet.hidden, convnet.classes};
  } else {
    sizes = options.hidden;
    sizes.insert(sizes.begin(), images.features());
    sizes.push_back(options.classes);
  }
  return weights_between(sizes);
}

/// What an optimizer keeps for each weight.
int slots_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::sgd: return 0;
    case OptimizerKind::momentum: return 1;
    case OptimizerKind::adamw: return 2;
  }
  throw InvalidArgument{fmt::format("{} is no kind of optimizer", static_cast<int>(optimizer))};
}

}  // namespace

void require_model_fits(const ImageTrainingOptions& options, const ImageSet& images) {
  const bool convnet = options.model == ModelKind::convnet;
  if (convnet && (images.rows < 6 || images.columns < 6))
    throw ConfigError{
        fmt::format("--model convnet: the images are {} x {}; expected 6 x 6 or more", images.rows, images.columns)};
  const double weights = weights_of(options, images);
  // The variables, their gradients, and the sum of the latter over shards; micro-batches and optimizers have theirs.
  const double copies = 3 + (options.accumulate > 1 ? 1 : 0) + slots_of(options.optimizer);
  constexpr double gib = 1 << 30;
  const double needed = copies * weights * static_cast<double>(size_of(options.dtype));
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > there)
    throw ConfigError{
        fmt::format("{}: a model of {:.0f} weights needs {:.1f} GiB or more on each rank, and this host has {:.1f} "
                    "GiB; expected {}",
                    convnet ? fmt::format("--model convnet for images of {} x {}", images.rows, images.columns)
                            : fmt::format("--hidden {}", fmt::join(options.hidden, ",")),
                    weights, needed / gib, there / gib, convnet ? "smaller images" : "smaller layers")};
}

std::unique_ptr<nn::Model> make_image_model(Strategy& strategy, const ImageTrainingOptions& options,
                                            const ImageSet& images, std::shared_ptr<const ops::Kernels> kernels) {
  switch (options.model) {
    case ModelKind::mlp: return std::make_unique<nn::Mlp>(strategy, mlp_options(options, images), std::move(kernels));
    case ModelKind::convnet:
      return std::make_unique<nn::Convnet>(strategy, convnet_options(options, images), std::move(kernels));
  }
  throw InvalidArgument{fmt::format("{} is no kind of model", static_cast<int>(options.model))};
}

}  // namespace lockstep
