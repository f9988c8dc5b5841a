#include "apps/lockstep-bench/memory.hpp"

#include <memory>
#include <utility>

#include "core/base/element_type.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/tensor/inside.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {

Memory::Memory(Runtime& runtime) : strategy_{runtime.strategy()}, stream_{strategy_.stream()} {}

Tensor Memory::allocate(DType dtype, std::int64_t count) {
  return Tensor::zeros(dtype, {count}, stream_);
}

Tensor Memory::allocate_for_gradients(DType dtype, std::int64_t count) {
  SharedAllocation shared =
      inside(strategy_).reductions().allocate_shared(static_cast<std::size_t>(count) * size_of(dtype));
  if (!shared.memory.data()) return allocate(dtype, count);
  const TensorView view{shared.memory.data(), {count}, dtype};
  return tensor_in(std::make_shared<const Buffer>(std::move(shared.memory)), view);
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
