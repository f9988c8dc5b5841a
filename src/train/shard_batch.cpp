#include "train/shard_batch.hpp"

namespace lockstep {

ShardBatch::ShardBatch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream) : stream_{stream} {
  staging_[0].batch = make_batch(capacity, features, dtype, stream);
  if (stream.kind() == DeviceKind::cpu) return;
  staging_[1].batch = make_batch(capacity, features, dtype, stream);
  on_device_.inputs = Tensor::zeros(dtype, staging_[0].batch.inputs.shape(), stream);
  on_device_.labels = Tensor::zeros(DType::i32, staging_[0].batch.labels.shape(), stream);
}

const SampleBatch& ShardBatch::load(const ImageSet& images, std::span<const std::int64_t> samples) {
  Staging& staging = staging_[turn_];
  if (staging.copied) staging.copied->synchronize();  // two shards ago: done by now, unless the GPU is far behind
  fill_batch(images, samples, staging.batch);
  if (stream_.kind() == DeviceKind::cpu) return staging.batch;
  copy(staging.batch.inputs.view(), on_device_.inputs.view(), stream_);
  copy(staging.batch.labels.view(), on_device_.labels.view(), stream_);
  on_device_.samples = staging.batch.samples;
  staging.copied = stream_.record();
  turn_ = 1 - turn_;
  return on_device_;
}

}  // namespace lockstep
