// The image kernels of a GPU: there are none yet.
#pragma once

#include <lockstep/base/error.hpp>
#include <lockstep/ops/image_kernels.hpp>

namespace lockstep::ops {

class NoImageKernels : public virtual ImageKernels {
 public:
  bool has_image_kernels() const override { return false; }
  void convolution(const TensorView&, const TensorView&, const TensorView&, Activation,
                   const TensorView&) const override {
    refuse();
  }
  void convolution_gradients(const TensorView&, const TensorView&, const TensorView&,
                             const TensorView&) const override {
    refuse();
  }
  void convolution_input_gradient(const TensorView&, const TensorView&, const TensorView&) const override { refuse(); }
  void max_pool(const TensorView&, const TensorView&) const override { refuse(); }
  void max_pool_gradient(const TensorView&, const TensorView&, const TensorView&) const override { refuse(); }
  void channel_means(const TensorView&, const TensorView&) const override { refuse(); }
  void channel_variances(const TensorView&, const TensorView&, std::int64_t, const TensorView&) const override {
    refuse();
  }
  void batch_norm(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                  const TensorView&) const override {
    refuse();
  }
  void batch_norm_gradients(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                            const TensorView&) const override {
    refuse();
  }
  void batch_norm_input_gradient(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                                 const TensorView&, const TensorView&, const TensorView&) const override {
    refuse();
  }
  void moving_average(const TensorView&, const TensorView&, double, double) const override { refuse(); }
  void dropout_mask(const RandomStream&, std::uint64_t, double, const TensorView&) const override { refuse(); }
  void multiply(const TensorView&, const TensorView&, const TensorView&) const override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw ConfigError{"the kernels of a GPU have no convolutions, batch normalisation or dropout: expected the CPU's"};
  }
};

}  // namespace lockstep::ops
