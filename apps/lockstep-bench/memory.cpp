#include "apps/lockstep-bench/memory.hpp"

namespace lockstep::bench {

Memory::Memory(Runtime& runtime) : stream_{runtime.strategy().stream()} {}

Tensor Memory::allocate(DType dtype, std::int64_t count) {
  return Tensor::zeros(dtype, {count}, stream_);
}

void Memory::write(const TensorView& host, const TensorView& here) {
  copy(host, here, stream_);
  stream_.synchronize();
}

void Memory::read(const TensorView& here, const TensorView& host) {
  copy(here, host, stream_);
  stream_.synchronize();
}

void Memory::wait() {
  stream_.synchronize();
}

}  // namespace lockstep::bench
