// What the threads of a rank share beside its shards: an optimizer's passes, and the filling of batches.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "models/input/batches.hpp"
#include "models/nn/mlp.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;

namespace {

/// Random numbers, which notes who fills.
class CountedSamples final : public SampleSource {
 public:
  enum class Fills : bool { in_turn, at_once };

  explicit CountedSamples(Fills fills) : fills_{fills} {}

  std::int64_t count() const override { return 38; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, 130, DType::f32, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    const auto inputs = batch.inputs.view().elements<float>();
    std::ranges::fill(inputs, 0.0F);
    for (std::size_t i = 0; i < sample_indices.size(); ++i) {
      for (std::size_t feature = 0; feature < 130; ++feature)
        inputs[i * 130 + feature] = number_of(sample_indices[i], static_cast<std::int64_t>(feature));
      batch.labels.view().elements<std::int32_t>()[i] = static_cast<std::int32_t>(sample_indices[i] % 10);
    }
    batch.samples = std::ssize(sample_indices);
    const std::lock_guard lock{mutex_};
    fillers_.insert(std::this_thread::get_id());
  }
  bool fills_at_once() const override { return fills_ == Fills::at_once; }

  std::size_t fillers() const { return fillers_.size(); }

 private:
  static float number_of(std::int64_t sample, std::int64_t feature) {
    return static_cast<float>((sample * 7919 + feature * 104729) % 1009) / 1009;
  }

  Fills fills_;
  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> fillers_;
};

/// Gradient descent, which notes who updates what.
class WatchedSgd final : public Optimizer {
 public:
  enum class Cut : bool { nowhere, anywhere };
  using Update = std::pair<std::int64_t, std::int64_t>;  ///< from the first element to behind the last

  explicit WatchedSgd(Cut cut) : Optimizer{{.learning_rate = 0.1}, nullptr}, cut_{cut} {}

  std::vector<Update> updates;
  std::set<std::thread::id> threads;

 protected:
  std::vector<std::string_view> slots() const override { return {"copy"}; }
  bool updates_by_element() const override { return cut_ == Cut::anywhere; }
  void update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    kernels.sgd(range.values, range.gradients, step);
    copy(range.values, range.slot("copy"));
    const std::lock_guard lock{mutex_};
    updates.emplace_back(range.first, range.first + range.values.count());
    threads.insert(std::this_thread::get_id());
  }

 private:
  Cut cut_;
  std::mutex mutex_;
};

class NormsOfSteps final : public Observer {
 public:
  bool wants_gradient_norm() const override { return true; }
  void on_step(const Step& step) override { norms.push_back(step.gradient_norm.value()); }

  std::vector<double> norms;
};

struct TrainedMlp {
  std::vector<double> weights;
  std::vector<double> norms;
};

TrainedMlp train_mlp(Optimizer& optimizer, int threads,
                     const CountedSamples& samples = CountedSamples{CountedSamples::Fills::at_once}) {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  nn::Mlp model{strategy, {.inputs = 130, .hidden = {70, 20}, .classes = 10, .seed = 3}, nn::automatic()};
  strategy.seal();
  NormsOfSteps norms;
  const CountedSamples test{CountedSamples::Fills::in_turn};
  (void)fit(strategy, model, optimizer, {samples, test},
            {.global_batch = 19, .steps = 3, .threads = threads, .evaluate_every = 3}, norms);
  std::vector<double> weights;
  for (const Variable& variable : model.variables())
    std::ranges::copy(nn::in_double(variable.local()), std::back_inserter(weights));
  return {weights, norms.norms};
}

}  // namespace

TEST_CASE("threads that share an optimizer's passes make the values and norms of one") {
  const auto check = [](auto make) {
    const TrainedMlp expected = train_mlp(*make(), 1);
    for (const int threads : {2, 4, 8}) {
      CAPTURE(threads);
      const TrainedMlp found = train_mlp(*make(), threads);
      CHECK(found.weights == expected.weights);
      CHECK(found.norms == expected.norms);
    }
  };
  check([] { return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.1, .momentum = 0.9}); });
  check([] {
    return std::make_unique<AdamW>(AdamW::Options{.learning_rate = 0.01, .weight_decay = 0.1, .clip_norm = 0.5});
  });
}

TEST_CASE("each thread updates its part of a range, if the optimizer updates by element") {
  WatchedSgd whole{WatchedSgd::Cut::nowhere}, cut{WatchedSgd::Cut::anywhere};
  const TrainedMlp expected = train_mlp(whole, 4), found = train_mlp(cut, 4);
  CHECK(whole.threads == std::set{std::this_thread::get_id()});
  CHECK(cut.threads.size() == 4);
  CHECK(found.weights == expected.weights);
  CHECK(found.norms == expected.norms);
  // Of each of the three steps.
  REQUIRE(whole.updates.size() == 3);
  REQUIRE(cut.updates.size() == 12);
  std::ranges::sort(cut.updates);
  const auto [first, last] = whole.updates.front();
  std::int64_t next = first;
  for (std::size_t part = 0; part < 12; part += 3) {
    CHECK(cut.updates[part].first == next);
    CHECK(cut.updates[part] == cut.updates[part + 2]);
    next = cut.updates[part].second;
  }
  CHECK(next == last);
}

TEST_CASE("each thread fills the batches that it computes, if the source allows it") {
  const auto fillers = [](CountedSamples::Fills fills) {
    const CountedSamples samples{fills};
    Sgd sgd{{.learning_rate = 0.1}};
    (void)train_mlp(sgd, 4, samples);
    return samples.fillers();
  };
  CHECK(fillers(CountedSamples::Fills::in_turn) == 1);
  CHECK(fillers(CountedSamples::Fills::at_once) == 4);
}
