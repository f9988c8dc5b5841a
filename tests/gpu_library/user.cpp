// A user's program: it links liblockstep.so, asks for a GPU by a public function, and catches what comes back. It knows
// DLPack's structures, and nothing else that is private.
#include <cstdint>
#include <cstdio>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/tensor/dlpack_abi.hpp"
#include "gpu_library/copies.hpp"

int main() {
  float number = 0;
  std::int64_t extent = 1;
  DLManagedTensor managed{.tensor = {.data = &number,
                                     .device = {lockstep::dlpack::cuda, 0},
                                     .rank = 1,
                                     .type = {lockstep::dlpack::floating_point, 32, 1},
                                     .shape = &extent,
                                     .strides = nullptr,
                                     .byte_offset = 0},
                          .context = nullptr,
                          .deleter = nullptr};
  try {
    (void)lockstep::Tensor::from_dlpack(&managed);
    std::puts("done");
  } catch (const lockstep::DeviceError& error) {
    std::puts(error.what());
  }
  std::printf("copies of liblockstep.so: %d\n", lockstep::test::loaded_libraries());
}
