// The device of a strategy as LibTorch knows it, and the seam to LibTorch's CUDA, which Meson chooses, or a test.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::libtorch {

/// On a GPU, torch computes on a stream of its own, the current one of the calling thread. This orders torch's work and
/// that of the strategy's stream without blocking the host. On the CPU there is nothing to order.
class TorchDevice {
 public:
  /// `stream` must outlive it.
  explicit TorchDevice(Stream& stream) : stream_{stream} {}
  virtual ~TorchDevice() = default;

  /// Where torch has the memory of the strategy's stream.
  virtual at::Device device() const = 0;

  /// Work that is enqueued on the strategy's stream from here on starts after the work that torch has enqueued.
  virtual void stream_follows() = 0;

  /// Work that torch enqueues from here on starts after the work on the strategy's stream.
  virtual void torch_follows() = 0;

  /// Calls `enqueue`, whose work on the strategy's stream comes after torch's work so far, and before its later work.
  template <class Enqueue>
  void on_stream(Enqueue&& enqueue) {
    stream_follows();
    enqueue();
    torch_follows();
  }

  /// A copy of `tensor` on the host, or `tensor` itself if it is there. Blocks the host until torch has computed it. In
  /// place of torch's own ways to read a GPU: those wait without a limit, and nobody sees for what.
  at::Tensor on_host(const at::Tensor& tensor);

  /// The only element of `tensor`, likewise.
  template <class T>
  T number(const at::Tensor& tensor) {
    return on_host(tensor).item<T>();
  }

 protected:
  Stream& stream() const { return stream_; }

 private:
  Stream& stream_;
};

/// For the device of `stream`, which must outlive the result. InvalidArgument for a GPU if LibTorch is one without
/// CUDA.
std::unique_ptr<TorchDevice> make_torch_device(Stream& stream);

/// The same for a GPU's stream.
std::unique_ptr<TorchDevice> make_torch_gpu(Stream& stream);

}  // namespace lockstep::libtorch
