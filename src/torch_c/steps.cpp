// What models compute.
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/torch.h>

#include "torch_c/arrays.hpp"
#include "torch_c/calls.hpp"

// The functions themselves, which take a place.
#undef lockstep_model_train
#undef lockstep_model_infer

namespace lockstep::in_c {
namespace {

/// While one lives, LibTorch computes with so many threads. It shares their number with the program's OpenMP.
class Threads {
 public:
  explicit Threads(int number) : before_{at::get_num_threads()} {
    if (number > 0) at::set_num_threads(number);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

/// While one lives, a script is computed as it is written. Its executor would compute the first calls of a process in
/// one way and later ones in another, so a training that goes on after a restart could get other bits.
class AsWritten {
  torch::jit::GraphOptimizerEnabledGuard guard_{false};
};

/// While one lives, LibTorch draws other numbers than those of the program's own part of it.
class OwnRandom {
 public:
  OwnRandom() : generator_{at::globalContext().defaultGenerator(at::kCPU)} {
    const std::lock_guard lock{generator_.mutex()};
    before_ = generator_.get_state();
  }
  OwnRandom(const OwnRandom&) = delete;
  OwnRandom& operator=(const OwnRandom&) = delete;
  ~OwnRandom() {
    const std::lock_guard lock{generator_.mutex()};
    generator_.set_state(before_);
  }

  void seed(std::uint64_t seed, std::int64_t step, int part) {
    const std::lock_guard lock{generator_.mutex()};
    generator_.set_current_seed(
        RandomStream{seed, RandomStream::Purpose::dropout, static_cast<std::uint64_t>(step)}.bits(
            static_cast<std::uint64_t>(part)));
  }

 private:
  at::Generator generator_;
  at::Tensor before_;
};

std::vector<at::Tensor> outputs_of(torch::jit::Module& module, std::vector<at::Tensor> inputs) {
  const c10::IValue value = module.forward({inputs.begin(), inputs.end()});
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> outputs;
  if (value.isTuple())
    for (const c10::IValue& each : value.toTupleRef().elements())
      if (each.isTensor()) outputs.push_back(each.toTensor());
  require(!outputs.empty() && outputs.size() == value.toTupleRef().elements().size(),
          "the model returns {}; expected a tensor, or several", value.tagKind());
  return outputs;
}

constexpr const char* train_call = "lockstep_model_train";

/// What a rank brings to a step.
struct Batch {
  Arrays inputs, targets;
  std::int64_t rows;
};

Batch batch_of(lockstep_model& model, const lockstep_array* inputs, int input_count, const lockstep_array* targets,
               int target_count) {
  Batch batch{require_arrays(inputs, input_count, 1, "inputs"), require_arrays(targets, target_count, 0, "targets"), 0};
  batch.rows = rows_of(batch.inputs, batch.targets, "targets");
  if (model.training.options.shards == 0) return batch;
  const std::int64_t shards = shards_of(model).size();
  require(batch.rows % shards == 0, "{} rows for {} shards of this rank; expected as many rows in each", batch.rows,
          shards);
  return batch;
}

/// One step, in replica context.
class Step {
 public:
  Step(lockstep_model& model, const Batch& batch, const Here& here) : model_{model}, batch_{batch}, here_{here} {
    model.net->train();
  }

  libtorch::ReplicatedModule::MeanLoss make(ReplicaContext& context) {
    model_.optimizer->zero_grad();
    const int shards = model_.training.options.shards;
    const auto of_shard = [&](int shard) {
      const Range own = shards_of(model_);
      const std::int64_t rows = batch_.rows / own.size();
      return loss_of(shard, (shard - own.first) * rows, rows);
    };
    const auto loss = shards == 0 ? model_.net.backward(context, loss_of(model_.strategy.rank(), 0, batch_.rows), here_)
                                  : model_.net.backward_shards(context, shards, of_shard, here_);
    if (model_.training.options.clip_norm > 0) (void)model_.net.clip_norm(model_.training.options.clip_norm);
    model_.optimizer->step();
    return loss;
  }

 private:
  libtorch::Loss loss_of(int part, std::int64_t first, std::int64_t rows) {
    if (rows == 0) return {};
    random_.seed(model_.training.options.seed, model_.steps + 1, part);
    return in_call(train_call, here_, [&] {
      const auto copies = [&](Arrays arrays) { return copies_of(arrays, first, rows, model_.floats); };
      return in_line([&] {
        return model_.training.loss_of(*model_.net, outputs_of(*model_.net, copies(batch_.inputs)),
                                       copies(batch_.targets), rows);
      });
    });
  }

  lockstep_model& model_;
  const Batch& batch_;
  const Here here_;
  Threads threads_{model_.training.options.threads};
  AsWritten as_written_;
  OwnRandom random_;
};

}  // namespace
}  // namespace lockstep::in_c

using namespace lockstep;
using namespace lockstep::in_c;

int lockstep_model_train(lockstep_model* model, const lockstep_array* inputs, int input_count,
                         const lockstep_array* targets, int target_count, double* loss, const char* at) {
  std::optional<Batch> batch;
  return in_model(
      train_call, model, at,
      [&](lockstep_model& live) { batch = batch_of(live, inputs, input_count, targets, target_count); },
      [&](lockstep_model& live, Group&, const Here& here) {
        live.strategy.set_step(live.steps + 1);
        Step step{live, *batch, here};
        libtorch::ReplicatedModule::MeanLoss mean;
        live.strategy.run([&](ReplicaContext& context) { mean = in_line([&] { return step.make(context); }); }, {},
                          here);
        if (mean.samples > 0) ++live.steps;
        if (loss) *loss = mean.mean;
      });
}

int lockstep_model_infer(lockstep_model* model, const lockstep_array* inputs, int input_count,
                         const lockstep_array* outputs, int output_count, const char* at) {
  return code_of([&] {
    const Place place{at};
    in_call("lockstep_model_infer", place.here(), [&] {
      lockstep_model& live = live_model(model);
      const Arrays from = require_arrays(inputs, input_count, 1, "inputs");
      const Arrays to = require_arrays(outputs, output_count, 1, "outputs");
      const std::int64_t rows = rows_of(from, to, "outputs");
      if (rows == 0) return;
      const Threads threads{live.training.options.threads};
      const AsWritten as_written;
      const OwnRandom random;
      const at::NoGradGuard plain;
      live.net->eval();
      in_line([&] { write(outputs_of(*live.net, copies_of(from, 0, rows, live.floats)), to); });
    });
  });
}
