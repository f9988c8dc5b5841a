// The image kernels as plain loops.
#pragma once

#include "models/ops/image_kernels.hpp"

namespace lockstep::ops {

class ReferenceImageKernels : public ImageKernels {
 public:
  void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                   Kernels::Activation activation, const TensorView& y) const override;
  void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                             const TensorView& d_bias) const override;
  void convolution_input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) const override;
  void max_pool(const TensorView& x, const TensorView& y) const override;
  void max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override;
  void channel_means(const TensorView& x, const TensorView& sum) const override;
  void channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                         const TensorView& sum) const override;
  void batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma, const TensorView& beta,
                  const TensorView& y) const override;
  void batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                            const TensorView& d_gamma, const TensorView& d_beta) const override;
  void batch_norm_input_gradient(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                 const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta,
                                 const TensorView& dx) const override;
  void moving_average(const TensorView& average, const TensorView& sum, double divisor, double momentum) const override;
  void dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                    const TensorView& mask) const override;
  void multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const override;
};

}  // namespace lockstep::ops
