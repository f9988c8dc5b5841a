// NCCL that is not there, among simulated GPUs (simulated_gpu.cpp): the collectives of the host.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/device/stream.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "support/simulated_gpu.hpp"

namespace lockstep {
namespace {

using test::for_host;

/// Whether allow_shared_gpu was called in this process.
bool may_share = false;

/// COLL. Which GPU each rank has, as a digest of its UUID.
std::vector<std::uint64_t> gather_gpus(Communicator& host, const Device& device) {
  const auto ranks = static_cast<std::size_t>(host.size());
  const auto index = static_cast<std::size_t>(std::stoi(device.name().substr(std::string{"cuda:"}.size())));
  std::vector<std::uint64_t> gpus(ranks);
  gpus[static_cast<std::size_t>(host.rank())] = std::hash<std::string>{}(cuda_device_uuids().at(index));
  std::vector<std::int64_t> bounds(ranks + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  host.all_gather({reinterpret_cast<std::byte*>(gpus.data()), {host.size()}, DType::i64}, bounds).wait();
  return gpus;
}

bool has_duplicates(const std::vector<std::uint64_t>& values) {
  return std::set<std::uint64_t>{values.begin(), values.end()}.size() < values.size();
}

/// The host's collectives, after the work that they wait for.
class SimulatedNccl final : public Communicator {
 public:
  SimulatedNccl(Communicator& host, Stream& compute) : host_{host}, compute_{compute} {}

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::string_view backend() const override { return "simulated nccl"; }
  Stream& stream() override { return compute_; }
  Buffer allocate(std::size_t bytes) override { return inside(compute_).allocate(bytes); }

  Work broadcast(const TensorView& tensor, int root) override {
    compute_.synchronize();
    return host_.broadcast(for_host(tensor), root);
  }
  Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) override {
    compute_.synchronize();
    return host_.all_to_all(for_host(mine), bounds, for_host(received));
  }
  Work all_gather(const TensorView& whole, SliceBounds bounds) override {
    compute_.synchronize();
    return host_.all_gather(for_host(whole), bounds);
  }
  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    compute_.synchronize();
    return host_.gather(for_host(whole), bounds, root);
  }
  Work all_reduce(const TensorView& tensor) override {
    return sum(tensor, [&](const TensorView& numbers) { return host_.all_reduce(numbers); });
  }
  Work reduce(const TensorView& tensor, int root) override {
    return sum(tensor, [&](const TensorView& numbers) { return host_.reduce(numbers, root); });
  }
  void abort() noexcept override {}

 private:
  /// NCCL adds up 16-bit floats, which the host's backends do not.
  template <class Collective>
  Work sum(const TensorView& tensor, Collective&& collective) {
    compute_.synchronize();
    switch (tensor.dtype()) {
      case DType::f16: return sum_wide(for_host(tensor).elements<Half>(), collective);
      case DType::bf16: return sum_wide(for_host(tensor).elements<BFloat16>(), collective);
      case DType::f32:
      case DType::f64:
      case DType::i32:
      case DType::i64:
      case DType::u8: break;
    }
    return collective(for_host(tensor));
  }
  template <class T, class Collective>
  Work sum_wide(std::span<T> numbers, Collective&& collective) {
    const Tensor wide =
        Tensor::from(std::vector<float>{numbers.begin(), numbers.end()}, {static_cast<std::int64_t>(numbers.size())});
    collective(wide.view()).wait();
    const auto sums = wide.view().elements<float>();
    std::transform(sums.begin(), sums.end(), numbers.begin(), [](float x) { return T{x}; });
    return Work::done();
  }

  Communicator& host_;
  Stream& compute_;
};

}  // namespace

std::unique_ptr<Communicator> test::make_simulated_nccl(Communicator& host, Device& device, Stream& compute,
                                                        NcclOptions) {
  if (host.size() == 1) throw CommError{"NCCL was started for a rank that is alone"};
  if (!may_share && has_duplicates(gather_gpus(host, device)))
    throw CommError{"Duplicate GPU detected: ranks share one that were not told to in time"};
  return std::make_unique<SimulatedNccl>(host, compute);
}

void test::allow_shared_simulated_gpu() {
  // A thread that reads the environment meanwhile would read what setenv writes.
  const auto threads =
      std::distance(std::filesystem::directory_iterator{"/proc/self/task"}, std::filesystem::directory_iterator{});
  if (threads != 1) throw CommError{"the environment is set where " + std::to_string(threads) + " threads run"};
  may_share = true;
}

}  // namespace lockstep
