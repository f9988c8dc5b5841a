// Whether a model of text fits into memory.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/tasks/task.hpp"
#include "support/job.hpp"
#include "support/labelled_files.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("the memory of a gpt is that of its weights and activations, and on a GPU that of one window's scores") {
  const TemporaryDirectory folder;
  TrainingOptions options = with_defaults({.data = folder.write("text", std::string(20000, 'x')),
                                           .model = ModelKind::gpt,
                                           .layers = 3,
                                           .heads = 2,
                                           .embed = 8,
                                           .context = 64,
                                           .optimizer = OptimizerKind::sgd});
  const auto task = load_text_task(options);
  const double width = 8, context = 64, weights = (256 + context) * width + 3 * 12 * width * width;
  const auto fits = [&](DeviceKind device, double bytes) {
    try {
      task->require_model_fits({.global_batch = 32, .shards = 4}, {.bytes = bytes, .owner = "this", .device = device});
      return true;
    } catch (const ConfigError& error) {
      CHECK_THAT(error.what(), Catch::StartsWith("--layers 3 --heads 2 --embed 8 --context 64: "));
      return false;
    }
  };
  const double positions = 32 / 4 * context, without_attention = positions * (3 * 16 * width + 12 * width + 256);
  const auto check = [&](DeviceKind device, double of_attention) {
    const double needed = 4 * (3 * weights + without_attention + of_attention);
    CHECK(fits(device, needed));
    CHECK_FALSE(fits(device, needed - 1));
  };
  check(DeviceKind::cpu, positions * 3 * 2 * context);
  check(DeviceKind::cuda, positions * 3 * 2 + 2 * 2 * context * context);
}
