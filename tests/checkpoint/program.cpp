// Saves or restores a checkpoint, on any number of ranks or without any: `program save|save-step|restore PATH [alone]`.
// save writes a file, save-step a folder step-1 in PATH. What was restored goes to stdout, as the chief reads it.
#include <cstdio>
#include <string>

#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

namespace {

/// The same model in every job. Begins with other values than any that are saved.
struct Model {
  Strategy& strategy;
  MirroredVariable weights, steps;
  SyncOnReadVariable samples, loss, average;

  explicit Model(Strategy& owner)
      : strategy{owner},
        weights{owner.create_variable({.name = "dense/weights"},
                                      [] {
                                        return Tensor::zeros(DType::f32, {3, 50});
                                      })},
        steps{owner.create_variable({.name = "steps"}, [] { return Tensor::scalar(std::int64_t{-1}); })},
        samples{counter("samples", Variable::Aggregation::sum, Tensor::scalar(std::int64_t{-1}))},
        loss{counter("loss", Variable::Aggregation::sum, Tensor::scalar(-1.0))},
        average{counter("average", Variable::Aggregation::mean, Tensor::from({-1.0F, -1.0F}, {2}))} {
    owner.seal();
  }

  /// What is saved does not depend on who did how much of it.
  void train() {
    std::vector<float> values(150);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1F * static_cast<float>(i) - 3;
    weights.assign(Tensor::from(values, {3, 50}));
    steps.assign(Tensor::scalar(std::int64_t{1'000'000'000'000}));
    strategy.run([&](ReplicaContext& context) {
      const int rank = context.replica_id_in_sync_group(), ranks = context.num_replicas_in_sync();
      // 11 samples and a loss of 44, dealt out as they come.
      std::int64_t mine = 0;
      for (int sample = rank; sample < 11; sample += ranks) ++mine;
      samples.assign(Tensor::scalar(mine));
      loss.assign(Tensor::scalar(4.0 * static_cast<double>(mine)));
      average.assign(Tensor::from({0.5F, 8.0F}, {2}));
    });
  }

  void print() {
    strategy.attest();
    const Tensor sum_of_samples = samples.read(), sum_of_loss = loss.read(), mean = average.read();
    if (!StrategyExtended{strategy}.should_checkpoint()) return;
    print(weights.name(), Tensor::on_host(weights.local()));
    print(steps.name(), Tensor::on_host(steps.local()));
    print(samples.name(), sum_of_samples);
    print(loss.name(), sum_of_loss);
    print(average.name(), mean);
  }

 private:
  SyncOnReadVariable counter(const char* name, Variable::Aggregation aggregation, const Tensor& initial) const {
    return strategy.create_sync_on_read({.name = name, .aggregation = aggregation}, [&] { return initial; });
  }
  static void print(std::string_view name, const Tensor& value) {
    std::printf("%s ", std::string{name}.c_str());
    for (std::size_t i = 0; i < value.view().bytes(); ++i)
      std::printf("%02x", std::to_integer<unsigned>(value.view().data()[i]));
    std::printf("\n");
  }
};

void work(Strategy& strategy, const std::string& act, const std::string& path) {
  Model model{strategy};
  if (act == "save") {
    model.train();
    save_checkpoint(strategy, path);
  } else if (act == "save-step") {
    model.train();
    CheckpointManager checkpoints{strategy, {.folder = path}};
    checkpoints.save(1);
    checkpoints.finish();
  } else {
    restore_checkpoint(strategy, path);
    model.print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string act = argv[1], path = argv[2];
  if (argc > 3) {  // a program that is not distributed: no runtime, no MPI
    work(Strategy::current(), act, path);
    return 0;
  }
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { work(runtime.strategy(), act, path); });
}
