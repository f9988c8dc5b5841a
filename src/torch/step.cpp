#include "torch/step.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/element_type.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/joint_shards.hpp"
#include "torch/sync_sums.hpp"

namespace lockstep::libtorch {
namespace {

/// To the gradient of a table, which is sparse unless a part of it was dense.
void add_earlier(Parameter& table, const at::Tensor& earlier, TorchDevice& device) {
  at::Tensor& gradient = table.tensor.mutable_grad();
  if (!gradient.defined()) {
    gradient = earlier;
  } else if (gradient.is_sparse() && earlier.is_sparse()) {
    const std::array both{rows_of(earlier, device), rows_of(gradient, device)};
    gradient = sparse_gradient(sum_rows(both), table.tensor);
  } else {
    if (gradient.is_sparse()) table.gradient.copy_(earlier);
    gradient = table.gradient.add_(gradient.is_sparse() ? gradient : earlier);
  }
}

}  // namespace

const Shares& shares_of(Strategy& strategy, int shards) {
  return inside(strategy).reductions().shares(shards, strategy.num_replicas_in_sync(), false);
}

Step::Step(ModuleList modules, ReplicaContext& context, const Here& here)
    : modules_{std::move(modules)},
      stream_{modules_.front()->store.stream()},
      context_{context},
      here_{here},
      rank_{static_cast<std::size_t>(context.replica_id_in_sync_group(here))} {
  for (const ReplicatedModule::Impl* const module : modules_)
    if (&context.strategy().store() != &module->store)
      throw InvalidArgument{"a step of a DataParallel in the context of another strategy than its own"};
  std::size_t pieces = 0;
  for (ReplicatedModule::Impl* const module : modules_) {
    module->look_at_gradients();
    module->prepare();
    first_parameters_.push_back(parameters_.size());
    for (std::size_t i = 0; i < module->trained.size(); ++i) {
      const std::size_t piece = module->pieces.piece_of(i);
      trained_.push_back({first_parameters_.back() + module->trained[i],
                          piece < module->pieces.count() ? pieces + piece : static_cast<std::size_t>(-1)});
    }
    pieces += module->pieces.count();
    for (const std::size_t each : module->tables)
      tables_.push_back({first_parameters_.back() + each, first_parameters_.size() - 1, each});
    for (Parameter& each : module->parameters) parameters_.push_back(&each);
  }
  all_ = modules_of(modules_.front()->store);
  for (ReplicatedModule::Impl* const module : all_) {
    if (std::ranges::find(modules_, module) == modules_.end()) module->bring_values_home();  // others are home
    for (ModuleBuffer& each : module->buffers) {
      buffers_.push_back(&each);
      if (each.is_real()) reals_ += each.tensor.numel();
    }
  }
  for (Counted* const each : {&counted_, &if_zeroed_}) {
    each->has.resize(parameters_.size());
    each->samples_of_parameters.resize(parameters_.size());
    each->samples.resize(static_cast<std::size_t>(context.num_replicas_in_sync()));
  }
  std::vector<Parameter*> tables;
  for (const Table& each : tables_) tables.push_back(parameters_[each.number]);
  table_gradients_ = {std::move(tables), context.strategy(), device()};
  for (auto* const each : {&zeroed_, &clipped_, &earlier_}) each->resize(parameters_.size());
  changed_.resize(buffers_.size());
  noted_.resize(buffers_.size());
  note_earlier();
}

ReplicatedModule::MeanLoss Step::of_batch(const Loss& loss) {
  require_loss(loss);
  if (const auto* const module = audited_module())
    throw InvalidArgument{
        fmt::format("a step of {}, whose steps are audited, without shards: expected backward_shards", module->label)};
  SyncSums on_the_way{loss.value()};
  BackwardPass pass{modules_, loss, on_the_way.shared()};
  return run("backward" + on_the_way.text(), on_the_way.list(), [&](DeclaredSums& sums) {
    on_the_way.open(sums, device(), stream_);
    compute_batch(pass, loss, sums);
    // Without samples, or if nothing before a layer has a gradient, autograd does not come there.
    on_the_way.make_the_rest();
  });
}

// On the host, gradients are sent once all are there. A GPU sends them behind those that autograd still computes: then
// a gradient must be complete when autograd first says so, as it is where no nested pass adds another part.
void Step::compute_batch(BackwardPass& pass, const Loss& loss, DeclaredSums& sums) {
  const bool sends_early =
      stream_.kind() != DeviceKind::cpu && std::ranges::all_of(modules_, [](const ReplicatedModule::Impl* module) {
        return module->passes > 0 && module->fires_once;
      });
  std::vector<std::size_t> piece_of(parameters_.size());
  for (const Trained& each : trained_) piece_of[each.number] = each.piece;
  std::vector<char> is_sent(parameters_.size());
  const auto send = [&](std::size_t number) {
    is_sent[number] = 1;
    device().stream_follows();
    (void)sums.ready(piece_of[number]);
  };
  std::mutex mutex;  // hooks of two modules may run at the same time
  pass.run([&](std::size_t module, std::size_t parameter) {
    const std::lock_guard lock{mutex};
    const std::size_t number = first_parameters_[module] + parameter;
    if (is_sent[number])
      throw InvalidArgument{
          fmt::format("the gradient of parameter {} was completed twice in one backward pass, the second time after it "
                      "had been sent: the next pass will wait for all gradients",
                      parameters_[number]->variable.label())};
    parameters_[number]->note_gradient();
    if (parameters_[number]->is_table) return;  // its rows add up until the end
    modules_[module]->bring_home(parameter);
    if (sends_early) send(number);
  });
  for (std::size_t module = 0; module < modules_.size(); ++module)
    for (const std::size_t parameter : modules_[module]->trained)
      if (const Parameter& each = modules_[module]->parameters[parameter]; each.if_kept.has) {
        modules_[module]->bring_home(parameter);
      } else {
        modules_[module]->store.gradient(each.variable).fill_zero(stream_);
      }
  for (const Trained& each : trained_)
    if (!is_sent[each.number]) send(each.number);
  table_gradients_.take_batch();

  count(loss);
  std::ranges::copy(changed_buffers(), changed_.begin());
}

ReplicatedModule::MeanLoss Step::of_shards(int shards, const Compute& compute) {
  shares_ = &shares_of(context_.strategy(), shards);
  if (shares_->has_several()) several_.emplace(*shares_, static_cast<int>(rank_));
  if (std::ranges::any_of(modules_, [](const auto* module) { return !module->accumulated.empty(); }))
    throw InvalidArgument{"shards after a pass that was accumulated: expected backward, or zero_grad before"};
  for (const Parameter* const each : parameters_)
    if (const Variable& variable = each->variable;
        each->tensor.requires_grad() && size_of(variable.dtype()) < size_of(DType::f32))
      throw InvalidArgument{
          fmt::format("parameter {} is {}, and partial sums over shards would be rounded; expected f32 or f64",
                      variable.label(), name_of(variable.dtype()))};
  if (JointShards::is_for(modules_)) {
    if (const auto* const module = audited_module())
      throw InvalidArgument{fmt::format(
          "audits of {}, whose SyncBatchNorm computes all shards together: expected no audit_every", module->label)};
    return of_joint_shards(compute);
  }
  begin_audit();
  const std::string text = fmt::format("backward in {} shards{}", shards, describe_changed_buffers());
  const auto step = [&](DeclaredSums& sums) {
    begin_with_buffers();
    restoring_buffers([&] { compute_shards(compute, sums); });
  };
  const auto audit = [&] {
    if (auto* const module = audited_module()) ++module->steps_in_shards;  // here, since all ranks come here or none
    if (audited_) require_passed_audit(compute);
  };
  return run(audited_ ? "audited " + text : text, {}, step, audit);
}

/// Each shard writes its gradients where the accumulators want them. The first of a subtree has its place at home.
void Step::compute_shards(const Compute& compute, DeclaredSums& sums) {
  const std::span<const Range> subtrees = shares_->subtrees_of(static_cast<int>(rank_));
  const std::vector<TensorView> ranges = gradient_ranges();
  table_gradients_.begin_shards(audited_ ? 2 : 1);  // another rank's has a place of its own

  AuditRound::Digests own_digests;
  for (std::size_t subtree = 0; subtree < subtrees.size(); ++subtree) {
    const std::vector<TensorView> homes = gradient_homes(subtree);
    std::vector<FixedOrderAccumulator> gradients;
    for (const TensorView& home : homes) gradients.emplace_back(home, stream_);
    FixedOrderAccumulator reals{DType::f64, 2 + reals_};
    for (std::int64_t number = subtrees[subtree].first; number < subtrees[subtree].last; ++number) {
      Places places{ranges};
      for (FixedOrderAccumulator& each : gradients) {
        places.places.push_back(each.next());
        places.places.back().fill_zero(stream_);
      }
      const Loss loss = compute_shard(number, compute, 0, places);
      const std::vector<char> changed = changed_buffers();
      if (audited_ && number == audited_->own()) own_digests = digests_of(0, places, loss, changed);
      for (FixedOrderAccumulator& each : gradients) each.push();
      table_gradients_.end_shard(0);
      note_shard(loss, changed, reals);
      for (std::size_t i = 0; i < changed.size(); ++i)
        if (changed[i]) buffers_[i]->restore();
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].finish(homes[i]);
    finish_subtree(reals);
  }
  if (audited_) audited_->bring(std::move(own_digests), compute_apart(audited_->other(), compute));
  finish_shards(sums);
}

/// The memory of gradients.
std::vector<TensorView> Step::gradient_ranges() const {
  std::vector<TensorView> ranges;
  for (const ReplicatedModule::Impl* const module : modules_)
    for (const VariableStore::FlatRange& range : module->pieces.ranges()) ranges.push_back(range.gradients);
  return ranges;
}

/// Where the gradients of a rank's subtree are added up, by range.
std::vector<TensorView> Step::gradient_homes(std::size_t subtree) const {
  std::vector<TensorView> homes = gradient_ranges();
  if (several_)
    for (TensorView& each : homes) each = several_->parts_of(each)[subtree];
  return homes;
}

/// COLL. Memory for the gradients of several subtrees, in which ranks of a node reduce in place. A module keeps it for
/// its next steps.
void Step::place_subtrees(DeclaredSums& sums) {
  if (!several_) return;
  Reductions& reductions = inside(context_.strategy()).reductions();
  for (ReplicatedModule::Impl* const module : modules_) {
    const auto ranges = module->pieces.ranges();
    auto& memory = module->subtree_memory;
    const auto fits = [&](const auto& kept, const VariableStore::FlatRange& range) {
      return several_->fits(*kept, range.gradients);
    };
    if (!std::ranges::equal(memory, ranges, fits)) {
      memory.clear();
      for (const VariableStore::FlatRange& range : ranges)
        sums.wait([&] { memory.push_back(several_->allocate(reductions, range.gradients)); });
    }
    for (const auto& each : memory) several_->add(each);
  }
}

/// Of one that has elements.
TensorView Step::Places::of(const Parameter& parameter) const {
  const auto* const home = static_cast<const std::byte*>(parameter.gradient.data_ptr());
  for (std::size_t i = 0;; ++i)
    if (ranges[i].data() <= home && home < ranges[i].data() + ranges[i].bytes())
      return {places[i].data() + (home - ranges[i].data()), parameter.variable.shape(), parameter.variable.dtype(),
              places[i].device()};
}

/// Adds the gradients of a shard to what is in `places`.
void Step::run_shard(BackwardPass& pass, std::size_t shard, const Places& places) {
  pass.run([&](std::size_t module, std::size_t parameter) {
    Parameter& each = modules_[module]->parameters[parameter];
    counted_.has[first_parameters_[module] + parameter] = 1;
    if (each.is_table) return table_gradients_.take_part(each, shard);
    const at::NoGradGuard plain;
    at::Tensor& gradient = each.tensor.mutable_grad();
    if (each.tensor.numel() > 0) modules_.front()->tensor_of(places.of(each), each.variable).add_(gradient);
    gradient.reset();
  });
}

/// The same for shard `number` of the batch, by itself.
Loss Step::compute_shard(std::int64_t number, const Compute& compute, std::size_t shard, const Places& places) {
  device().torch_follows();
  const LoneShard lone;
  Loss loss = compute(static_cast<int>(number));
  require_loss(loss);
  BackwardPass pass{modules_, loss};
  run_shard(pass, shard, places);
  device().stream_follows();
  return loss;
}

/// Adds up a shard's loss, samples and buffers, some of which it has changed.
void Step::note_shard(const Loss& loss, const std::vector<char>& changed, FixedOrderAccumulator& reals) {
  const auto own_reals = reals.next().elements<double>();
  own_reals[0] = sum_of(loss, device());
  own_reals[1] = loss.samples();
  weigh_buffers(loss.samples(), own_reals.data() + 2);
  reals.push();
  const bool is_first = loss.samples() > 0 && counted_.samples[rank_] == 0;
  counted_.samples[rank_] += loss.samples();
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    if (!changed[i]) continue;
    changed_[i] = 1;
    if (is_first && !buffers_[i]->is_real()) noted_[i] = buffers_[i]->tensor.clone();
  }
}

void Step::finish_subtree(FixedOrderAccumulator& reals) {
  table_gradients_.end_subtree();
  reals.finish(numbers(of_subtrees_.emplace_back(static_cast<std::size_t>(2 + reals_))));
}

/// When the gradients of all subtrees are in their homes.
void Step::finish_shards(DeclaredSums& sums) {
  table_gradients_.end_shards(*shares_);
  for (const Trained& each : trained_) (void)sums.ready(each.piece);
  if (!several_) count_shards(of_subtrees_.front()[0], of_subtrees_.front()[1]);
  if_zeroed_ = counted_;  // nothing was accumulated
}

std::vector<GradientBucket> Step::buckets(const Reductions& reductions) const {
  std::vector<GradientBucket> all;
  std::size_t pieces = 0;
  for (const ReplicatedModule::Impl* const module : modules_) {
    for (const GradientBucket& each : module->pieces.buckets(reductions))
      all.push_back({each.memory, pieces + each.pieces});
    pieces += module->pieces.count();
  }
  return all;
}

ReplicatedModule::MeanLoss Step::run(std::string_view what, const SumList& on_the_way,
                                     const std::function<void(DeclaredSums&)>& compute,
                                     const std::function<void()>& audit) {
  std::string text = fmt::format("{} of {}", what, text_of(modules_));
  for (const ReplicatedModule::Impl* const module : all_)
    if (std::ranges::find(modules_, module) == modules_.end() && !module->buffers.empty())
      text += fmt::format(", with {} buffers of {}", module->buffers.size(), module->label);
  if (!on_the_way.counts.empty()) text += fmt::format(", with {}", describe(on_the_way));
  const std::vector<GradientBucket> messages = buckets(inside(context_.strategy()).reductions());
  SynchronousStep step{
      .agree = std::move(text), .shards = shares_ ? shares_->shards() : 0, .sums = on_the_way, .buckets = messages};
  step.compute = [&](DeclaredSums& sums) {
    place_subtrees(sums);
    device().stream_follows();
    try {
      compute(sums);
      table_gradients_.pack();
    } catch (...) {
      device().stream_follows();  // a part of the gradients may be on its way
      throw;
    }
  };
  step.label_of = [this](std::size_t piece) {
    return parameters_[std::ranges::find(trained_, piece, &Trained::piece)->number]->variable.label();
  };
  step.count = [this] { return totals(); };
  step.decide = [this] { return decide(); };
  step.update = [this](const RankSums& sums) {
    share_buffers(sums);
    table_gradients_.exchange(sums, stream_);
    finish_gradients();
    finish_tables();
  };
  step.close = "the end of a backward pass";
  step.audit = [&] {
    if (!refusal_.empty()) throw InvalidArgument{refusal_};
    if (audit) audit();
  };
  const ReplicatedModule::Impl::Busy busy{modules_};
  const Reductions::OfSubtrees of_subtrees{inside(context_.strategy()).reductions(), several_ ? &*several_ : nullptr};
  make_step(context_, step, here_);
  return {.mean = counted_.total > 0 ? counted_.loss / counted_.total : 0, .samples = counted_.total};
}

bool Step::decide() {
  take_totals();
  return (!audited_ || audited_->passes()) && settle_doubts();
}

void Step::finish_gradients() {
  const at::NoGradGuard plain;
  const bool are_whole = std::ranges::all_of(
      trained_, [&](const Trained& each) { return counted_.samples_of_parameters[each.number] == counted_.total; });
  if (are_whole && counted_.total > 0)
    for (ReplicatedModule::Impl* const module : modules_)
      for (at::Tensor& range : module->flat) divide(range, counted_.total);
  for (const Trained& each : trained_) {
    Parameter& parameter = *parameters_[each.number];
    const double samples = counted_.samples_of_parameters[each.number];
    const bool is_there = samples > 0 && counted_.has[each.number] > 0;
    if (is_there && !are_whole) divide(parameter.gradient, samples);
    parameter.tensor.mutable_grad() = is_there ? parameter.gradient : at::Tensor{};
  }
  for (ReplicatedModule::Impl* const module : modules_) {
    std::erase_if(module->earlier, [&](const auto& each) { return module->parameters[each.parameter].was_zeroed; });
    for (const EarlierGradient& earlier : module->earlier) {
      Parameter& parameter = module->parameters[earlier.parameter];
      if (parameter.is_table) continue;
      at::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) parameter.gradient.zero_();
      gradient = parameter.gradient.add_(earlier.value);
    }
    module->accumulated.clear();
  }
}

void Step::finish_tables() {
  const at::NoGradGuard plain;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    Parameter& table = *parameters_[tables_[i].number];
    const double samples = counted_.samples_of_parameters[tables_[i].number];
    const bool is_there = samples > 0 && counted_.has[tables_[i].number] > 0;
    table.tensor.mutable_grad() = is_there ? table_gradients_.mean(i, samples) : at::Tensor{};
  }
  for (ReplicatedModule::Impl* const module : modules_) {
    for (const EarlierGradient& earlier : module->earlier)
      if (Parameter& parameter = module->parameters[earlier.parameter]; parameter.is_table)
        add_earlier(parameter, earlier.value, device());
    module->earlier.clear();
  }
  for (std::size_t i = 0; i < tables_.size(); ++i)
    if (table_gradients_.is_dense(i)) modules_[tables_[i].module]->make_dense(tables_[i].parameter);
  for (Parameter* const each : parameters_) {
    each->forget(AccumulatedPass::last());
    each->note_left();
  }
}

}  // namespace lockstep::libtorch
