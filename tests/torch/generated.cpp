// Programs that a seed draws, on all ranks, against plain LibTorch with the samples of all ranks in one process.
//
// LOCKSTEP_TEST_SEEDS says how many, from LOCKSTEP_TEST_BASE on; LOCKSTEP_TEST_WITHOUT leaves kinds out, by name with
// spaces in between, and the programs are the same else.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>
#include <lockstep/training.hpp>

#include "generated_modules.hpp"
#include "support/ranks.hpp"

namespace lockstep::test::generated {
namespace {

constexpr double tolerance = 1e-9, least_norm = 1e-3;
constexpr int steps = 4;

std::string text_of(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value ? value : otherwise;
}

/// A quarter of them.
Kinds draw_kinds(Draw& draw) {
  Kinds kinds;
  for (std::size_t i = 0; i < std::size(kind_names); ++i)
    if (draw.below(100) < 25) kinds.insert(static_cast<Kind>(i));
  std::istringstream left_out{text_of("LOCKSTEP_TEST_WITHOUT", "")};
  for (std::string name; left_out >> name;)
    kinds.erase(static_cast<Kind>(std::find(std::begin(kind_names), std::end(kind_names), name) - kind_names));
  // LibTorch itself cannot differentiate a checkpoint twice.
  if (kinds.contains(Kind::penalty)) kinds.erase(Kind::checkpoint), kinds.erase(Kind::embedding);
  if (!kinds.contains(Kind::embedding)) kinds.erase(Kind::sparse);
  return kinds;
}

std::string text_of(const Kinds& kinds) {
  std::string text;
  for (const Kind kind : kinds) text += std::string{text.empty() ? "" : " "} + kind_names[static_cast<int>(kind)];
  return text;
}

std::vector<at::Tensor> each_once(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& each : tensors)
    if (std::ranges::none_of(result, [&](const at::Tensor& other) { return other.is_same(each); }))
      result.push_back(each);
  return result;
}

/// What a step does.
struct StepPlan {
  enum class Form { plain, accumulated, half_zeroed, shards, two_losses } form = Form::plain;
  int number = 0;
  int accumulated = 0;  ///< passes before the last one
  bool keeps_gradients = false;
  std::set<std::size_t> frozen = {};  ///< parameters
  int shards = 1;                     ///< or ranks
  int clips = 0;                      ///< 1: as LibTorch does, 2: as the bridge does
};

class Program {
 public:
  explicit Program(std::uint64_t seed)
      : seed_{seed},
        draw_{seed},
        kinds{draw_kinds(draw_)},
        plain_{seed, kinds},
        net_{seed, kinds},
        strategy_{runtime().make_strategy()} {
    // Every rank has the values of replica 0.
    if (rank() > 0)
      for (at::Tensor& each : net_.parameters()) each.data().add_(rank());
    // The modules live in `net_`.
    const auto whole = std::shared_ptr<torch::nn::Module>{&net_, [](auto*) {}};
    const auto wrap = [&](std::shared_ptr<torch::nn::Module> module) {
      replicas_.push_back(std::make_unique<libtorch::DataParallel<torch::nn::Module>>(strategy_, std::move(module)));
      modules_.push_back(replicas_.back().get());
    };
    if (kinds.contains(Kind::two_modules)) {
      wrap(net_.front);
      wrap(net_.back);
    } else {
      wrap(whole);
    }
    for (const auto& each : replicas_)
      for (const at::Tensor& parameter : each->parameters()) ours_.push_back(parameter);
    theirs_ = kinds.contains(Kind::two_modules) ? plain_.front->parameters() : plain_.parameters();
    if (kinds.contains(Kind::two_modules))
      for (const at::Tensor& each : plain_.back->parameters()) theirs_.push_back(each);
    theirs_ = each_once(theirs_);
    make_optimizers();
  }

  void run() {
    for (int step = 0; step < steps; ++step) {
      const StepPlan plan = draw_step(step);
      CAPTURE(step, static_cast<int>(plan.form), plan.keeps_gradients, plan.clips);
      for (std::size_t i = 0; i < ours_.size(); ++i)
        for (at::Tensor* const each : {&ours_[i], &theirs_[i]}) each->requires_grad_(!plan.frozen.contains(i));
      train_plain(plan);
      if (diverges()) break;  // each step then makes a rounding error larger
      strategy_.run([&](ReplicaContext& context) {
        train(context, plan);
        CHECK(difference("gradient") == "");
        update_(context);
      });
      their_optimizer_->step();
      CHECK(difference("value") == "");
      if (difference("value") != "") break;
    }
    strategy_.attest();
  }

 private:
  using Passes = std::vector<int>;

  /// The plain copy, which is the same on all ranks.
  bool diverges() const {
    return std::ranges::any_of(theirs_, [](const at::Tensor& each) {
      return each.grad().defined() && !(each.grad().to_dense().abs().max().item<double>() < 1e6);
    });
  }

  StepPlan draw_step(int number) {
    using enum StepPlan::Form;
    StepPlan plan{.number = number};
    const auto maybe = [&](Kind kind) {
      const bool drawn = draw_.one_in(2);
      return drawn && kinds.contains(kind);
    };
    if (maybe(Kind::accumulate)) plan.form = accumulated;
    if (maybe(Kind::half_zeroed)) plan.form = half_zeroed;
    if (maybe(Kind::shards)) plan.form = shards;
    if (maybe(Kind::two_losses)) plan.form = two_losses;
    plan.accumulated = 1 + draw_.below(2);
    if (plan.form != accumulated && plan.form != half_zeroed) plan.accumulated = 0;
    plan.keeps_gradients = maybe(Kind::kept) && plan.form != half_zeroed;
    plan.shards = plan.form == shards ? ranks() * (1 << draw_.below(2)) : ranks();
    for (std::size_t i = 0; i + 2 < ours_.size(); ++i)  // the last ones are those of a layer that all use
      if (maybe(Kind::frozen)) plan.frozen.insert(i);
    // LibTorch's own leaves sparse gradients as they are.
    const int clips = draw_.one_in(2) || kinds.contains(Kind::sparse) ? 2 : 1;
    if (maybe(Kind::clip)) plan.clips = clips;
    return plan;
  }

  Batch make_batch(const StepPlan& plan, int pass, int part) const {
    Draw draw{seed_ * 1'000'003 + static_cast<std::uint64_t>((plan.number * 10 + pass) * 100 + part)};
    Batch batch;
    batch.branch = draw.below(2);
    batch.samples = kinds.contains(Kind::uneven) ? draw.below(4) : 3;
    if (batch.samples == 0) return batch;
    torch::manual_seed(seed_ + static_cast<std::uint64_t>(draw.below(1'000'000)));
    batch.inputs = kinds.contains(Kind::embedding) ? at::randint(vocabulary, {batch.samples, words}, at::kLong)
                                                   : at::randn({batch.samples, width}, at::kDouble);
    batch.targets = at::randn({batch.samples, width}, at::kDouble);
    batch.weights = at::ones({batch.samples}, at::kDouble);
    if (kinds.contains(Kind::weights)) batch.weights = at::rand({batch.samples}, at::kDouble) + 0.1;
    return batch;
  }

  double weight_of(const Batch& batch) const { return batch.samples == 0 ? 0 : batch.weights.sum().item<double>(); }

  // --- plain LibTorch ---

  /// Adds the mean gradient over the samples of all parts of the passes.
  void add_gradients(const StepPlan& plan, const Passes& passes) {
    at::Tensor first, second;
    double samples = 0;
    for (const int pass : passes)
      for (int part = 0; part < plan.shards; ++part) {
        const Batch batch = make_batch(plan, pass, part);
        samples += weight_of(batch);
        if (batch.samples == 0) continue;
        const auto losses = plain_.losses(batch);
        first = first.defined() ? first + losses.first : losses.first;
        if (losses.second.defined()) second = second.defined() ? second + losses.second : losses.second;
      }
    if (samples == 0) return;
    const bool both = plan.form == StepPlan::Form::two_losses;
    (first / samples).backward({}, both);
    if (both) (second / samples).backward();
  }

  void train_plain(const StepPlan& plan) {
    if (!plan.keeps_gradients) zero(theirs_);
    Passes passes(static_cast<std::size_t>(plan.accumulated + 1));
    for (std::size_t i = 0; i < passes.size(); ++i) passes[i] = static_cast<int>(i);
    if (plan.form == StepPlan::Form::half_zeroed) {
      add_gradients(plan, {passes.back()});
      std::vector<at::Tensor> halves;
      for (const at::Tensor& each : half(theirs_)) halves.push_back(each.grad());
      zero(theirs_);
      add_gradients(plan, passes);
      const auto tensors = half(theirs_);
      for (std::size_t i = 0; i < halves.size(); ++i) tensors[i].mutable_grad() = halves[i];
    } else {
      add_gradients(plan, passes);
    }
    for (const at::Tensor& each : theirs_)
      if (each.grad().defined() && each.grad().is_sparse()) each.mutable_grad() = each.grad().to_dense();
    if (plan.clips == 1) clip(theirs_, 1e-6);
    if (plan.clips != 2) return;
    std::size_t first = 0;
    for (const auto& module : replicas_) {
      const std::size_t count = module->parameters().size();
      clip({theirs_.begin() + std::ptrdiff_t(first), theirs_.begin() + std::ptrdiff_t(first + count)}, 0);
      first += count;
    }
  }

  static void clip(const std::vector<at::Tensor>& tensors, double epsilon) {
    double squares = 0;
    for (const at::Tensor& each : tensors)
      if (each.grad().defined()) squares += each.grad().square().sum().item<double>();
    const double factor = largest_norm / (std::sqrt(squares) + epsilon);
    for (const at::Tensor& each : tensors)
      if (each.grad().defined() && factor < 1) each.mutable_grad().mul_(factor);
  }

  static std::vector<at::Tensor> half(const std::vector<at::Tensor>& tensors) {
    return {tensors.begin(), tensors.begin() + std::ssize(tensors) / 2};
  }

  static void zero(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& each : tensors) each.mutable_grad().reset();
  }

  // --- the bridge ---

  libtorch::Loss loss_of(const Batch& batch, const at::Tensor& sum) const {
    const double weight = weight_of(batch);
    libtorch::Loss loss = weight == 0            ? libtorch::Loss{}
                          : (seed_ + rank()) % 2 ? libtorch::Loss::mean(sum / weight, weight)
                                                 : libtorch::Loss::sum(sum, weight);
    return kinds.contains(Kind::penalty) && weight > 0 ? loss.ignoring({net_.points}) : loss;
  }

  libtorch::Loss main_loss(const StepPlan& plan, int pass, int part) {
    const Batch batch = make_batch(plan, pass, part);
    return loss_of(batch, batch.samples == 0 ? at::Tensor{} : net_.losses(batch).first);
  }

  void train(ReplicaContext& context, const StepPlan& plan) {
    if (!plan.keeps_gradients) zero_ours(plan.number);
    const auto backward = [&](const libtorch::Loss& loss) {
      modules_.size() == 1 ? modules_[0]->backward(context, loss) : libtorch::backward(context, modules_, loss);
    };
    for (int pass = 0; pass < plan.accumulated; ++pass) {
      const libtorch::Loss loss = main_loss(plan, pass, rank());
      modules_.size() == 1 ? modules_[0]->accumulate(loss) : libtorch::accumulate(modules_, loss);
    }
    if (plan.form == StepPlan::Form::half_zeroed)
      for (const at::Tensor& each : half(ours_))
        plan.number % 2 == 1 && each.grad().defined() ? (void)each.mutable_grad().zero_() : each.mutable_grad().reset();
    if (plan.form == StepPlan::Form::shards) {
      const auto compute = [&](int shard) { return main_loss(plan, 0, shard); };
      modules_.size() == 1 ? modules_[0]->backward_shards(context, plan.shards, compute)
                           : libtorch::backward_shards(context, modules_, plan.shards, compute);
    } else if (plan.form == StepPlan::Form::two_losses) {
      const Batch batch = make_batch(plan, 0, rank());
      std::pair<at::Tensor, at::Tensor> losses;
      if (batch.samples > 0) losses = net_.losses(batch);
      backward(loss_of(batch, losses.first).retain_graph());
      backward(loss_of(batch, losses.second));
    } else {
      backward(main_loss(plan, plan.accumulated, rank()));
    }
    if (plan.clips == 1) (void)torch::nn::utils::clip_grad_norm_(with_gradients(), largest_norm);
    if (plan.clips == 2)
      for (const auto& each : replicas_) (void)each->clip_norm(largest_norm);
  }

  std::vector<at::Tensor> with_gradients() const {
    std::vector<at::Tensor> result;
    for (const at::Tensor& each : ours_)
      if (each.grad().defined()) result.push_back(each);
    return result;
  }

  /// In the ways that there are.
  void zero_ours(int way) {
    if (way == 0) net_.zero_grad();
    if (way == 1)
      for (const auto& each : replicas_) each->zero_grad();
    if (way == 2) zero(ours_);
    if (way == 3) our_optimizer_ ? our_optimizer_->zero_grad() : net_.zero_grad();
  }

  void make_optimizers() {
    const bool sparse = kinds.contains(Kind::sparse);
    const int drawn = draw_.below(3);
    const auto sgd = torch::optim::SGDOptions{0.1}.momentum(sparse ? 0 : 0.9);
    if (drawn == 1 && !sparse) {
      const auto adam = torch::optim::AdamOptions{0.1}.eps(0.01);
      our_optimizer_ = std::make_unique<torch::optim::Adam>(ours_, adam);
      their_optimizer_ = std::make_unique<torch::optim::Adam>(theirs_, adam);
    } else if (drawn == 1) {
      our_optimizer_ = std::make_unique<torch::optim::Adagrad>(ours_, torch::optim::AdagradOptions{0.1});
      their_optimizer_ = std::make_unique<torch::optim::Adagrad>(theirs_, torch::optim::AdagradOptions{0.1});
    } else {
      if (!kinds.contains(Kind::optimizer)) our_optimizer_ = std::make_unique<torch::optim::SGD>(ours_, sgd);
      their_optimizer_ = std::make_unique<torch::optim::SGD>(theirs_, sgd);
    }
    if (our_optimizer_) {
      update_ = [this](ReplicaContext&) { our_optimizer_->step(); };
      return;
    }
    for (const auto& each : replicas_)
      rules_.push_back(each->optimizer(Sgd::Options{.learning_rate = 0.1, .momentum = sparse ? 0 : 0.9}));
    update_ = [this](ReplicaContext& context) {
      for (libtorch::ReplicatedModule::Optimizer& each : rules_) each.step(context);
    };
  }

  /// Of the gradients or the values: the first parameter whose differ, and by how much.
  std::string difference(const std::string& what) const {
    for (std::size_t i = 0; i < ours_.size(); ++i) {
      const at::Tensor expected = what == "value" ? theirs_[i].detach() : theirs_[i].grad();
      const at::Tensor found = what == "value" ? ours_[i].detach() : ours_[i].grad();
      std::ostringstream text;
      text << what << " of parameter " << i << " of " << ours_.size() << ": ";
      if (found.defined() != expected.defined()) {
        text << (found.defined() ? "none expected" : "none");
        return text.str();
      }
      if (!found.defined()) continue;
      const double size = expected.abs().max().item<double>();
      const double off = ((found.is_sparse() ? found.to_dense() : found) - expected).abs().max().item<double>();
      if (off <= tolerance * std::max(size, least_norm)) continue;
      text << "off by " << off << " of " << size;
      return text.str();
    }
    return {};
  }

  static constexpr double largest_norm = 0.5;

  std::uint64_t seed_;
  Draw draw_;

 public:
  const Kinds kinds;

 private:
  Net plain_, net_;
  Strategy strategy_;
  std::vector<std::unique_ptr<libtorch::DataParallel<torch::nn::Module>>> replicas_;
  std::vector<libtorch::ReplicatedModule*> modules_;
  std::vector<at::Tensor> ours_, theirs_;  ///< parameters, in the same order
  std::unique_ptr<torch::optim::Optimizer> our_optimizer_, their_optimizer_;
  std::vector<libtorch::ReplicatedModule::Optimizer> rules_;
  std::function<void(ReplicaContext&)> update_;
};

}  // namespace

TEST_CASE("programs that a seed draws train as plain LibTorch does with the samples of all ranks") {
  const int count = std::stoi(text_of("LOCKSTEP_TEST_SEEDS", "8"));
  // These eight have all kinds between them.
  const int base = std::stoi(text_of("LOCKSTEP_TEST_BASE", "88"));
  for (int seed = base; seed < base + count; ++seed) {
    Program program{static_cast<std::uint64_t>(seed)};
    CAPTURE(seed, text_of(program.kinds));
    try {
      program.run();
    } catch (const std::exception& error) {
      // Of a loss, or of one rank's branch, all may be frozen. Torch refuses that in the plain copy, and lockstep in
      // one rank's. A GPU refuses the first pass in which a checkpoint completes a gradient for the second time.
      const auto frozen = Catch::Contains("a loss that depends on no parameter");
      const auto refused = Catch::Contains("does not require grad and does not have a grad_fn");
      const auto twice = Catch::Contains("was completed twice in one backward pass");
      if (runtime().strategy().stream().kind() == DeviceKind::cpu) {
        CHECK_THAT(error.what(), frozen || refused);
      } else {
        CHECK_THAT(error.what(), frozen || refused || twice);
      }
    }
  }
}

}  // namespace lockstep::test::generated
