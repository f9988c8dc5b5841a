#include "models/fit/rank_shards.hpp"

#include <algorithm>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>

#include "core/order/shard_sizes.hpp"
#include "core/tensor/shared_parts.hpp"
#include "core/trace/ring.hpp"
#include "models/input/batches.hpp"

namespace lockstep {

ShardLoader::ShardLoader(const SampleSource& source, std::int64_t capacity, std::int64_t shards, Stream& stream,
                         std::size_t ahead)
    : source_{source}, stream_{stream}, staging_(ahead + (stream.kind() == DeviceKind::cpu ? 1 : 2)) {
  for (Staging& each : staging_) each.group = make_batch_group(source.make_batch(shards * capacity, stream), shards);
  if (stream.kind() == DeviceKind::cpu) return;
  const SampleBatch::Group& host = staging_[0].group;
  on_device_ = make_batch_group({.inputs = Tensor::zeros(host.inputs.dtype(), host.inputs.shape(), stream),
                                 .labels = Tensor::zeros(host.labels.dtype(), host.labels.shape(), stream)},
                                shards);
}

ShardLoader::~ShardLoader() {
  for (const Staging& each : staging_) {
    try {
      if (each.copied) each.copied->synchronize();
    } catch (const Error&) {
      // The stream has failed and says so to whoever uses it next. Nothing reads the memory any more.
    }
  }
  try {
    if (unrecorded_) stream_.synchronize();
  } catch (const Error&) {
  }
}

void ShardLoader::assemble(std::span<const std::span<const std::int64_t>> samples, ShardThreads* threads) {
  const trace::Within span{trace::Kind::part, "load a batch"};
  Staging& staging = staging_[assembled_ % staging_.size()];
  if (staging.copied) staging.copied->synchronize();  // two loads ago, so done by now unless the GPU is far behind
  const auto fill = [&](std::size_t shard) { source_.fill(samples[shard], staging.group.batches[shard]); };
  if (threads)
    threads->for_each(samples.size(), fill, "in a source whose batches several threads fill");
  else
    for (std::size_t shard = 0; shard < samples.size(); ++shard) fill(shard);
  ++assembled_;
}

const SampleBatch::Group& ShardLoader::send() {
  Staging& staging = staging_[sent_++ % staging_.size()];
  SampleBatch::Group& group = staging.group;
  if (stream_.kind() == DeviceKind::cpu) return group;
  unrecorded_ = true;
  copy(group.inputs.view(), on_device_.inputs.view(), stream_);
  copy(group.labels.view(), on_device_.labels.view(), stream_);
  for (std::size_t shard = 0; shard < group.batches.size(); ++shard)
    on_device_.batches[shard].samples = group.batches[shard].samples;
  staging.copied = inside(stream_).record();
  unrecorded_ = false;
  return on_device_;
}

BatchPart BatchPart::part(int parts, int number) const {
  const Range range = Range::of_shard(static_cast<std::int64_t>(samples.size()), parts, number);
  return {samples.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size())),
          first + range.first};
}

SampleBatch::Group part_of(const SampleBatch::Group& shards, const Range& part) {
  const std::int64_t first = part.first * shards.capacity(), rows = part.size() * shards.capacity();
  return {.inputs = detail::rows_of(shards.inputs, first, rows),
          .labels = detail::rows_of(shards.labels, first, rows),
          .batches = {shards.batches.begin() + part.first, shards.batches.begin() + part.last}};
}

RankShards::RankShards(const SampleSource& source, std::int64_t largest_batch, BatchCut cut, Range mine, Stream& stream)
    : source_{source},
      capacity_{shard_capacity(shard_capacity(largest_batch, cut.shards), cut.micro_batches)},
      cut_{cut},
      mine_{mine},
      stream_{stream} {}

std::vector<nn::Model::ShardPlace> RankShards::Loaded::places(std::int64_t step) const {
  std::vector<nn::Model::ShardPlace> places;
  for (const std::int64_t first : first_samples) places.push_back({.step = step, .first_sample = first});
  return places;
}

BatchPart RankShards::part_of(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) const {
  return BatchPart{batch}.part(cut_.shards, static_cast<int>(shard)).part(cut_.micro_batches, micro_batch);
}

std::int64_t RankShards::samples_of_all(std::span<const std::int64_t> batch, int micro_batch) const {
  std::int64_t sum = 0;
  for (int shard = 0; shard < cut_.shards; ++shard)
    sum += static_cast<std::int64_t>(part_of(batch, shard, micro_batch).samples.size());
  return sum;
}

RankShards::Loaded RankShards::load_all(std::span<const std::int64_t> batch, int micro_batch, ShardThreads* threads) {
  return load(all_, batch, mine_, micro_batch, threads);
}

RankShards::Loaded RankShards::load_one(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) {
  return load(one_, batch, {mine_.first + shard, mine_.first + shard + 1}, micro_batch);
}

RankShards::Loaded RankShards::load_any(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) {
  if (!any_) any_.emplace(source_, capacity_, 1, stream_);
  parts_ = parts_of(batch, {shard, shard + 1}, micro_batch);
  const std::lock_guard lock{reading_};
  return {any_->load(parts_.samples), parts_.first_samples};
}

RankShards::Loaded RankShards::load_all_and(std::span<const std::int64_t> batch, std::int64_t audited) {
  const SampleBatch::Group& own = load_all(batch).group;
  const std::vector<std::int64_t> first_samples = parts_.first_samples;
  const SampleBatch::Group& other = load_any(batch, audited).group;
  parts_.first_samples.insert(parts_.first_samples.begin(), first_samples.begin(), first_samples.end());
  if (!with_audited_) {
    const auto memory = [&](const Tensor& of_own) {
      Shape shape = of_own.shape();
      shape.front() += capacity_;
      return Tensor::zeros(of_own.dtype(), shape, stream_);
    };
    with_audited_ = make_batch_group({memory(own.inputs), memory(own.labels)}, count() + 1);
  }
  const auto put_side_by_side = [&](const Tensor& a, const Tensor& b, const Tensor& both) {
    const TensorView to = both.view().reshaped({both.count()});
    copy(a.view().reshaped({a.count()}), to.slice(0, a.count()), stream_);
    copy(b.view().reshaped({b.count()}), to.slice(a.count(), b.count()), stream_);
  };
  put_side_by_side(own.inputs, other.inputs, with_audited_->inputs);
  put_side_by_side(own.labels, other.labels, with_audited_->labels);
  for (std::size_t shard = 0; shard < own.batches.size(); ++shard)
    with_audited_->batches[shard].samples = own.batches[shard].samples;
  with_audited_->batches.back().samples = other.batches.front().samples;
  return {*with_audited_, parts_.first_samples};
}

RankShards::Loaded RankShards::load(std::optional<ShardLoader>& loader, std::span<const std::int64_t> batch,
                                    Range shards, int micro_batch, ShardThreads* threads) {
  parts_ = parts_of(batch, shards, micro_batch);
  if (ahead_) {
    (void)ahead_->next();
    return {loader->send(), parts_.first_samples};
  }
  if (!loader) {
    // On a GPU, as many as a step has, so that none waits for the copy of an earlier one of its step.
    const std::int64_t of_step = count() / std::max<std::int64_t>(shards.size(), 1) * cut_.micro_batches;
    const bool on_gpu = stream_.kind() != DeviceKind::cpu;
    loader.emplace(source_, capacity_, shards.size(), stream_,
                   on_gpu ? static_cast<std::size_t>(std::max<std::int64_t>(of_step, 1) - 1) : 0);
  }
  return {threads ? loader->load(parts_.samples, *threads) : loader->load(parts_.samples), parts_.first_samples};
}

RankShards::Parts RankShards::parts_of(std::span<const std::int64_t> batch, Range shards, int micro_batch) const {
  Parts parts;
  for (std::int64_t shard = shards.first; shard < shards.last; ++shard) {
    const BatchPart part = part_of(batch, shard, micro_batch);
    parts.samples.push_back(part.samples);
    parts.first_samples.push_back(part.first);
  }
  return parts;
}

void RankShards::load_ahead(LoadsAhead loads) {
  const bool all = loads.order == Order::all_shards;
  const std::int64_t turns = all ? 1 : count();  // of a step, each with all micro-batches
  const std::int64_t of_step = turns * cut_.micro_batches;
  const auto pieces = static_cast<int>(loads.steps * of_step);
  ShardLoader& loader = (all ? all_ : one_).emplace(source_, capacity_, all ? count() : 1, stream_, pieces);
  const std::int64_t last = loads.of.size() * of_step;
  const WorkAhead::Options options{.pieces = pieces, .where = loads.where};
  const auto assemble = [this, loads = std::move(loads), &loader, all, of_step, last, next = std::int64_t{0},
                         batch = std::span<const std::int64_t>{}]() mutable {
    const std::int64_t in_step = next % of_step;
    if (in_step == 0) batch = loads.samples(loads.of.first + next / of_step);
    const std::int64_t shard = mine_.first + in_step / cut_.micro_batches;
    const Range shards = all ? mine_ : Range{shard, shard + 1};
    const std::lock_guard lock{reading_};
    loader.assemble(parts_of(batch, shards, static_cast<int>(in_step % cut_.micro_batches)).samples);
    return WorkAhead::Made{nullptr, ++next == last};
  };
  ahead_.emplace(assemble, options);
}

}  // namespace lockstep
