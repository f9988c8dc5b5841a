#include "torch/step.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/input/shards.hpp>

#include "torch/sync_sums.hpp"

namespace lockstep::libtorch {
namespace {

TensorView numbers(std::vector<std::int64_t>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {std::ssize(values)}, DType::i64};
}

TensorView numbers(Reals& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {std::ssize(values)}, DType::f64};
}

}  // namespace

Step::Step(ReplicatedModule::Impl& module, ReplicaContext& context, const Here& here)
    : module_{module},
      stream_{module.store.stream()},
      context_{context},
      here_{here},
      rank_{context.replica_id_in_sync_group(here)},
      has_(module.parameters.size()),
      changed_(module.buffers.size()),
      samples_(static_cast<std::size_t>(context.num_replicas_in_sync())),
      noted_(module.buffers.size()) {
  if (&context.strategy().store() != &module.store)
    throw InvalidArgument{"a step of a DataParallel in the context of another strategy than its own"};
  module.bring_values_home();
  module.update_trained();
}

MeanLoss Step::of_batch(const Loss& loss) {
  module_.require_loss(loss);
  module_.begin();
  // One rank knows the number of samples before the sum, and need not move the gradients.
  if (samples_.size() == 1 && !module_.accumulated) divided_by_ = loss.samples() > 0 ? loss.samples() : 1;
  SyncSums on_the_way{loss.value()};
  return run("backward", on_the_way.list(), [&](DeclaredSums& sums) {
    const ReplicatedModule::Impl::Accumulated before = module_.accumulated.value_or(decltype(before){});
    std::vector<std::size_t> piece_of(module_.parameters.size());
    for (std::size_t i = 0; i < module_.trained.size(); ++i) piece_of[module_.trained[i]] = module_.pieces.piece_of(i);
    std::vector<char> sent(module_.parameters.size());
    on_the_way.open(sums, *module_.device, stream_);
    module_.run_autograd(loss, [&](std::size_t parameter) {
      if (!divided_by_) module_.bring_home(parameter);
      module_.has[parameter] = sent[parameter] = 1;
      module_.device->stream_follows();
      (void)sums.ready(piece_of[parameter]);
    });
    // Autograd has let go of them by now.
    for (const std::size_t parameter : module_.trained)
      if (divided_by_ && sent[parameter]) module_.divide(parameter, *divided_by_);
    // Without samples, or if nothing before a layer has a gradient, autograd does not come there.
    on_the_way.make_the_rest();
    total_ = samples_[static_cast<std::size_t>(rank_)] = before.samples + loss.samples();
    loss_ = before.loss + module_.sum_of(loss);
    for (const std::size_t parameter : module_.trained) {
      if (sent[parameter]) continue;
      if (!module_.has[parameter]) fill_zero(module_.store.gradient(module_.parameters[parameter].variable), stream_);
      (void)sums.ready(piece_of[parameter]);
    }
    std::ranges::copy(module_.changed_buffers(), changed_.begin());
  });
}

MeanLoss Step::of_shards(int shards, const std::function<Loss(int)>& compute) {
  const Range own = shards_of_rank(shards, context_.num_replicas_in_sync(), rank_);
  module_.begin();
  if (module_.accumulated)
    throw InvalidArgument{"shards after a pass that was accumulated: expected backward, or zero_grad before"};
  for (const std::size_t parameter : module_.trained)
    if (const Variable& variable = module_.parameters[parameter].variable;
        size_of(variable.dtype()) < size_of(DType::f32))
      throw InvalidArgument{
          fmt::format("parameter {} is {}, and partial sums over shards would be rounded; expected "
                      "f32 or f64",
                      variable.label(), name_of(variable.dtype()))};
  return run(fmt::format("backward in {} shards", shards), {},
             [&](DeclaredSums& sums) { compute_shards(own, compute, sums); });
}

/// Each shard writes its gradients where the accumulators want them. The first has its place in the store.
void Step::compute_shards(Range own, const std::function<Loss(int)>& compute, DeclaredSums& sums) {
  std::vector<FixedOrderAccumulator> gradients;
  for (const FlatRange& range : module_.pieces.ranges()) gradients.emplace_back(range.gradients, stream_);
  FixedOrderAccumulator reals{DType::f64, 2 + module_.reals};
  for (ModuleBuffer& buffer : module_.buffers) buffer.note();

  for (std::int64_t shard = own.first; shard < own.last; ++shard) {
    std::vector<TensorView> places;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      places.push_back(gradients[i].next());
      fill_zero(places.back(), stream_);
    }
    module_.device->torch_follows();
    const auto place_of = [&](const Variable& variable) {
      const TensorView home = module_.store.gradient(variable);
      for (std::size_t i = 0;; ++i) {
        const TensorView& range = module_.pieces.ranges()[i].gradients;
        if (range.data() <= home.data() && home.data() < range.data() + range.bytes())
          return module_.tensor_of(
              TensorView{places[i].data() + (home.data() - range.data()), home.shape(), home.dtype(), home.device()},
              variable);
      }
    };
    const Loss loss = compute(static_cast<int>(shard));
    module_.require_loss(loss);
    module_.run_autograd(loss, [&](std::size_t parameter) {
      const Parameter& each = module_.parameters[parameter];
      const at::NoGradGuard plain;
      at::Tensor& gradient = each.tensor.mutable_grad();
      if (each.tensor.numel() > 0) place_of(each.variable).add_(gradient);
      gradient.reset();
      module_.has[parameter] = 1;
    });
    module_.device->stream_follows();
    for (FixedOrderAccumulator& each : gradients) each.push();

    const auto own_reals = reals.next().elements<double>();
    own_reals[0] = module_.sum_of(loss);
    own_reals[1] = loss.samples();
    weigh_buffers(loss.samples(), own_reals.data() + 2);
    reals.push();
    const bool is_first = loss.samples() > 0 && samples_[static_cast<std::size_t>(rank_)] == 0;
    samples_[static_cast<std::size_t>(rank_)] += loss.samples();
    const std::vector<char> changed = module_.changed_buffers();
    for (std::size_t i = 0; i < changed_.size(); ++i) {
      if (!changed[i]) continue;
      changed_[i] = 1;
      ModuleBuffer& buffer = module_.buffers[i];
      if (is_first && !buffer.is_real()) noted_[i] = buffer.tensor.clone();
      buffer.restore();
    }
  }

  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].finish(module_.pieces.ranges()[i].gradients);
  for (std::size_t i = 0; i < module_.trained.size(); ++i) (void)sums.ready(module_.pieces.piece_of(i));
  Reals sum(static_cast<std::size_t>(2 + module_.reals));
  reals.finish(numbers(sum));
  loss_ = sum[0];
  total_ = sum[1];
  buffers_.emplace(sum.begin() + 2, sum.end());
}

MeanLoss Step::run(std::string_view what, const SumList& on_the_way,
                   const std::function<void(DeclaredSums&)>& compute) {
  std::string text = fmt::format("{} of {}", what, module_.text);
  if (!on_the_way.counts.empty()) text += fmt::format(", with {}", describe(on_the_way));
  try {
    context_.declared_step(
        text,
        [&](CrossDeviceOps& reductions, MeetingPoint::Covered& covered) {
          reduce(on_the_way, compute, reductions, covered);
        },
        here_);
  } catch (...) {
    module_.zero_grad();
    throw;
  }
  if (failures_ > 0) {
    module_.zero_grad();
    // Every rank is here, so those that did not fail hear of it before their programs go on.
    if (failure_) context_.strategy().group().meeting().fail(failure_);
    context_.strategy().agree(TagKind::merge, here_, "the end of a backward pass");
  }
  return {.mean = total_ > 0 ? loss_ / total_ : 0, .samples = total_};
}

void Step::reduce(const SumList& on_the_way, const std::function<void(DeclaredSums&)>& compute,
                  CrossDeviceOps& reductions, MeetingPoint::Covered& covered) {
  const std::vector<GradientBucket> buckets = module_.pieces.buckets(reductions.packing());
  ReplicaGroup& group = context_.strategy().group();
  DeclaredSums sums{reductions, on_the_way, stream_, buckets, &covered};
  module_.device->stream_follows();
  try {
    compute(sums);
    covered.require_no_agreement();
  } catch (...) {
    failure_ = std::current_exception();
    failures_ = 1;
    group.see_through([&] {
      module_.device->stream_follows();  // a part of the gradients may be on its way
      sums.make_the_rest();
    });
  }
  // The host's plane and a GPU's never move tensors at the same time. So torch need not wait for the stream later.
  group.see_through([&] {
    sums.finish();
    stream_.synchronize();
  });
  std::ranges::copy(module_.has, has_.begin());
  covered.wait_in([&] { all_reduce_totals(reductions); });
  if (failures_ > 0) return;
  share_buffers(reductions, covered);
  finish_gradients();
}

void Step::all_reduce_totals(CrossDeviceOps& reductions) {
  std::vector<std::int64_t> integers{failures_};
  for (const auto* each : {&has_, &changed_}) integers.insert(integers.end(), each->begin(), each->end());
  Reals reals{loss_, total_};
  reals.insert(reals.end(), samples_.begin(), samples_.end());
  const std::array views{numbers(integers), numbers(reals)};
  reductions.all_reduce(ReduceOp::sum, views);
  failures_ = integers.front();
  auto at = integers.cbegin() + 1;
  for (auto* each : {&has_, &changed_}) {
    std::copy_n(at, each->size(), each->begin());
    at += std::ssize(*each);
  }
  loss_ = reals[0];
  total_ = reals[1];
  samples_.assign(reals.begin() + 2, reals.end());
}

void Step::weigh_buffers(double samples, double* to) const {
  if (module_.reals == 0) return;
  const at::Tensor weighed = module_.device->on_host(module_.real_elements().mul(samples));
  std::ranges::copy(view_of(weighed).elements<double>(), to);
}

/// On the host: the elements of the other buffers that any rank has changed.
at::Tensor Step::changed_integers() const {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    const ModuleBuffer& buffer = module_.buffers[i];
    if (changed_[i] > 0 && !buffer.is_real())
      parts.push_back((noted_[i].defined() ? noted_[i] : buffer.tensor).flatten().to(at::kLong));
  }
  return parts.empty() ? at::empty({0}, at::kLong) : module_.device->on_host(at::cat(parts));
}

/// All ranks know which buffers have changed on any of them, and how many samples each has.
void Step::share_buffers(CrossDeviceOps& reductions, MeetingPoint::Covered& covered) {
  if (std::ranges::none_of(changed_, [](std::int64_t ranks) { return ranks > 0; })) return;
  const auto first = std::ranges::find_if(samples_, [](double samples) { return samples > 0; });
  const bool is_first = first == samples_.end() ? rank_ == 0 : first - samples_.begin() == rank_;
  // Without samples anywhere, the first rank's count.
  const double weight = total_ > 0 ? samples_[static_cast<std::size_t>(rank_)] : rank_ == 0 ? 1 : 0;
  const double total = total_ > 0 ? total_ : 1;
  if (!buffers_ || total_ == 0) {
    buffers_.emplace(static_cast<std::size_t>(module_.reals));
    weigh_buffers(weight, buffers_->data());
  }
  at::Tensor integers = changed_integers();
  if (!is_first) integers.zero_();
  const std::array views{view_of(integers), numbers(*buffers_)};
  covered.wait_in([&] { reductions.all_reduce(ReduceOp::sum, views); });

  const at::NoGradGuard plain;
  const at::Device device = module_.device->device();
  const at::Tensor reals = at::from_blob(buffers_->data(), {module_.reals}, at::kDouble).div(total).to(device);
  integers = integers.to(device);
  std::int64_t real = 0, integer = 0;
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    ModuleBuffer& buffer = module_.buffers[i];
    const auto next = [&](const at::Tensor& all, std::int64_t& first) {
      const auto count = buffer.tensor.numel();
      return all.narrow(0, std::exchange(first, first + count), count).view(buffer.tensor.sizes());
    };
    if (buffer.is_real()) {
      const at::Tensor value = next(reals, real);
      if (changed_[i] > 0) buffer.tensor.copy_(value);
    } else if (changed_[i] > 0) {
      buffer.tensor.copy_(next(integers, integer));
    }
    if (changed_[i] > 0) buffer.note();
  }
}

void Step::finish_gradients() {
  const at::NoGradGuard plain;
  if (total_ > 0 && !divided_by_)
    for (at::Tensor& range : module_.flat) divide(range, total_);
  for (const std::size_t i : module_.trained) {
    if (divided_by_) break;  // there, or where autograd has left it
    Parameter& parameter = module_.parameters[i];
    parameter.tensor.mutable_grad() = total_ > 0 && has_[i] > 0 ? parameter.gradient : at::Tensor{};
  }
  for (const auto& [i, earlier] : module_.earlier) {
    Parameter& parameter = module_.parameters[i];
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (gradient.defined()) {
      module_.bring_home(i);
      parameter.gradient.add_(earlier);
    } else {
      parameter.gradient.copy_(earlier);
      gradient = parameter.gradient;
    }
  }
  module_.earlier.clear();
  module_.accumulated.reset();
}

}  // namespace lockstep::libtorch
