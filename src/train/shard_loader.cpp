#include "train/shard_loader.hpp"

#include <lockstep/base/error.hpp>

namespace lockstep {

ShardLoader::ShardLoader(const SampleSource& source, std::int64_t capacity, std::int64_t shards, Stream& stream)
    : source_{source}, stream_{stream} {
  const auto make = [&] { return make_batch_group(source.make_batch(shards * capacity, stream), shards); };
  staging_[0].group = make();
  if (stream.kind() == DeviceKind::cpu) return;
  staging_[1].group = make();
  const BatchGroup& host = staging_[0].group;
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
}

const BatchGroup& ShardLoader::load(std::span<const std::span<const std::int64_t>> samples) {
  Staging& staging = staging_[turn_];
  if (staging.copied) staging.copied->synchronize();  // two loads ago, so done by now unless the GPU is far behind
  BatchGroup& group = staging.group;
  for (std::size_t shard = 0; shard < samples.size(); ++shard) source_.fill(samples[shard], group.batches[shard]);
  if (stream_.kind() == DeviceKind::cpu) return group;
  copy(group.inputs.view(), on_device_.inputs.view(), stream_);
  copy(group.labels.view(), on_device_.labels.view(), stream_);
  for (std::size_t shard = 0; shard < samples.size(); ++shard)
    on_device_.batches[shard].samples = group.batches[shard].samples;
  staging.copied = stream_.record();
  turn_ = 1 - turn_;
  return on_device_;
}

}  // namespace lockstep
