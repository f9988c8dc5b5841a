#include "bridge.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim.h>

#include <lockstep/torch.hpp>

using namespace lockstep;

namespace {

namespace fs = std::filesystem;
namespace jit = torch::jit;

jit::Module module_of(const char* name, const std::vector<std::pair<const char*, at::Tensor>>& parameters,
                      const std::string& code) {
  jit::Module module{name, std::make_shared<jit::CompilationUnit>()};
  module.register_attribute("training", c10::BoolType::get(), true);
  for (const auto& [each, value] : parameters) module.register_parameter(each, value.requires_grad_(), false);
  if (std::string{name}.ends_with("Drop")) {
    module.register_buffer("mean", torch::zeros({bridge_outputs}));
    module.register_buffer("var", torch::ones({bridge_outputs}));
  }
  module.define(code);
  return module;
}

/// The rows of a step, from `first` on.
struct Rows {
  Rows(int step, int first, int count)
      : x{torch::empty({count, bridge_inputs})}, y{torch::empty({count, bridge_outputs})} {
    for (int row = 0; row < count; ++row) {
      for (int i = 0; i < bridge_inputs; ++i) x[row][i] = bridge_number(step, first + row, i);
      for (int i = 0; i < bridge_outputs; ++i) y[row][i] = bridge_number(step, first + row, 5 + i);
    }
  }
  at::Tensor x, y;
};

at::Tensor loss_of(const std::string& name, const at::Tensor& found, const at::Tensor& y) {
  if (name == "l1") return torch::l1_loss(found, y);
  if (name == "smooth_l1") return torch::smooth_l1_loss(found, y);
  if (name == "binary_cross_entropy_with_logits")
    return torch::nn::functional::binary_cross_entropy_with_logits(found, (y > 0).to(torch::kFloat));
  if (name == "cross_entropy") return torch::cross_entropy_loss(found, (y.select(1, 0) > 0).to(torch::kLong));
  if (name == "script") return (found - y).abs().pow(3).mean();
  return torch::mse_loss(found, y);
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& name, std::vector<at::Tensor> parameters) {
  namespace optim = torch::optim;
  if (name == "sgd") return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{0.01}.momentum(0.5));
  if (name == "adam") return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{0.01}.weight_decay(0.1));
  if (name == "rmsprop") return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions{0.01});
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{0.01}.weight_decay(0));
}

}  // namespace

void bridge_write_net(const char* file) {
  torch::manual_seed(5);
  module_of("__torch__.Net",
            {{"w", torch::rand({bridge_inputs, 4})}, {"b", torch::rand({4})}, {"v", torch::rand({4, bridge_outputs})}},
            R"(
    def forward(self, x):
        return torch.matmul(torch.tanh(torch.matmul(x, self.w) + self.b), self.v)
    def loss(self, found, y):
        return (found - y).abs().pow(3).mean()
    )")
      .save(file);
}

void bridge_make_folder(char* path) {
  if (!mkdtemp(path)) std::abort();
  const fs::path folder{path};
  bridge_write_net((folder / "net.pt").c_str());
  module_of("__torch__.Drop", {{"w", torch::rand({bridge_inputs, bridge_outputs})}}, R"(
    def forward(self, x):
        y = torch.batch_norm(torch.matmul(x, self.w), None, None, self.mean, self.var, self.training, 0.1, 1e-5, False)
        return torch.dropout(y, 0.5, self.training)
    )")
      .save((folder / "drop.pt").string());
  module_of("__torch__.Pair", {{"w", torch::rand({bridge_inputs, 1})}}, R"(
    def forward(self, x, shift):
        y = torch.matmul(x, self.w)
        return y, y + shift.to(y.dtype)
    )")
      .save((folder / "pair.pt").string());
  std::ofstream{folder / "rubbish.pt"} << "rubbish";
}

void bridge_remove_folder(const char* path) {
  fs::remove_all(path);
}

uint64_t bridge_train(MPI_Fint communicator, const char* file, const char* optimizer, const char* loss_name, int steps,
                      int shards, double* loss) {
  Runtime runtime{{.communicator = communicator, .on_failure = RuntimeOptions::OnFailure::report}};
  // As programs in C compute scripts: their executor changes low bits after the first calls.
  const jit::GraphOptimizerEnabledGuard as_written{false};
  Strategy& strategy = runtime.strategy();
  libtorch::DataParallel net{strategy, jit::load(file)};
  const auto made = optimizer_of(optimizer, net.parameters());
  for (int step = 0; step < steps; ++step)
    strategy.run([&](ReplicaContext& context) {
      made->zero_grad();
      const auto of = [&](int first, int count) {
        const Rows rows{step, first, count};
        return libtorch::Loss::mean(loss_of(loss_name, net->forward({rows.x}).toTensor(), rows.y), count);
      };
      const int rank = runtime.rank(), count = bridge_rows_of(rank, step);
      if (shards > 0) {
        const int rows = bridge_rows / shards;
        *loss = net.backward_shards(context, shards, [&](int shard) { return of(shard * rows, rows); }).mean;
      } else {
        *loss = net.backward(context, count == 0 ? libtorch::Loss{} : of(bridge_first_of(rank), count)).mean;
      }
      if (std::string{optimizer} == "sgd") (void)net.clip_norm(0.05);
      made->step();
    });
  return weights_digest(net.variables());
}

int bridge_threads(int number) {
  if (number > 0) at::set_num_threads(number);
  return at::get_num_threads();
}

namespace {
thread_local int threads_seen = 0;
at::CallbackHandle watching = at::INVALID_CALLBACK_HANDLE;
}  // namespace

void bridge_watch_threads() {
  watching = at::addThreadLocalCallback(
      at::RecordFunctionCallback{[](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        threads_seen = at::get_num_threads();
        return nullptr;
      }});
}

int bridge_threads_seen() {
  at::removeCallback(watching);
  return threads_seen;
}

void bridge_infer(const char* file, int step, int count, float* outputs) {
  jit::Module module = jit::load(file);
  module.eval();
  const at::NoGradGuard plain;
  const at::Tensor found = module.forward({Rows{step, 0, count}.x}).toTensor().contiguous();
  std::copy_n(found.data_ptr<float>(), count * bridge_outputs, outputs);
}
