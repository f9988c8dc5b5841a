// Trains a Transformer of LibTorch on the bytes of a text: mpirun -n 2 torch-language-model [FILE]
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <torch/nn.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sampler.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

namespace {

constexpr std::int64_t context = 64, width = 64, bytes = 256;

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("encoder", encoder);
    register_module("out", out);
    register_buffer("mask", mask);
  }

  /// The logits of the byte after each one: [windows, length, bytes], for windows of up to `context` bytes.
  torch::Tensor forward(const torch::Tensor& text) {
    const std::int64_t length = text.size(1);
    const auto x = tokens(text) + positions->weight.slice(0, 0, length);
    const auto no_future = mask.slice(0, 0, length).slice(1, 0, length);
    // torch's encoder wants the position first.
    return out(encoder(x.transpose(0, 1), no_future).transpose(0, 1));
  }

  using Layer = torch::nn::TransformerEncoderLayerOptions;
  torch::nn::Embedding tokens{bytes, width}, positions{context, width};
  torch::nn::TransformerEncoder encoder{
      torch::nn::TransformerEncoderOptions{Layer{width, 4}.dim_feedforward(4 * width).dropout(0), 2}};
  torch::nn::Linear out{width, bytes};
  torch::Tensor mask = torch::nn::TransformerImpl::generate_square_subsequent_mask(context);
};
TORCH_MODULE(LanguageModel);

torch::Tensor read_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  if (std::ssize(text) <= context) throw ConfigError{path + ": expected a text of more bytes than the context"};
  return torch::tensor(at::ArrayRef{reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}).to(torch::kLong);
}

/// What the model believes to come after `text`.
std::string continue_text(LanguageModel model, std::string text, int more) {
  const torch::NoGradGuard no_gradients;
  for (int i = 0; i < more; ++i) {
    const auto end = text.substr(text.size() - std::min(text.size(), std::size_t{context}));
    const std::vector<std::int64_t> window(end.begin(), end.end());
    const auto logits = model(torch::tensor(window).view({1, -1}));
    text += static_cast<char>(logits[0][-1].argmax().item<std::int64_t>());
  }
  return text;
}

void run(Runtime& runtime, const std::string& path) {
  constexpr std::int64_t batch_size = 8, epochs = 6;
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const auto text = read_text(path);
  const auto windows = text.unfold(0, context + 1, context / 2);  // each with the byte after it

  const LanguageModel model;
  auto net = libtorch::DataParallel{runtime.strategy(), model};
  auto adamw = net.optimizer(AdamW::Options{.learning_rate = 3e-3});
  libtorch::Sampler sampler{runtime.strategy(), windows.size(0), {.seed = 1, .drop_last = true}};
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    double loss = 0;
    std::int64_t steps = 0;
    sampler.reset();
    for (; const auto rows = sampler.next(batch_size); ++steps)  // this rank's part of the batch
      runtime.strategy().run([&](ReplicaContext& context_of_rank) {
        const std::vector<std::int64_t> numbers(rows->begin(), rows->end());
        const auto batch = windows.index({torch::tensor(numbers, torch::kLong)});
        const auto labels = batch.slice(1, 1).flatten();
        adamw.zero_grad();
        const auto logits = net->forward(batch.slice(1, 0, context)).flatten(0, 1);
        const auto mean = torch::cross_entropy_loss(logits, labels);
        // Over all ranks.
        loss += net.backward(context_of_rank, libtorch::Loss::mean(mean, double(labels.numel()))).mean;
        net.clip_norm(1);
        adamw.step(context_of_rank);
      });
    if (runtime.is_chief()) std::printf("epoch %d: loss %.3f\n", int(epoch), loss / double(steps));
  }
  if (runtime.is_chief()) std::printf("%s\n", continue_text(model, "The License", 40).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { run(runtime, argc > 1 ? argv[1] : "LICENSE"); });
}
