// What a program is told that asks for a GPU, a line for each question.
#include <cstdio>
#include <string>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "gpu_library/copies.hpp"
#include "support/forwarding_stream.hpp"
#include "sync/reduce/arithmetic.hpp"

using namespace lockstep;

namespace {

class GpuStream final : public test::ForwardingStream {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
};

template <class Question>
void ask(const char* name, Question question) {
  try {
    question();
    std::printf("%s: done\n", name);
  } catch (const DeviceError& error) {
    std::printf("%s: %s\n", name, error.what());
  }
}

}  // namespace

int main() {
  std::string uuids;
  for (const std::string& uuid : cuda_device_uuids()) uuids += " " + uuid;
  std::printf("count: %d\nuuids:%s\nwhy none: %s\n", cuda_device_count(), uuids.c_str(),
              detail::why_no_cuda_device().c_str());
  GpuStream stream;
  const auto device = make_host_device();
  const auto alone = make_local_communicator();
  const Tensor one = Tensor::scalar(1.f);
  float number = 0;
  ask("device", [] { make_cuda_device(1); });
  ask("index", [] { detail::cuda_device_index(); });
  ask("synchronize", [] { synchronize_device(DeviceKind::cuda); });
  ask("read", [&] { read_device(DeviceKind::cuda, &number, &number, sizeof(number)); });
  ask("bytes", [] { memory_bytes(DeviceKind::cuda); });
  ask("nccl", [&] { make_nccl_communicator(*alone, *device, stream); });
  ask("share", [] { allow_shared_gpu(); });
  ask("sum", [&] { detail::tree_sum(detail::Pieces{one.view(), 1, 1}, {}, one.view(), stream); });
  ask("add", [&] { detail::add(one.view(), one.view(), stream); });
  ask("divide", [&] { detail::divide(one.view(), 2, stream); });
  ask("kernels", [&] { ops::make_kernels(ops::Kernels::Choice::automatic, {}, stream); });
  std::printf("other copies of the layers: %d\n", test::loaded_libraries());
}
