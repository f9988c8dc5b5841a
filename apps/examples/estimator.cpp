// Trains and evaluates a classifier of images, and asks it, by one model function: mpirun -n 2 estimator DIRECTORY
#include <cstdio>
#include <memory>
#include <vector>

#include <lockstep/models.hpp>
#include <lockstep/tf.hpp>

using namespace lockstep;

namespace {

constexpr std::int64_t classes = 10, batch_rows = 100;

struct Batch {
  Tensor images, labels;
};

/// One batch of a set: pixels from 0 to 1, and the numbers of the classes.
Batch batch_of(const ImageData::Set& set, std::int64_t number) {
  const Batch batch{Tensor::zeros(DType::f32, {batch_rows, set.features()}), Tensor::zeros(DType::i32, {batch_rows})};
  const auto pixels = batch.images.view().elements<float>();
  const auto labels = batch.labels.view().elements<std::int32_t>();
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(set.pixels[static_cast<std::size_t>(number) * pixels.size() + i]) / 255;
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = set.labels[static_cast<std::size_t>(number) * labels.size() + i];
  return batch;
}

/// The model function: softmax regression. Its loss is a sum over images. Kernels and optimizer are made once: a new
/// optimizer would plan its steps again.
struct Classifier {
  std::shared_ptr<const ops::Kernels> kernels = ops::make_kernels(ops::Kernels::Choice::automatic);
  TowerOptimizer sgd{std::make_shared<Sgd>(Sgd::Options{.learning_rate = 0.001, .momentum = 0.9})};

  EstimatorSpec operator()(Tower& tower, const Tensor& images, const std::optional<Tensor>& labels) {
    const auto zeros = [](Shape shape) { return [=] { return Tensor::zeros(DType::f32, shape); }; };
    const Shape shape{images.shape()[1], classes};
    const MirroredVariable weights = tower.variable({.name = "weights"}, zeros(shape));
    const MirroredVariable biases = tower.variable({.name = "biases"}, zeros({classes}));

    const std::int64_t rows = images.shape()[0];  // of this rank's piece of the batch
    const Tensor logits = Tensor::zeros(DType::f32, {rows, classes});
    kernels->linear(images.view(), weights.local(), biases.local(), ops::Kernels::Activation::none, logits.view());
    if (tower.mode() == EstimatorSpec::Mode::predict) return {.predictions = {{"logits", logits}}};

    const Tensor d_logits = zeros({rows, classes})(), d_weights = zeros(shape)(), d_biases = zeros({classes})();
    const ops::Kernels::BatchLoss loss =
        kernels->softmax_cross_entropy(logits.view(), labels->view(), rows, d_logits.view());
    if (tower.mode() == EstimatorSpec::Mode::train) {
      kernels->matmul(images.view(), ops::Kernels::Transpose::yes, d_logits.view(), ops::Kernels::Transpose::no,
                      d_weights.view());
      kernels->sum_rows(d_logits.view(), d_biases.view());
      sgd.apply_gradients(tower, {{d_weights, weights}, {d_biases, biases}});  // the sum of all towers', once
      return {.loss = Tensor::scalar(loss.loss_sum)};
    }
    const SyncOnReadVariable correct = tower.accumulator("correct"), samples = tower.accumulator("samples");
    correct.assign_add(Tensor::scalar(static_cast<double>(loss.correct)));
    samples.assign_add(Tensor::scalar(static_cast<double>(rows)));
    const auto ratio = [](std::span<const Tensor> sums) { return sums[0].item<double>() / sums[1].item<double>(); };
    return {.loss = Tensor::scalar(loss.loss_sum), .eval_metrics = {{"accuracy", {{correct, samples}, ratio}}}};
  }
};

void run(Runtime& runtime, const char* directory) {
  const ImageData data = ImageData::load(directory, classes);
  auto model = replicate_model_fn<Tensor, Tensor>(runtime.strategy(), Classifier{},
                                                  {.reduction = ReplicateOptions::Reduction::sum});
  const auto call = [&](const ImageData::Set& set, std::int64_t number, EstimatorSpec::Mode mode) {
    const Batch batch = batch_of(set, number);  // the whole batch, on every rank
    return model(batch.images, batch.labels, mode);
  };
  double loss = 0, accuracy = 0;
  for (std::int64_t step = 0; step < data.train.count() / batch_rows; ++step)
    loss = call(data.train, step, EstimatorSpec::Mode::train).loss->item<double>() / batch_rows;
  for (std::int64_t number = 0; number < data.test.count() / batch_rows; ++number)
    accuracy = call(data.test, number, EstimatorSpec::Mode::evaluate).metrics.at("accuracy");  // of all batches so far
  const Tensor logits = call(data.test, 0, EstimatorSpec::Mode::predict).predictions.at("logits");
  if (runtime.is_chief())
    std::printf("train loss %.3f, test accuracy %.3f, %d predictions\n", loss, accuracy,
                static_cast<int>(logits.shape()[0]));
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { run(runtime, argc > 1 ? argv[1] : "apps/data/fashion-mnist-small"); });
}
