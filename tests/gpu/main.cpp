// Catch2's main for tests on a GPU.
#include <cstdio>

#include "core/device/devices.hpp"
#include "gpu_support.hpp"
#include "support/run_tests.hpp"

namespace lockstep::test {
namespace {

Gpu* current = nullptr;

}  // namespace

Gpu& gpu() {
  return *current;
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
  using namespace lockstep;
  if (cuda_device_count() == 0) {
    std::puts("skipped: no GPU was found, or no driver for it");
    return 77;
  }
  const auto device = make_cuda_device(0);
  const auto stream = device->make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *stream);
  const auto reference = ops::make_kernels(ops::Kernels::Choice::reference);
  const auto update = detail::make_update_kernels(detail::Functions::of_library, *stream);
  const auto update_reference = detail::make_update_kernels(detail::Functions::portable, Stream::host());
  test::Gpu gpu{.device = *device,
                .stream = *stream,
                .kernels = *kernels,
                .reference = *reference,
                .update = *update,
                .update_reference = *update_reference};
  test::current = &gpu;
  return test::run_tests(argc, argv);
}
