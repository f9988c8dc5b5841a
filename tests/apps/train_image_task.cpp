// Whether a model of images fits into memory.
#include <memory>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A convnet for 64 images of 40 x 30 x 3 and 10 classes, in f32.
class LargeConvnet {
 public:
  static constexpr double weights = 28 * 32 + 289 * 64 + (18 * 13 * 64 + 1) * 128 + 129 * 10;
  static constexpr double of_first = 38 * 28 * 32, of_second = 36 * 26 * 64;  ///< outputs of an image's convolutions

  explicit LargeConvnet(nn::ConvnetOptions::BatchNorm batch_norm = nn::ConvnetOptions::BatchNorm::none) {
    const std::string images = npy(npy_header("|u1", "64, 40, 30, 3"), std::string(64 * 40 * 30 * 3, 'x'));
    const std::string labels = npy(npy_header("|u1", "64,"), std::string(64, '\x09'));
    for (const char* const part : {"train", "test"}) {
      folder_.write(std::string{"x_"} + part + ".npy", images);
      folder_.write(std::string{"y_"} + part + ".npy", labels);
    }
    options_ = with_defaults({.data = folder_.path(),
                              .model = ModelKind::convnet,
                              .batch_norm = batch_norm,
                              .optimizer = OptimizerKind::sgd});
    task_ = load_image_task(options_);
    CHECK(options_.classes == 10);
  }

  /// This number of bytes, and not one byte less.
  void check_needs(double bytes, const FitOptions& fit, Room room = {.owner = "this host"}) {
    options_.accumulate = fit.accumulate;
    room.bytes = bytes;
    CHECK_NOTHROW(task_->require_model_fits(fit, room));
    room.bytes = bytes - 1;
    CHECK_THROWS_AS(task_->require_model_fits(fit, room), ConfigError);
    CHECK_THROWS_WITH(task_->require_model_fits(fit, room),
                      Catch::StartsWith("--model convnet for images of 40 x 30 x 3: a model of 1937738 weights") ||
                          Catch::StartsWith("--model convnet for images of 40 x 30 x 3: a model of 1937930 weights"));
  }

 private:
  TemporaryDirectory folder_;
  TrainingOptions options_;
  std::unique_ptr<TrainingTask> task_;
};

}  // namespace

TEST_CASE("the memory of a convnet is that of its weights, and of the activations of a shard's samples") {
  LargeConvnet model;
  const auto needed = [](double copies, double samples) {
    return 4 * (copies * LargeConvnet::weights + samples * (2 * LargeConvnet::of_first + LargeConvnet::of_second));
  };
  // 64 samples in 2 shards; in two micro-batches, half as many at a time, and one more copy of the gradients.
  model.check_needs(needed(3, 32), {.global_batch = 100, .shards = 2});
  model.check_needs(needed(4, 16), {.global_batch = 100, .shards = 2, .accumulate = 2});
}

TEST_CASE("on a GPU, a convnet needs memory for the patches of as many images as it takes at a time") {
  LargeConvnet model;
  const auto needed = [](double samples, double patched) {
    const double patches = 36 * 26 * 9 * 32;
    return 4 * (3 * LargeConvnet::weights + samples * (2 * LargeConvnet::of_first + LargeConvnet::of_second) +
                patched * patches);
  };
  const Room gpu{.owner = "this GPU", .device = DeviceKind::cuda};
  model.check_needs(needed(32, 32), {.global_batch = 100, .shards = 2}, gpu);
  // 64 MiB hold those of 62 images.
  model.check_needs(needed(64, 56), {.global_batch = 100, .shards = 1}, gpu);
}

TEST_CASE(
    "a convnet that is normalised over whole batches needs memory for all shards of a rank, but only in training") {
  LargeConvnet model{nn::ConvnetOptions::BatchNorm::whole_batch};
  const auto needed = [](double copies, double samples) {
    return 4 * (copies * LargeConvnet::weights + samples * (3 * LargeConvnet::of_first + 2 * LargeConvnet::of_second));
  };
  // 64 samples in 8 shards, of which each of two ranks has 4. Weights, the gradients' sum, and those of each shard.
  const Room room{.ranks = 2, .owner = "this host"};
  model.check_needs(needed(2 + 4, 32), {.global_batch = 100, .shards = 8}, room);
  model.check_needs(needed(2 + 2 * 4, 16), {.global_batch = 100, .shards = 8, .accumulate = 2}, room);
  model.check_needs(needed(3, 8), {.global_batch = 100, .steps = 0, .shards = 8}, room);
}
