// Image kernels of a GPU. There are none yet, so each refuses.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/ops/image_kernels.hpp>

namespace lockstep::ops::cuda {

class NoImageKernels : public virtual ImageKernels {
 public:
  bool has_image_kernels() const override { return false; }
  void convolution(const TensorView&, const TensorView&, const TensorView&, Activation,
                   const TensorView&) const override {
    refuse("convolution");
  }
  void convolution_gradients(const TensorView&, const TensorView&, const TensorView&,
                             const TensorView&) const override {
    refuse("convolution_gradients");
  }
  void convolution_input_gradient(const TensorView&, const TensorView&, const TensorView&) const override {
    refuse("convolution_input_gradient");
  }
  void max_pool(const TensorView&, const TensorView&) const override { refuse("max_pool"); }
  void max_pool_gradient(const TensorView&, const TensorView&, const TensorView&) const override {
    refuse("max_pool_gradient");
  }
  void channel_means(const TensorView&, const TensorView&) const override { refuse("channel_means"); }
  void channel_variances(const TensorView&, const TensorView&, std::int64_t, const TensorView&) const override {
    refuse("channel_variances");
  }
  void batch_norm(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                  const TensorView&) const override {
    refuse("batch_norm");
  }
  void batch_norm_gradients(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                            const TensorView&) const override {
    refuse("batch_norm_gradients");
  }
  void batch_norm_input_gradient(const TensorView&, const Normalisation&, const TensorView&, const TensorView&,
                                 const TensorView&, const TensorView&, const TensorView&) const override {
    refuse("batch_norm_input_gradient");
  }
  void moving_average(const TensorView&, const TensorView&, double, double) const override { refuse("moving_average"); }
  void dropout_mask(const RandomStream&, std::uint64_t, double, const TensorView&) const override {
    refuse("dropout_mask");
  }
  void multiply(const TensorView&, const TensorView&, const TensorView&) const override { refuse("multiply"); }

 private:
  [[noreturn]] static void refuse(std::string_view operation) {
    throw ConfigError{fmt::format("{}: a GPU has no kernels for images: expected the CPU's", operation)};
  }
};

}  // namespace lockstep::ops::cuda
