#include "models/fit/shard_loader.hpp"

#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"
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

}  // namespace lockstep
