// A GPU that is not there. In a test program that links the layers themselves, it is the GPU backend, so that
// everything above it runs as it does on a GPU: memory that the host may not touch in place, and work that is enqueued
// and done later. Nothing is done before somebody waits for it, memory that was given back is overwritten in its turn,
// and pinned memory is read when the copy is done, not when it is asked for: a missing wait shows in the numbers, and
// pinned memory that goes too early ends the program. It has no clock and proves nothing about CUDA.
//
// LOCKSTEP_SIMULATED_GPUS, "2,0", says how many of them the ranks find, each where it is: rank r what the r-th entry
// says, and the ranks beyond those what the last one does. An entry that is no number lists UUIDs, "a+b", for ranks
// that see other GPUs than their neighbours. Without it there is one. LOCKSTEP_SIMULATED_GPU_BYTES says how much memory
// each has.
#include "support/simulated_gpu.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/device/stream.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/base/log_settings.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "core/device/gpu_backend.hpp"
#include "core/device/host_wait.hpp"
#include "core/tensor/convert.hpp"
#include "models/ops/gpu_kernels.hpp"
#include "support/simulated_gpu_fate.hpp"
#include "support/simulated_kernels.hpp"
#include "sync/reduce/arithmetic.hpp"

namespace lockstep {
namespace {

using test::for_host;

/// Guards the queues and the memory of the process, which several threads may use. Held while work is done, too.
std::recursive_mutex& gpu() {
  static std::recursive_mutex mutex;
  return mutex;
}
using Locked = std::lock_guard<std::recursive_mutex>;

test::Fate& fate() {
  static test::Fate fate;
  return fate;
}

void check() {
  const Locked lock{gpu()};
  fate().check();
}

/// Work in order, none of it done before somebody asks.
class Queue {
 public:
  using Position = std::size_t;

  /// An operation; false as long as it waits for another queue.
  using Work = std::function<bool()>;

  ~Queue() {
    try {
      while (!run_towards(end()) && !fate().is_over()) {
      }
    } catch (const DeviceError&) {  // as a GPU that has failed: nothing is done any more
    }
  }

  void push(Work work) {
    const Locked lock{gpu()};
    waiting_.push_back(std::move(work));
  }

  /// Behind everything pushed so far.
  Position end() const {
    const Locked lock{gpu()};
    return done_ + waiting_.size();
  }

  /// Does a few operations of those up to `position`. Whether that is reached.
  bool run_towards(Position position) {
    const Locked lock{gpu()};
    fate().check();
    for (int operations = 16; done_ < position; --operations) {
      if (operations == 0 || fate().is_over()) return false;
      if (!has_begun_ && !fate().may_go_on()) {
        fate().check();
        return false;
      }
      has_begun_ = true;
      if (!waiting_.front()()) return false;
      has_begun_ = false;
      // What it holds may push more when it goes.
      const Work done = std::move(waiting_.front());
      waiting_.pop_front();
      ++done_;
    }
    return true;
  }

 private:
  std::deque<Work> waiting_;
  bool has_begun_ = false;  ///< the first of them, which waits
  Position done_ = 0;
};

/// All queues of the process, for whoever waits for the whole device.
std::vector<std::weak_ptr<Queue>>& queues() {
  static std::vector<std::weak_ptr<Queue>> all;
  return all;
}

void run_everything() {
  detail::wait_on_host([] {
    const Locked lock{gpu()};
    return std::ranges::all_of(queues(), [](const auto& each) {
      const auto queue = each.lock();
      return !queue || queue->run_towards(queue->end());
    });
  });
}

/// A pinned piece of the host's memory.
struct Pinned {
  std::size_t bytes;
  std::shared_ptr<int> copies = std::make_shared<int>(0);  ///< enqueued and not done
};

std::map<const std::byte*, Pinned>& pinned() {
  static std::map<const std::byte*, Pinned> all;
  return all;
}

/// The piece that `data` lies in, or null.
const Pinned* pinned_at(const void* data) {
  const auto* const byte = static_cast<const std::byte*>(data);
  const auto after = pinned().upper_bound(byte);
  if (after == pinned().begin()) return nullptr;
  const auto& [begin, piece] = *std::prev(after);
  return byte < begin + piece.bytes ? &piece : nullptr;
}

bool is_pinned(const void* data) {
  return pinned_at(data) != nullptr;
}

/// Where the device's memory is, so that a plain range of the host can be told from it.
std::map<const std::byte*, std::size_t>& device_memory() {
  static std::map<const std::byte*, std::size_t> all;
  return all;
}

bool is_on_device(const void* data) {
  const auto* const byte = static_cast<const std::byte*>(data);
  auto after = device_memory().upper_bound(byte);
  return after != device_memory().begin() && byte < std::prev(after)->first + std::prev(after)->second;
}

class SimulatedEvent final : public Event {
 public:
  SimulatedEvent(std::shared_ptr<Queue> queue, Queue::Position position)
      : queue_{std::move(queue)}, position_{position} {}

  /// Each look lets the GPU do a little.
  bool done() const override { return queue_->run_towards(position_); }

  Queue::Work as_work() const {
    return [queue = queue_, position = position_] { return queue->run_towards(position); };
  }

 private:
  std::shared_ptr<Queue> queue_;
  Queue::Position position_;
};

class SimulatedStream final : public Stream {
 public:
  SimulatedStream() {
    const Locked lock{gpu()};
    queues().push_back(queue_);
  }

  template <class Work>
  void push(Work work) {
    check();
    queue_->push([work = std::move(work)] {
      work();
      return true;
    });
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }

  Buffer allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, 0, DeviceKind::cuda, nullptr};
    const Locked lock{gpu()};
    fate().check();
    auto memory = std::make_shared<Buffer>(allocate_host(bytes));
    std::memset(memory->data(), 0xa5, bytes);  // uninitialised memory is not zero
    device_memory()[memory->data()] = bytes;
    void* const data = memory->data();
    return {data, bytes, DeviceKind::cuda, [queue = queue_, memory](void*) {
              queue->push([memory] {
                std::memset(memory->data(), 0x5a, memory->bytes());
                device_memory().erase(memory->data());
                return true;
              });
            }};
  }

  Buffer allocate_pinned(std::size_t bytes) override {
    const Locked lock{gpu()};
    auto memory = std::make_shared<Buffer>(allocate_host(bytes));
    void* const data = memory->data();
    if (data) pinned().emplace(memory->data(), Pinned{bytes});
    return {data, bytes, DeviceKind::cpu, [memory](void*) {
              const Locked lock{gpu()};
              const auto piece = pinned().find(memory->data());
              if (piece == pinned().end()) return;
              if (*piece->second.copies > 0 && !fate().is_over()) {
                std::fputs("simulated GPU: pinned memory was released before its copies were done\n", stderr);
                std::abort();
              }
              pinned().erase(piece);
            }};
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    {
      const Locked lock{gpu()};
      enqueue_copy(to, from, bytes);
      if (is_on_device(to) || is_pinned(to)) return;
    }
    synchronize();
  }

  void fill_zero(void* to, std::size_t bytes) override {
    if (bytes) push([=] { std::memset(to, 0, bytes); });
  }
  std::unique_ptr<Event> record() override {
    check();
    return std::make_unique<SimulatedEvent>(queue_, queue_->end());
  }
  void wait(const Event& event) override {
    check();
    if (const auto* const recorded = dynamic_cast<const SimulatedEvent*>(&event)) queue_->push(recorded->as_work());
  }
  void synchronize() override {
    detail::wait_on_host([queue = queue_, end = queue_->end()] { return queue->run_towards(end); });
  }
  std::unique_ptr<Stream> make_sibling() override { return std::make_unique<SimulatedStream>(); }
  bool is_capturing() const override { return capturing_; }

  void begin_capture() { capturing_ = true; }
  void end_capture() { capturing_ = false; }

 private:
  void enqueue_copy(void* to, const void* from, std::size_t bytes) {
    if (is_on_device(from) || is_pinned(from)) {
      const Pinned* const piece = pinned_at(is_pinned(from) ? from : to);
      const auto copies = piece ? piece->copies : std::make_shared<int>(0);
      ++*copies;
      push([=] {
        std::memcpy(to, from, bytes);
        --*copies;
      });
    } else {
      const auto* const begin = static_cast<const std::byte*>(from);
      push([to, kept = std::vector<std::byte>{begin, begin + bytes}] { std::memcpy(to, kept.data(), kept.size()); });
    }
  }

  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  bool capturing_ = false;
};

class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(int index) : name_{"cuda:" + std::to_string(index)} {}
  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string name() const override { return name_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<SimulatedStream>(); }

 private:
  std::string name_;
};

SimulatedStream& simulated(Stream& stream) {
  return dynamic_cast<SimulatedStream&>(stream);
}

int bound_index = 0;

std::vector<std::string> device_uuids() {
  const char* const text = std::getenv("LOCKSTEP_SIMULATED_GPUS");
  std::istringstream entries{text ? text : "1"};
  std::string entry, next;
  for (int rank = 0; rank <= std::max(log::rank(), 0) && std::getline(entries, next, ','); ++rank) entry = next;
  std::vector<std::string> uuids;
  if (!entry.empty() && std::all_of(entry.begin(), entry.end(), [](char c) { return '0' <= c && c <= '9'; })) {
    for (int gpu = 0; gpu < std::stoi(entry); ++gpu) uuids.push_back("gpu" + std::to_string(gpu));
  } else {
    std::istringstream names{entry};
    while (std::getline(names, next, '+')) uuids.push_back(next);
  }
  return uuids;
}

int device_count() {
  return static_cast<int>(device_uuids().size());
}

std::string why_no_device() {
  return device_count() > 0 ? "" : "LOCKSTEP_SIMULATED_GPUS names none";
}

int device_index() {
  return bound_index;
}

std::unique_ptr<Device> make_device(int index) {
  bound_index = index;
  return std::make_unique<SimulatedDevice>(index);
}

std::uint64_t bytes_of_device() {
  const char* const text = std::getenv("LOCKSTEP_SIMULATED_GPU_BYTES");
  return text ? std::stoull(text) : std::uint64_t{1} << 40;
}

void read_all(void* to, const void* from, std::size_t bytes) {
  run_everything();
  std::memcpy(to, from, bytes);
}

std::unique_ptr<detail::UpdateKernels> make_update_kernels(Stream& stream) {
  return test::make_simulated_update_kernels(stream,
                                             [&own = simulated(stream)](auto work) { own.push(std::move(work)); });
}

std::unique_ptr<ops::Kernels> make_kernels(Stream& stream) {
  return test::make_simulated_kernels(stream, [&own = simulated(stream)](auto work) { own.push(std::move(work)); });
}

void enqueue_convert(const TensorView& from, const TensorView& to, Stream& stream) {
  simulated(stream).push([from = for_host(from), to = for_host(to)] { detail::convert(from, to); });
}

void enqueue_tree_sum(const detail::Pieces& pieces, const detail::SumRule& rule, const TensorView& sum,
                      Stream& stream) {
  const detail::Pieces of_host{for_host(pieces.first), pieces.stride, pieces.count};
  simulated(stream).push(
      [of_host, rule, sum = for_host(sum)] { detail::tree_sum(of_host, rule, sum, Stream::host()); });
}

void enqueue_add(const TensorView& sum, const TensorView& x, Stream& stream) {
  simulated(stream).push([sum = for_host(sum), x = for_host(x)] { detail::add(sum, x, Stream::host()); });
}

void enqueue_divide(const TensorView& view, int divisor, Stream& stream) {
  simulated(stream).push([view = for_host(view), divisor] { detail::divide(view, divisor, Stream::host()); });
}

constexpr detail::GpuKernels kernels{.make_kernels = make_kernels};
constexpr detail::GpuBackend backend{
    .version = LOCKSTEP_VERSION,
    .device_count = device_count,
    .device_uuids = device_uuids,
    .why_no_device = why_no_device,
    .make_device = make_device,
    .device_index = device_index,
    .synchronize_device = run_everything,
    .read_device = read_all,
    .memory_bytes = bytes_of_device,
    .make_nccl_communicator = test::make_simulated_nccl,
    .allow_shared_gpu = test::allow_shared_simulated_gpu,
    .convert = enqueue_convert,
    .tree_sum = enqueue_tree_sum,
    .add = enqueue_add,
    .divide = enqueue_divide,
    .make_update_kernels = make_update_kernels,
    .kernels = &kernels,
};

}  // namespace

const detail::GpuLibrary& detail::gpu_library() {
  static const GpuLibrary simulation{.backend = &backend};
  return simulation;
}

TensorView test::for_host(const TensorView& view) {
  if (view.device() != DeviceKind::cuda)
    throw InvalidArgument{describe(view) + " is in the memory of the host, not of a cuda device"};
  return {view.data(), view.shape(), view.dtype()};
}

test::Capture::Capture(Stream& stream) : stream_{stream} {
  simulated(stream_).begin_capture();
}

test::Capture::~Capture() {
  simulated(stream_).end_capture();
}

}  // namespace lockstep
