// Trains lockstep's models, and one that is mostly an embedding, as modules of LibTorch, as a peer of
// scripts/bench-peers: bench-torch MODE MODEL...
//
//   flat            by hand: gradients in one tensor, summed by one MPI_Allreduce
//   flat-tuned      the same with weights in one tensor too
//   replicas        DataParallel, with torch's optimizer
//   replicas-tuned  DataParallel, with lockstep's
//   reducer         c10d's Reducer over gloo, as Python's DistributedDataParallel makes it, if the build has it
//   reducer-tuned   the same with gradients that live in its buckets, and a static graph
//   rival           replicas and reducer-tuned, block by block in turns, and their ratio
//   alone           one rank: DataParallel and the bare module in turns, and their ratio. Preload tcmalloc: the C
//                   library's allocator gives memory back to the system and fetches it again, which costs the two
//                   differently in each run
//
// Rank 0 prints one JSON object a model, as scripts/peers/measure.py says.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "apps/bench-torch/models.hpp"
#include "apps/bench-torch/reducer.hpp"

using namespace lockstep;
using namespace lockstep::bench_torch;

namespace {

constexpr double rate = 1e-3;
constexpr int batches = 16, steps_of_block = 5;

/// Trains on one batch, and returns the loss, which nobody has waited for.
using StepFunction = std::function<at::Tensor(const Batch&)>;

at::Tensor loss_of(Model& model, const Batch& batch, at::Reduction::Reduction reduction) {
  return at::cross_entropy_loss(model.forward(batch.inputs).flatten(0, -2), batch.labels.flatten(), {}, reduction);
}

/// A momentum of sparse gradients would touch more rows in each step.
double momentum_of(const std::string& model) {
  return model == "embedding" ? 0 : 0.9;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& model, std::vector<at::Tensor> parameters) {
  if (model == "gpt")
    return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                 torch::optim::AdamWOptions{rate}.weight_decay(0));
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions{rate}.momentum(momentum_of(model)));
}

StepFunction bare_step(const std::string& name, const std::shared_ptr<Model>& model) {
  return [model, optimizer = std::shared_ptr{make_optimizer(name, model->parameters())}](const Batch& batch) {
    model->zero_grad(true);  // to none
    const at::Tensor loss = loss_of(*model, batch, at::Reduction::Mean);
    loss.backward();
    optimizer->step();
    return loss.detach();
  };
}

/// Views of `flat` with the shapes of `parameters`, one after the other.
std::vector<at::Tensor> cut(const at::Tensor& flat, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> places;
  std::int64_t first = 0;
  for (const at::Tensor& each : parameters) {
    places.push_back(flat.slice(0, first, first + each.numel()).view(each.sizes()));
    first += each.numel();
  }
  return places;
}

StepFunction flat_step(const std::string& name, const std::shared_ptr<Model>& model, int ranks, bool tuned) {
  std::vector<at::Tensor> parameters = model->parameters();
  std::int64_t count = 0;
  for (const at::Tensor& each : parameters) count += each.numel();
  const at::Tensor gradients = at::zeros({count});
  const std::vector<at::Tensor> places = cut(gradients, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = places[i];
  if (tuned) {
    const at::NoGradGuard plain;
    at::Tensor whole = at::empty({count});
    const std::vector<at::Tensor> values = cut(whole, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      values[i].copy_(parameters[i]);
      parameters[i].set_data(values[i]);
    }
    whole.requires_grad_().mutable_grad() = gradients;
    parameters = {whole};
  }
  return [=, optimizer = std::shared_ptr{make_optimizer(name, parameters)}](const Batch& batch) {
    gradients.zero_();
    const at::Tensor loss = loss_of(*model, batch, at::Reduction::Mean);
    (loss / ranks).backward();
    const int code =
        MPI_Allreduce(MPI_IN_PLACE, gradients.data_ptr(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) throw CommError{fmt::format("MPI_Allreduce: {}", code)};
    optimizer->step();
    return loss.detach();
  };
}

StepFunction replicas_step(const std::string& name, const std::shared_ptr<Model>& model, Strategy& strategy,
                           bool tuned) {
  const auto net = std::make_shared<libtorch::DataParallel<Model>>(strategy, model);
  strategy.attest_first(0);
  std::function<void(ReplicaContext&)> update;
  if (tuned) {
    const auto rules = std::make_shared<libtorch::ReplicatedModule::Optimizer>(
        name == "gpt" ? net->optimizer(AdamW::Options{.learning_rate = rate, .weight_decay = 0})
                      : net->optimizer(Sgd::Options{.learning_rate = rate, .momentum = momentum_of(name)}));
    update = [rules](ReplicaContext& context) { rules->step(context); };
  } else {
    update = [rules = std::shared_ptr{make_optimizer(name, net->parameters())}](ReplicaContext&) { rules->step(); };
  }
  return [=, &strategy](const Batch& batch) {
    libtorch::ReplicatedModule::MeanLoss mean;
    strategy.run([&](ReplicaContext& context) {
      net->zero_grad();
      const at::Tensor loss = loss_of(*model, batch, at::Reduction::Sum);
      mean = net->backward(context, libtorch::Loss::sum(loss, batch.labels.numel()));
      update(context);
    });
    return at::scalar_tensor(mean.mean, at::kDouble);
  };
}

StepFunction reducer_step(const std::string& name, const std::shared_ptr<Model>& model, ReducerKind kind) {
  ReplicaParameters parameters{model->parameters(), {}};
  for (const at::Tensor& each : parameters.tensors) parameters.sparse.push_back(is_sparse(name, each));
  return [=, reducer = std::shared_ptr{make_reducer(parameters, kind)},
          optimizer = std::shared_ptr{make_optimizer(name, parameters.tensors)}](const Batch& batch) {
    model->zero_grad(true);  // to none
    reducer->begin();
    const at::Tensor loss = loss_of(*model, batch, at::Reduction::Mean);
    reducer->backward(loss);
    optimizer->step();
    return loss.detach();
  };
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// One way to train a model, and what it took.
struct Contender {
  StepFunction step;
  std::vector<double> ms = {};  ///< of a step, by block
  double first_loss = 0, last_loss = 0;
};

/// Blocks of all contenders in turns. The first and the last step train on the same batch.
void measure(std::vector<Contender>& contenders, const std::vector<Batch>& data, int warm_up, int counted) {
  for (Contender& each : contenders) each.first_loss = each.step(data[0]).item<double>();
  for (int block = 0; block < warm_up + counted; ++block)
    for (Contender& each : contenders) {
      const auto begin = std::chrono::steady_clock::now();
      at::Tensor loss;
      for (int i = 0; i < steps_of_block; ++i)
        loss = each.step(data[static_cast<std::size_t>((block * steps_of_block + i) % batches)]);
      (void)loss.item<double>();
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      if (block >= warm_up) each.ms.push_back(took.count() / steps_of_block);
    }
  for (Contender& each : contenders) each.last_loss = each.step(data[0]).item<double>();
}

/// Of each pair of neighbouring blocks, since the machine's speed changes in between.
double median_ratio(const Contender& of, const Contender& to) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of.ms.size(); ++i) ratios.push_back(of.ms[i] / to.ms[i]);
  return median(std::move(ratios));
}

/// What the mode measures, and what it compares that with, if it does.
std::vector<Contender> make_contenders(const std::string& mode, const std::string& name, Strategy& strategy,
                                       const std::shared_ptr<Model>& model, int ranks) {
  const bool tuned = mode.ends_with("-tuned");
  if (mode.starts_with("flat")) return {{flat_step(name, model, ranks, tuned)}};
  if (mode.starts_with("reducer"))
    return {{reducer_step(name, model, tuned ? ReducerKind::tuned : ReducerKind::plain)}};
  std::vector<Contender> contenders{{replicas_step(name, model, strategy, tuned)}};
  if (mode == "alone") contenders.push_back({bare_step(name, make_model(name))});
  if (mode == "rival") contenders.push_back({reducer_step(name, make_model(name), ReducerKind::tuned)});
  return contenders;
}

void train(Runtime& runtime, const std::string& mode, const std::string& name) {
  const int ranks = runtime.size();
  const bool alone = mode == "alone";
  if (alone && ranks > 1) throw ConfigError{fmt::format("mode alone on {} ranks; expected 1", ranks)};
  // Alone, a rank has as many samples as one of two.
  const auto data = make_batches(name, batch_of.at(name) / (alone ? 2 : ranks), runtime.rank(), batches);
  const std::shared_ptr<Model> model = make_model(name);
  std::int64_t count = 0;
  for (const at::Tensor& each : model->parameters()) count += each.numel();
  Strategy strategy = runtime.make_strategy();
  std::vector<Contender> contenders = make_contenders(mode, name, strategy, model, ranks);
  const int turns = contenders.size() > 1 ? 8 : 1;  // a ratio near 1 needs more of them
  name == "mlp" || name == "embedding" ? measure(contenders, data, 3, 15 * turns)
                                       : measure(contenders, data, 1, 3 * turns);
  if (!runtime.is_chief()) return;
  const Contender& measured = contenders.front();
  std::string ratio;
  if (contenders.size() > 1)
    ratio = fmt::format(R"(,"other_ms":{:.4f},"ratio":{:.4f})", median(contenders.back().ms),
                        median_ratio(measured, contenders.back()));
  std::puts(fmt::format(R"({{"framework":"LibTorch","version":"{}","mode":"{}","model":"{}","parameters":{},)"
                        R"("median_ms":{:.4f},"first_loss":{:.6f},"last_loss":{:.6f}{}}})",
                        TORCH_VERSION, mode, name, count, median(measured.ms), measured.first_loss, measured.last_loss,
                        ratio)
                .c_str());
  std::fflush(stdout);
}

void run(Runtime& runtime, const std::vector<std::string>& words) {
  constexpr std::array modes{"flat",    "flat-tuned",    "replicas", "replicas-tuned",
                             "reducer", "reducer-tuned", "rival",    "alone"};
  const auto known = [](const std::string& model) { return batch_of.contains(model); };
  if (words.size() < 2 || std::ranges::find(modes, words[0]) == modes.end() ||
      !std::all_of(words.begin() + 1, words.end(), known))
    throw ConfigError{fmt::format("bench-torch {} mlp|convnet|gpt|embedding...", fmt::join(modes, "|"))};
  torch::set_num_threads(1);
  for (std::size_t i = 1; i < words.size(); ++i) train(runtime, words[0], words[i]);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) {
        run(runtime, {argv + 1, argv + argc});
      });
}
