// The memory that training steps take: none, once the first has been made.
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <malloc.h>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/adamw.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "models/input/samples.hpp"
#include "models/nn/mlp.hpp"
#include "support/ranks.hpp"
#include "support/reductions_of.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::int64_t allocations = 0;

/// Counts the allocations before the end of each step.
class Counting final : public Observer {
 public:
  void on_step(const Step&) override { before_end.push_back(allocations); }

  std::vector<std::int64_t> before_end;
};

}  // namespace

// The library's, for the memory of every tensor on the host.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  return ::memalign(alignment, bytes);
}

namespace {

/// The allocations before the end of each of some steps with `hidden` units.
std::vector<std::int64_t> allocations_of_steps(const ReductionOptions& reductions, int hidden) {
  Strategy strategy = runtime().make_strategy(reductions);
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream());
  nn::Mlp model{strategy, nn::MlpOptions{.inputs = 4, .hidden = {hidden}, .classes = 2}, kernels};
  AdamW optimizer{{.learning_rate = 0.01, .weight_decay = 0.1}};
  ImageData::Set images{.rows = 2, .columns = 2};
  for (std::uint8_t image = 0; image < 14; ++image) {
    images.labels.push_back(image % 2);
    for (std::uint8_t pixel = 0; pixel < 4; ++pixel)
      images.pixels.push_back(static_cast<std::uint8_t>(7 * image + pixel));
  }
  const ImageSamples samples{images, DType::f32};
  Counting counted;
  (void)fit(strategy, model, optimizer, {samples, samples},
            {.global_batch = 7, .steps = 4, .shards = 2 * ranks(), .evaluate_every = 1000}, counted);
  return counted.before_end;
}

}  // namespace

TEST_CASE("a step after the first allocates no memory for tensors") {
  const std::vector<std::pair<ReductionOptions, int>> programs{{{}, 3}, {{}, 3000}, {{.shard_optimizer = true}, 3000}};
  for (const auto& [reductions, hidden] : programs) {
    const std::int64_t before = allocations;
    const std::vector<std::int64_t> counts = allocations_of_steps(reductions, hidden);
    CAPTURE(hidden, reductions.shard_optimizer);
    REQUIRE(counts.size() == 4);
    CHECK(counts.front() > before);
    for (const std::int64_t count : counts) CHECK(count == counts.front());
  }
}

TEST_CASE("sums that travel between nodes use the memory of earlier ones") {
  const auto all = make_mpi_communicator();
  std::vector<int> nodes(static_cast<std::size_t>(ranks()));
  std::iota(nodes.begin(), nodes.end(), 0);
  using Kind = ReductionOptions::Kind;
  for (const ReductionOptions& options :
       std::vector<ReductionOptions>{{.kind = Kind::fixed_order},
                                     {.kind = Kind::hierarchical},
                                     {.kind = Kind::hierarchical, .gradient_compression = DType::bf16}}) {
    const auto ops = reductions_of(*all, options, nodes);
    const std::vector<Tensor> messages{Tensor::zeros(DType::f32, {300'000}), Tensor::zeros(DType::f32, {200'000})};
    const std::int64_t before = allocations;
    for (int step = 0; step < 20; ++step) {
      std::vector<Work> started;
      for (const Tensor& message : messages) started.push_back(ops->start(message.view()));
      for (Work& each : started) each.wait();
    }
    CAPTURE(ops->name(), options.gradient_compression.has_value());
    // One for what comes in, and one for each message that is converted.
    CHECK(allocations - before <= 1 + (options.gradient_compression ? std::ssize(messages) : 0));
  }
}
