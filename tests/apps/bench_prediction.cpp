// What lockstep-bench says of a step without timing it: its arithmetic, and how long it will take on other nodes.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-bench/arithmetic.hpp"
#include "apps/lockstep-bench/prediction.hpp"
#include "apps/lockstep-bench/step_run.hpp"
#include "core/base/element_count.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::bench;

TEST_CASE("the arithmetic of a step is that of the model's weights") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::reference, {}, strategy.stream());
  const auto weights_of = [&](StepModel kind) {
    const auto model = make_model(kind, default_hidden, strategy, kernels);
    double weights = 0;
    for (const Variable& variable : model->variables())
      if (variable.shape().size() == 2) weights += static_cast<double>(element_count(variable.shape()));
    return weights;
  };
  const double first = 784 * 512;
  CHECK(flops_per_sample(StepModel::mlp) == 2 * (3 * weights_of(StepModel::mlp) - first));
  // Positions are looked up, and attention multiplies activations: half of 128 by 128 pairs, twice, in each layer.
  const double positions = 128 * 128, attention = 4 * 2 * 128 * 129 / 2;
  CHECK(flops_per_sample(StepModel::gpt) == 2 * 3 * 128 * (weights_of(StepModel::gpt) - positions + attention));
}

TEST_CASE("a step's products are its operations, but for attention, and each shard has its own of the weights") {
  constexpr std::int64_t shards = 4, samples = 3;
  const auto flops_of = [&](StepModel model) {
    double sum = 0;
    for (const StepProduct& product : products_of(model, 20, shards, samples)) sum += product.flops();
    return sum / (shards * samples);
  };
  CHECK(flops_of(StepModel::mlp) == flops_per_sample(StepModel::mlp, 20));
  const double attention = 4 * 2 * 128 * 129 / 2;
  CHECK(flops_of(StepModel::gpt) == flops_per_sample(StepModel::gpt) - 2 * 3 * 128 * attention);
  CHECK(flops_of(StepModel::convnet) == 2 * 3 * (12 * 12 * 64 * 128 + 128 * 10));

  const std::vector<StepProduct> products = products_of(StepModel::mlp, 20, shards, samples);
  REQUIRE(products.size() == 8);
  CHECK(products[4].name == "dense_1_weights");
  CHECK(std::tuple{products[4].m, products[4].n, products[4].k, products[4].terms} == std::tuple{20, 20, 3, 4});
}

TEST_CASE(
    "a step is predicted from its computation, the bytes on the slowest wire and the messages behind each other") {
  // All gradients are ready at once, at the end.
  const StepWork work{.computation = 12, .backward = 8, .looks = {{1, 4'000'000}, {1, 2'000'000}}};
  const Links sums{.rates = {100, 10, 50}, .of = Links::Of::sums, .delay = 0.5};
  const auto parts = [&](int nodes, const Links& links, const Cores& cores = {}) {
    const Prediction step = predict_step(nodes, work, links, cores);
    CHECK(step.step() == Approx(step.computation + step.exposed + step.latency));
    CHECK(step.exposed == Approx(step.wire));
    return std::vector{step.computation, step.wire, step.latency};
  };
  const auto are = [](const std::vector<double>& parts, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(parts[i] == Approx(expected[i]));
  };
  are(parts(1, sums), {12, 0, 0});
  // Half of the bytes, twice; two agreements of one message, the last sum, and gradients there and back.
  are(parts(2, sums), {12, 600, (2 * 1 + 1 + 2) * 0.5});
  are(parts(3, sums), {12, 800, (2 * 2 + 3 + 2) * 0.5});
  are(parts(4, sums), {12, 900, (2 * 2 + 3 + 2) * 0.5});
  are(parts(5, sums), {12, 960, (2 * 3 + 4 + 2) * 0.5});
  // A node beyond the list has its last wire, of which a sum gets a part.
  are(parts(2, {.rates = {20}}), {12, 300 / share_of_wire(2), 0});
  are(parts(4, {.rates = {20}}), {12, 450 / share_of_wire(4), 0});
  are(parts(4, sums, {.of_rank = 1, .of_machine = 2}), {24, 900, 4.5});
  are(parts(4, sums, {.of_rank = 2, .of_machine = 3}), {32, 900, 4.5});
  are(parts(1, sums, {.of_rank = 1, .of_machine = 2}), {12, 0, 0});
}

TEST_CASE("what a backward pass hides of the wire is no part of a step, and longer where ranks share cores") {
  // Half of the gradients are ready after a quarter of the pass, and there are looks enough.
  const StepWork work{.computation = 120, .backward = 80, .looks = {{0.25, 4'000'000}, {0.5, 0}, {1, 4'000'000}}};
  const Links links{.rates = {10}, .of = Links::Of::sums};
  const Prediction alone = predict_step(2, work, links, {}), shared = predict_step(2, work, links, {1, 1});
  CHECK(alone.wire == Approx(800));
  CHECK(alone.exposed == Approx(800 - 60));
  CHECK(alone.step() == Approx(120 + 740));
  CHECK(shared.exposed == Approx(800 - 2 * 60));
  CHECK(shared.step() == Approx(240 + 680));
  CHECK(shared.limit() == "wire");
}

TEST_CASE("the longest part limits a step, overlapped or not") {
  CHECK(Prediction{.computation = 6, .wire = 5, .latency = 5}.limit() == "computation");
  CHECK(Prediction{.computation = 4, .wire = 5, .latency = 1}.limit() == "wire");
  CHECK(Prediction{.computation = 4, .wire = 5, .exposed = 1, .latency = 2}.limit() == "wire");
  CHECK(Prediction{.computation = 4, .wire = 5, .latency = 6}.limit() == "latency");
}

TEST_CASE("gradients travel between nodes in messages of neighbours, and are ready in the order of the pass") {
  StepClock clock;
  const RandomSamples samples{StepModel::mlp, 4};
  const auto group = make_local_group();
  StepRun run{strategy_on(*group, timed_reductions(clock, [] {})),
              clock,
              samples,
              {.model = StepModel::mlp, .global_batch = 4, .shards = 1}};
  (void)run.block(1);
  // Of the last layer and the second one, and of the first. Variables begin aligned.
  const std::vector<GradientMessage> messages = run.messages();
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].bytes == Approx(4 * (512 * 10 + 10 + 512 * 512 + 512)).epsilon(0.001));
  CHECK(messages[0].gradients == 4);
  CHECK(messages[1].bytes == Approx(4 * (784 * 512 + 512)).epsilon(0.001));
  CHECK(messages[1].gradients == 6);
  const std::vector<double> ready = run.ready_moments();
  REQUIRE(ready.size() == 6);
  CHECK(ready.front() > 0);
  CHECK(ready.back() <= 1);
  for (std::size_t layer = 1; layer < 3; ++layer)
    CHECK(std::max(ready[2 * layer - 2], ready[2 * layer - 1]) < std::min(ready[2 * layer], ready[2 * layer + 1]));
}

TEST_CASE("a measured sum tells the rate of its links without its latency") {
  const StepWork work{.looks = {{1, 8 << 20}}};
  for (const int nodes : {2, 3}) {
    const Links measured = links_of_sum(nodes, 8 << 20, 200, 2);
    CHECK(measured.delay == 2);
    const Prediction step = predict_step(nodes, work, measured, {});
    // There and back.
    CHECK(step.wire + 2 * 2 == Approx(200));
  }
  // More senders meet at each receiver than where it was measured.
  const Links of_two = links_of_sum(2, 5'000'000, 100, 0);
  CHECK(slowest_rate(2, of_two) == Approx(50));
  CHECK(slowest_rate(4, of_two) == Approx(50 * share_of_wire(4) / share_of_wire(2)));
  // All of it is latency.
  CHECK(links_of_sum(2, 1000, 2, 2).rates.front() == Approx(1));
  CHECK(!tells_rate(2, 2));
  CHECK(!tells_rate(31, 2));
  CHECK(tells_rate(32, 2));
}

TEST_CASE("rates, delays and numbers of nodes have units and commas") {
  const Links wires = parse_links("--rate", "1gbit,100mbit,500kbit,8000000bit");
  CHECK(wires.of == Links::Of::wires);
  REQUIRE(wires.rates.size() == 4);
  for (const auto& [index, bytes] : {std::pair{0, 125.0}, {1, 12.5}, {2, 0.0625}, {3, 1.0}})
    CHECK(wires.rates[static_cast<std::size_t>(index)] == Approx(bytes * 1448 / 1538));
  const Links sums = parse_links("--rate", "8.5MB/s,3MB/s");
  CHECK(sums.of == Links::Of::sums);
  CHECK(sums.rates == std::vector{8.5, 3.0});
  CHECK(slowest_rate(4, sums) == 3);
  CHECK(parse_delay("--delay", "250us") == 0.25);
  CHECK(parse_delay("--delay", "1.5ms") == 1.5);
  CHECK(parse_delay("--delay", "0.1s") == 100);
  CHECK(parse_nodes("--nodes", "2,3,1024") == std::vector{2, 3, 1024});
}
