#include "sync/checkpoint/checkpoint_writer.hpp"

#include <chrono>
#include <future>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/device/devices.hpp"
#include "core/trace/ring.hpp"
#include "sync/checkpoint/folder_lock.hpp"
#include "sync/checkpoint/left_checkpoints.hpp"

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

bool CheckpointWriter::is_blocked() const {
  std::error_code unknown;
  return std::filesystem::exists(folder_, unknown) && !std::filesystem::is_directory(folder_, unknown);
}

void CheckpointWriter::hold() {
  if (is_blocked()) return;  // what reads or writes there says that it is no folder
  if (!use_ && may_hold_) try {
      use_ = lock_folder(folder_, "the checkpoint folder " + folder_.string());
      is_alone_ = use_.use_count() == 1;
      // A training that has no more to save would leave them. Another manager's may be under way.
      if (is_alone_) remove_parts(folder_);
    } catch (const CheckpointError& error) {
      may_hold_ = false;
      log::warning(fmt::format("another training could use {} at the same time: {}", folder_.string(), error.what()));
    }
  if (!std::exchange(has_finished_, true)) finish_setting_aside(folder_);
}

void CheckpointWriter::begin(const std::optional<Origin>& origin, std::int64_t step) {
  hold();
  if (std::exchange(has_begun_, true) || is_blocked()) return;
  const bool may_set_aside = origin || is_alone_;
  const std::vector<std::string> aside =
      may_set_aside ? set_aside_after(folder_, origin ? origin->step : step, origin ? origin->best : std::nullopt)
                    : std::vector<std::string>{};
  if (origin) whole_[origin->step] = true;
  if (aside.empty()) return;
  log::warning(fmt::format("{}: {} {} set aside, as NAME.aside: this training {}, and has made no later checkpoint",
                           folder_.string(), fmt::join(aside, ", "), aside.size() == 1 ? "is" : "are",
                           !origin ? fmt::format("is after step {}", step)
                           : origin->step == none_stays
                               ? "continues from a checkpoint elsewhere"
                               : fmt::format("continues from {}", checkpoint_name(origin->step))));
}

void CheckpointWriter::write(Manifest manifest, std::vector<TensorFile> files, Stream& stream) {
  wait();
  hold();
  snapshot_.take(std::move(files), stream);
  const auto in_background = [this, manifest = std::move(manifest)] {
    const auto require_use = [&] {
      if (use_) use_->require();
    };
    const trace::Within span{trace::Kind::checkpoint, trace::writer_track, "write a checkpoint"};
    require_use();
    write_checkpoint(folder_, manifest, snapshot_.files(), require_use);
    whole_[manifest.step] = true;
    foreign_.erase(manifest.step);
    remove_old(manifest.step);
  };
  try {
    writing_ = start_task("for writing a checkpoint", in_background);
  } catch (const Error& error) {
    throw CheckpointError{fmt::format("{}: {}", folder_.string(), error.what())};
  }
}

/// Whether a training could go on from it. One that was there before is read once.
bool CheckpointWriter::counts(const std::filesystem::path& checkpoint) {
  const std::int64_t step = step_in(checkpoint.filename().string()).value();
  if (foreign_.contains(step)) return false;
  const auto known = whole_.find(step);
  if (known != whole_.end()) return known->second;
  bool is_whole = true;
  try {
    require_whole(checkpoint);
  } catch (const CheckpointError&) {
    is_whole = false;
  }
  return whole_[step] = is_whole;
}

/// On the thread that has written the newest.
void CheckpointWriter::remove_old(std::int64_t written) {
  const std::string trouble =
      remove_old_checkpoints(folder_, keep_, folder_ / checkpoint_name(written),
                             [&](const std::filesystem::path& checkpoint) { return counts(checkpoint); });
  if (trouble.empty() || std::exchange(told_what_stays_, true)) return;
  log::warning(fmt::format("the training goes on, and old checkpoints take up space: {}", trouble));
}

void CheckpointWriter::wait() {
  if (!writing_.thread.joinable()) return;
  writing_.thread.join();
  writing_.result.get();
}

void CheckpointWriter::poll() {
  if (use_) use_->require_not_lost();
  if (writing_.thread.joinable() && writing_.result.wait_for(std::chrono::seconds{0}) == std::future_status::ready)
    wait();
}

}  // namespace lockstep
