// Fits a network to points, and goes on where it was killed: mpirun -n 2 resumed FOLDER
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <lockstep/models.hpp>

using namespace lockstep;

/// The points (x, sin x) for x from -3 to 3.
class Sine final : public SampleSource {
 public:
  std::int64_t count() const override { return 240; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return {.inputs = Tensor::pinned(DType::f32, {capacity, 1}, stream),
            .labels = Tensor::pinned(DType::f32, {capacity}, stream)};
  }
  void fill(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    const auto x = batch.inputs.view().elements<float>(), z = batch.labels.view().elements<float>();
    std::ranges::fill(x, 0.0F);
    std::ranges::fill(z, 0.0F);
    for (std::size_t row = 0; row < samples.size(); ++row) {
      x[row] = static_cast<float>(samples[row]) / 40 - 3;
      z[row] = std::sin(x[row]);
    }
    batch.samples = std::ssize(samples);
  }
};

/// Saves a checkpoint after each step for which one is due: a collective, on every rank.
class Saver final : public Observer {
 public:
  explicit Saver(CheckpointManager& checkpoints) : checkpoints_{checkpoints} {}
  void on_step_end(const State& state) override {
    checkpoints_.after_step(state.steps);
    const char* const kill = std::getenv("KILL_AFTER");  // to see what becomes of the job
    if (kill && state.steps == std::atoi(kill)) (void)std::raise(SIGKILL);
  }

 private:
  CheckpointManager& checkpoints_;
};

void train(Runtime& runtime, const std::filesystem::path& folder) {
  Strategy& strategy = runtime.strategy();
  const Sine sine;
  const auto model =
      nn::make_mlp(strategy, {.inputs = 1, .hidden = {32}, .classes = 1, .loss = nn::MlpOptions::Loss::squared_error},
                   ops::make_kernels(ops::Kernels::Choice::automatic));
  AdamW adamw{{.learning_rate = LearningRate{0.01}}};
  strategy.seal();
  adamw.prepare(strategy, model->variables());  // what a checkpoint brings back must have its place

  CheckpointManager checkpoints{strategy, {.folder = folder, .every = 50, .training = {{"seed", "1"}}}};
  const auto resumed = checkpoints.resume_latest();
  Saver saver{checkpoints};
  const FitResult result =  // goes on where the checkpoint was saved
      fit(strategy, *model, adamw, {sine, sine}, {.global_batch = 40, .steps = 300}, saver);
  checkpoints.finish();
  if (runtime.is_chief())
    std::printf("from step %d: test loss %.4f, weights %s\n", resumed ? static_cast<int>(resumed->step) : 0,
                result.last_evaluation.loss, to_hex(weights_digest(model->variables())).c_str());
}

int main(int argc, char** argv) {
  return run_program(argc, argv, {.device = "cpu"}, [&](Runtime& runtime) { train(runtime, argv[1]); });
}
