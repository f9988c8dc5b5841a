#include "checkpoint/checkpoint_writer.hpp"

#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "checkpoint/folder_lock.hpp"
#include "device/devices.hpp"
#include "trace/ring.hpp"

namespace lockstep {
namespace {

bool fits(const Tensor& memory, const TensorView& value) {
  return memory.dtype() == value.dtype() && memory.shape() == value.shape();
}

}  // namespace

void Snapshot::take(std::vector<TensorFile> files, Stream& stream) {
  synchronize_device(stream.kind());  // other libraries may write variables on streams of their own
  std::size_t next = 0;
  for (TensorFile& file : files)
    for (NamedTensor& tensor : file.tensors) {
      const TensorView& value = tensor.value;
      if (next == copies_.size() || !fits(copies_[next], value)) {
        copies_.resize(next);
        copies_.push_back(Tensor::pinned(value.dtype(), value.shape(), stream));
      }
      const Tensor& memory = copies_[next++];
      copy(value, memory.view(), value.device() == DeviceKind::cpu ? Stream::host() : stream);
      tensor.value = memory.view();
    }
  copies_.resize(next);
  stream.synchronize();
  files_ = std::move(files);
}

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, std::int64_t keep)
    : folder_{std::move(folder)}, keep_{keep} {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::warning(fmt::format("a checkpoint is missing: {}", error.what()));
  }
}

void CheckpointWriter::hold() {
  if (use_ || !may_hold_) return;
  // What reads or writes there says that it is no folder.
  std::error_code unknown;
  if (std::filesystem::exists(folder_, unknown) && !std::filesystem::is_directory(folder_, unknown)) return;
  try {
    use_ = hold_folder(folder_, "the checkpoint folder " + folder_.string());
  } catch (const CheckpointError& error) {
    may_hold_ = false;
    log::warning(fmt::format("another training could use {} at the same time: {}", folder_.string(), error.what()));
  }
}

void CheckpointWriter::write(Manifest manifest, std::vector<TensorFile> files, Stream& stream) {
  wait();
  hold();
  snapshot_.take(std::move(files), stream);
  writing_ = std::async(std::launch::async, [this, manifest = std::move(manifest)] {
    const auto require_use = [&] {
      if (use_) use_->require();
    };
    const trace::Within span{trace::Kind::checkpoint, trace::writer_track, "write a checkpoint"};
    require_use();
    write_checkpoint(folder_, manifest, snapshot_.files(), require_use);
    remove_old(manifest.step);
  });
}

/// On the thread that has written the newest.
void CheckpointWriter::remove_old(std::int64_t written) {
  const std::string trouble = remove_old_checkpoints(folder_, keep_, folder_ / checkpoint_name(written));
  if (trouble.empty() || std::exchange(told_what_stays_, true)) return;
  log::warning(fmt::format("the training goes on, and old checkpoints take up space: {}", trouble));
}

void CheckpointWriter::wait() {
  if (writing_.valid()) writing_.get();
}

void CheckpointWriter::poll() {
  if (use_) use_->require_not_lost();
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds{0}) == std::future_status::ready) wait();
}

}  // namespace lockstep
