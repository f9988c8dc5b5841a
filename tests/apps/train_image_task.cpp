// Whether a model of images fits into memory.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("the memory of a convnet is that of its weights, and of the activations of a shard's samples") {
  const TemporaryDirectory folder;
  const std::string images = npy(npy_header("|u1", "64, 40, 30, 3"), std::string(64 * 40 * 30 * 3, 'x'));
  const std::string labels = npy(npy_header("|u1", "64,"), std::string(64, '\x09'));
  for (const char* const part : {"train", "test"}) {
    folder.write(std::string{"x_"} + part + ".npy", images);
    folder.write(std::string{"y_"} + part + ".npy", labels);
  }
  TrainingOptions options =
      with_defaults({.data = folder.path(), .model = ModelKind::convnet, .optimizer = OptimizerKind::sgd});
  const auto task = load_image_task(options);
  CHECK(options.classes == 10);
  const double weights = 28 * 32 + 289 * 64 + (18 * 13 * 64 + 1) * 128 + 129 * 10;
  const double of_sample = 2 * 38 * 28 * 32 + 36 * 26 * 64;
  // 64 samples in 2 shards; in two micro-batches, half as many at a time.
  const FitOptions fit{.global_batch = 100, .shards = 2}, halves{.global_batch = 100, .shards = 2, .accumulate = 2};
  const auto fits = [&](const FitOptions& of, double bytes) {
    try {
      task->require_model_fits(of, {.bytes = bytes, .owner = "this host"});
      return true;
    } catch (const ConfigError& error) {
      CHECK_THAT(error.what(),
                 Catch::StartsWith("--model convnet for images of 40 x 30 x 3: a model of 1937738 weights"));
      return false;
    }
  };
  for (const auto& [of, samples] : {std::pair{fit, 32}, std::pair{halves, 16}}) {
    const double needed = 4 * (3 * weights + samples * of_sample);
    CHECK(fits(of, needed));
    CHECK_FALSE(fits(of, needed - 1));
  }
}
