// What a step can do in each part of the library: makes a step of each kind, and compares the table of
// src/sync/step/README.md with what came of it.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models.hpp>
#include <lockstep/tf.hpp>
#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/torch/sync_batch_norm.hpp>

#include "models/fit/injected_fault.hpp"
#include "models/input/samples.hpp"
#include "support/quiet_log.hpp"

namespace lockstep::test::step_table {
namespace {

/// What a program has made of its weights, on rank 0.
using Result = std::vector<double>;
using Program = std::function<Result(Strategy&, int rank)>;

/// On two nodes, so that gradients cross a network.
Result made_by(const Program& program, const ReductionOptions& reductions = {}) {
  const QuietLog quiet;
  Result result;
  sim::run({.ranks = 2, .ranks_per_node = 1, .report = [](std::string_view) {}, .reductions = reductions},
           [&](Strategy& strategy, int rank) {
             const Result mine = program(strategy, rank);
             if (rank == 0) result = mine;
           });
  return result;
}

Result values_in(const Variable& variable) {
  const Tensor values = Tensor::on_host(variable.local());
  if (values.dtype() == DType::f64) return values.to_vector<double>();
  const std::vector<float> narrow = values.to_vector<float>();
  return {narrow.begin(), narrow.end()};
}

Result values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

/// Whether an audit finds that rank 1 computes something else.
bool is_audited(const Program& program) {
  try {
    made_by(program);
  } catch (const AuditError&) {
    return true;
  }
  return false;
}

double norm_of(const Result& values) {
  double squares = 0;
  for (const double each : values) squares += each * each;
  return std::sqrt(squares);
}

bool clips(const Program& program) {
  return std::abs(norm_of(made_by(program)) - 0.5) < 1e-4;
}
bool shards(const Program& program) {
  return made_by(program, {.shard_optimizer = true}) == made_by(program);
}
bool compresses(const Program& program) {
  return made_by(program, {.gradient_compression = DType::bf16}) != made_by(program);
}

/// Rank r moves row r alone.
bool moves_rows(const Program& program) {
  const Result values = made_by(program);
  return values[0] != 0 && values[1] != 0 && std::ranges::count(values, 0.0) == std::ssize(values) - 2;
}

// Gradients of more than the 64 KiB that stay whole, which bf16 rounds.
constexpr std::int64_t many = 20'000;
std::vector<float> gradient_of(int rank) {
  return std::vector<float>(many, 1 + 0x1p-12F + static_cast<float>(rank));
}
IndexedSlices row_of(int rank) {
  return {Tensor::from({1.F}, {1, 1}), Tensor::from({std::int64_t{rank}}, {1}), {many, 1}};
}

const Sgd::Options plain{.learning_rate = 1}, clipped{.learning_rate = 1, .clip_norm = 0.5};

/// What a step of an optimizer makes of a variable of zeros. `asks` changes what it is asked for.
using Asks = std::function<void(Optimizer::Request&, std::vector<Optimizer::Gradient>&, int rank)>;
Program optimizer(
    const Sgd::Options& options, const Asks& asks = [](auto&, auto&, int) {}) {
  return [=](Strategy& strategy, int rank) {
    const Variable w = strategy.create_variable({}, [] { return Tensor::zeros(DType::f32, {many, 1}); });
    strategy.seal();
    std::vector<Optimizer::Gradient> own{{Tensor::from(gradient_of(rank), {many, 1}), w}};
    Optimizer::Request request;
    asks(request, own, rank);
    request.gradients = own;
    Sgd sgd{options};
    strategy.run([&](ReplicaContext& context) { sgd.apply_gradients(context, request); });
    return values_in(w);
  };
}

bool optimizer_sums_on_the_way() {
  float sum = 0;
  made_by(optimizer(plain, [&](Optimizer::Request& request, std::vector<Optimizer::Gradient>& own, int rank) {
    const Variable w = own.front().variable;
    request.computation = {[w, rank, &sum](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
                             const Tensor mine = Tensor::from({1.F + static_cast<float>(rank)}, {1});
                             step.all_reduce(mine.view());
                             sum = mine.to_vector<float>().front();
                             step.ready(w);
                             return {.samples = 1};
                           },
                           {.dtype = DType::f32, .counts = {1}}};
  }));
  return sum == 3;
}

bool optimizer_has_conditions() {
  const Result kept = made_by(
      optimizer(plain, [](Optimizer::Request& request, auto&, int) { request.apply_only_if = [] { return false; }; }));
  return norm_of(kept) == 0;
}

bool optimizer_is_audited() {
  return is_audited([](Strategy& strategy, int rank) {
    const Variable w = strategy.create_variable({}, [] { return Tensor::zeros(DType::f32, {1}); });
    strategy.seal();
    Sgd sgd{plain};
    Optimizer::Audit audit{strategy, {.every = 1, .shards = 2}, [&](std::int64_t, Optimizer::Audit::Results& results) {
                             results.add("gradient", 1.0 + rank);
                           }};
    strategy.run([&](ReplicaContext& context) {
      audit.compute(rank);
      sgd.apply_gradients(context, {.gradients = {{Tensor::from({1.F}, {1}), w}}, .own = 1, .audit = &audit});
    });
    return Result{};
  });
}

/// The same by a TowerOptimizer.
Program towers(const Sgd::Options& options, bool has_rows = false) {
  return [=](Strategy& strategy, int) {
    const auto sgd = std::make_shared<Sgd>(options);
    auto model = replicate_model_fn<Tensor, Tensor>(
        strategy, [&](Tower& tower, const Tensor& features, const std::optional<Tensor>&) {
          const Variable w = tower.variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {many, 1}); });
          const float sum = tower.context().all_reduce(ReduceOp::sum, Tensor::scalar(1.F)).to_vector<float>().front();
          CHECK(sum == 2);
          const int rank = static_cast<int>(features.to_vector<float>().front());
          Tower::Gradient gradient{Tensor::from(gradient_of(rank), {many, 1}), w};
          if (has_rows) gradient.value = row_of(rank);
          TowerOptimizer{sgd}.apply_gradients(tower, {gradient});
          return EstimatorSpec{.loss = Tensor::scalar(1.F)};
        });
    model(Tensor::from({0.F, 1.F}, {2, 1}), std::nullopt, EstimatorSpec::Mode::train);
    return values_in(model.variables().front());
  };
}

/// Two steps of `fit`, which begin with some weights.
enum class Fitted { mlp, convnet };
Program fitted(const FitOptions& more, const Sgd::Options& options = {.learning_rate = 0.1}, Fitted which = Fitted::mlp,
               const std::string& fault = {}) {
  return [=](Strategy& strategy, int) {
    const std::shared_ptr<const ops::Kernels> kernels = ops::make_kernels(ops::Kernels::Choice::reference);
    const auto model = which == Fitted::mlp
                           ? nn::make_mlp(strategy, {.inputs = 36, .hidden = {600}}, kernels)
                           : nn::make_convnet(strategy,
                                              {.height = 6,
                                               .width = 6,
                                               .filters = {2, 2},
                                               .hidden = 4,
                                               .batch_norm = nn::ConvnetOptions::BatchNorm::whole_batch},
                                              kernels);
    ImageData data;
    for (ImageData::Set* const set : {&data.train, &data.test}) {
      set->rows = set->columns = 6;
      for (int i = 0; i < 8; ++i) {
        for (int pixel = 0; pixel < 36; ++pixel) set->pixels.push_back(static_cast<std::uint8_t>(31 * i * pixel % 256));
        set->labels.push_back(static_cast<std::uint8_t>(i));
      }
    }
    const ImageSamples train{data.train, DType::f32}, test{data.test, DType::f32};
    FitOptions options_of_fit = more;
    options_of_fit.global_batch = 8;
    options_of_fit.steps = 2;
    options_of_fit.shards = 4;
    Sgd sgd{options};
    Observer nobody;
    const auto spoils = fault.empty() ? std::nullopt : std::optional{InjectedFault::parse(fault, 2)};
    fit_with_fault(strategy, *model, sgd, {train, test}, options_of_fit, nobody, spoils);
    return values_in(model->variables().front());
  };
}

bool fits(const Program& program) {
  const Result values = made_by(program);
  return norm_of(values) > 0 && std::isfinite(norm_of(values));
}

/// What a backward pass leaves of a layer that adds up many numbers.
using Layer = libtorch::DataParallel<torch::nn::LinearImpl>;
Program bridge(const std::function<void(Layer&, ReplicaContext&, const at::Tensor& x, int rank)>& step,
               const libtorch::ReplicatedModule::Options& options = {}) {
  return [=](Strategy& strategy, int rank) {
    torch::manual_seed(1);
    Layer net{strategy, std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(many, 1).bias(false)),
              options};
    const at::Tensor x = torch::tensor(gradient_of(rank));
    strategy.run([&](ReplicaContext& context) { step(net, context, x, rank); });
    Result result = values_of(net->weight.grad());
    const Result weights = values_of(net->weight);
    result.insert(result.end(), weights.begin(), weights.end());
    return result;
  };
}

libtorch::Loss loss_of(Layer& net, const at::Tensor& x) {
  return libtorch::Loss::sum(net->forward(x).sum(), 1);
}

const Program backward = bridge(
    [](Layer& net, ReplicaContext& context, const at::Tensor& x, int) { net.backward(context, loss_of(net, x)); });

bool bridge_accumulates() {
  // Of two equal passes, the mean is that of one.
  return made_by(backward) == made_by(bridge([](Layer& net, ReplicaContext& context, const at::Tensor& x, int) {
           net.accumulate(loss_of(net, x));
           net.backward(context, loss_of(net, x));
         }));
}

bool bridge_clips() {
  double norm = 0;
  made_by(bridge([&](Layer& net, ReplicaContext& context, const at::Tensor& x, int) {
    net.backward(context, loss_of(net, x));
    (void)net.clip_norm(0.5);
    norm = norm_of(values_of(net->weight.grad()));
  }));
  return std::abs(norm - 0.5) < 1e-4;
}

bool bridge_shards() {
  return shards(bridge([](Layer& net, ReplicaContext& context, const at::Tensor& x, int) {
    auto sgd = net.optimizer(plain);
    net.backward(context, loss_of(net, x));
    sgd.step(context);
  }));
}

bool bridge_moves_rows() {
  return moves_rows([](Strategy& strategy, int rank) {
    torch::manual_seed(1);
    auto net = libtorch::DataParallel{strategy, torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 1).sparse(true))};
    const at::Tensor row = torch::full({1}, rank, at::kLong);
    strategy.run(
        [&](ReplicaContext& context) { net.backward(context, libtorch::Loss::sum(net->forward(row).sum(), 1)); });
    return values_of(net->weight.grad().to_dense());
  });
}

bool bridge_normalises_over_ranks() {
  // Each rank has one sample: by itself it would become 0.
  double found = 0;
  made_by([&](Strategy& strategy, int rank) {
    auto net = libtorch::DataParallel{strategy, libtorch::SyncBatchNorm{torch::nn::BatchNormOptions{1}}};
    strategy.run([&](ReplicaContext& context) {
      const at::Tensor y = net->forward(torch::full({1, 1}, 2.0F * static_cast<float>(rank)));
      found = y.item<float>();
      net.backward(context, libtorch::Loss::sum(y.sum(), 1));
    });
    return Result{};
  });
  return std::abs(std::abs(found) - 1) < 1e-3;
}

bool bridge_is_audited() {
  const auto step = [](Layer& net, ReplicaContext& context, const at::Tensor& x, int rank) {
    net.backward_shards(context, 2, [&](int) { return loss_of(net, x * (rank + 1)); });
  };
  return is_audited(bridge(step, {.audit_every = 1}));
}

/// How a part of the library does something, and what shows that it does; without that, it is not its part, or a hole.
struct Cell {
  std::string how;
  std::function<bool()> works = {};
};

struct Row {
  std::string what;
  std::vector<Cell> cells;
};

template <class Check>
std::function<bool()> by(Check check, const Program& program) {
  return [=] { return check(program); };
}

const std::string own = "the program's part", none = "–";

/// Optimizers, `fit`, estimators, the bridge.
std::vector<Row> rows() {
  const Asks has_rows = [](Optimizer::Request&, std::vector<Optimizer::Gradient>& own, int rank) {
    own.front().value = row_of(rank);
  };
  const auto differs = [](const Program& program) { return made_by(program) != made_by(fitted({})); };
  return {
      {"accumulation",
       {{own}, {"`accumulate`", by(fits, fitted({.accumulate = 2}))}, {own}, {"`accumulate`", bridge_accumulates}}},
      {"clipping",
       {{"`clip_norm`", by(clips, optimizer(clipped))},
        {"the optimizer's", by(differs, fitted({}, {.learning_rate = 0.1, .clip_norm = 0.01}))},
        {"the optimizer's", by(clips, towers(clipped))},
        {"`clip_norm`", bridge_clips}}},
      {"ZeRO-1 (`shard_optimizer`)",
       {{"yes", by(shards, optimizer(plain))},
        {"yes", by(shards, fitted({}))},
        {"yes", by(shards, towers(plain))},
        {"`net.optimizer` ¹", bridge_shards}}},
      {"sparse rows",
       {{"`IndexedSlices`", by(moves_rows, optimizer(plain, has_rows))},
        {none},
        {"`IndexedSlices`", by(moves_rows, towers(plain, true))},
        {"`sparse(true)`", bridge_moves_rows}}},
      {"sync batch norm",
       {{"`Computation::sums`", optimizer_sums_on_the_way},
        {"joint models", by(fits, fitted({}, plain, Fitted::convnet))},
        {"`all_reduce`", by(clips, towers(clipped))},
        {"`SyncBatchNorm`", bridge_normalises_over_ranks}}},
      {"conditional steps", {{"`apply_only_if`", optimizer_has_conditions}, {none}, {"hole ²"}, {own}}},
      {"audits",
       {{"`Optimizer::Audit`", optimizer_is_audited},
        {"`audit_every` ³", by(is_audited, fitted({.audit_every = 1}, plain, Fitted::mlp, "miscompute:1:0:always"))},
        {"hole ²"},
        {"`audit_every` ³", bridge_is_audited}}},
      {"compressed gradients (`gradient_compression`)",
       {{"yes", by(compresses, optimizer(plain))},
        {"yes", by(compresses, fitted({}))},
        {"yes", by(compresses, towers(plain))},
        {"yes", by(compresses, backward)}}}};
}

std::string table() {
  std::string text = "| | optimizers | `fit` | estimators | LibTorch |\n|---|---|---|---|---|\n";
  for (const Row& row : rows()) {
    text += "| " + row.what;
    for (const Cell& cell : row.cells) {
      INFO(row.what << ": " << cell.how);
      CHECK((!cell.works || cell.works()));
      text += " | " + cell.how;
    }
    text += " |\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the table of what a step can do says what the parts of the library do", "[.][table]") {
  std::ifstream file{std::getenv("LOCKSTEP_STEP_README")};
  const std::string document{std::istreambuf_iterator<char>{file}, {}};
  const std::string expected = table();
  INFO(expected);
  CHECK(document.find("\n\n" + expected + "\n") != std::string::npos);
}

}  // namespace lockstep::test::step_table
