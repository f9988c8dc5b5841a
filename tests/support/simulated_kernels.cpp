#include "support/simulated_kernels.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"
#include "models/ops/answer.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/image_kernels.hpp"
#include "models/ops/product_tree.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "support/simulated_gpu.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

using test::for_host;

/// Does on the host, when the stream gets there, what `Host` has.
template <class Host>
class OnHost {
 protected:
  OnHost(Stream& stream, test::Enqueue enqueue, std::shared_ptr<const Host> host)
      : host_{std::move(host)}, stream_{stream}, enqueue_{std::move(enqueue)} {}

  template <class Work>
  void enqueue(Work work) const {
    enqueue_([host = host_, work = std::move(work)] { work(*host); });
  }

  /// What `work` returns or throws is the answer.
  template <class Work, class Told = std::invoke_result_t<Work, const Host&>>
  ops::Answer<Told> ask(Work work) const {
    const auto task = std::make_shared<std::packaged_task<Told(const Host&)>>(std::move(work));
    const std::shared_future<Told> told = task->get_future().share();
    enqueue([task](const Host& host) { (*task)(host); });
    return {stream_, [told] { return told.get(); }};
  }

  std::shared_ptr<const Host> host_;
  Stream& stream_;

 private:
  test::Enqueue enqueue_;
};

class SimulatedUpdateKernels final : public detail::UpdateKernels, private OnHost<detail::UpdateKernels> {
 public:
  SimulatedUpdateKernels(Stream& stream, test::Enqueue enqueue)
      : OnHost{stream, std::move(enqueue), detail::make_update_kernels(detail::Functions::portable, Stream::host())} {}

  void sgd(const TensorView& values, const TensorView& gradient, const detail::UpdateStep& step) const override {
    enqueue([=, values = for_host(values), gradient = for_host(gradient)](const UpdateKernels& host) {
      host.sgd(values, gradient, step);
    });
  }
  void momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                const detail::UpdateStep& step, double momentum) const override {
    enqueue([=, values = for_host(values), gradient = for_host(gradient), velocity = for_host(velocity)](
                const UpdateKernels& host) { host.momentum(values, gradient, velocity, step, momentum); });
  }
  void adamw(const TensorView& values, const TensorView& gradient, const TensorView& first, const TensorView& second,
             const detail::UpdateStep& step, const detail::AdamWMoments& moments) const override {
    enqueue([=, values = for_host(values), gradient = for_host(gradient), first = for_host(first),
             second = for_host(second)](const UpdateKernels& host) {
      host.adamw(values, gradient, first, second, step, moments);
    });
  }
  detail::Answer<double> start_sum_of_squares(std::span<const TensorView> parts) const override {
    std::vector<TensorView> on_host;
    for (const TensorView& part : parts) on_host.push_back(for_host(part));
    return ask([on_host](const UpdateKernels& host) { return host.sum_of_squares(on_host); });
  }
  void block_squares(const TensorView& part, const TensorView& sums) const override {
    enqueue(
        [part = for_host(part), sums = for_host(sums)](const UpdateKernels& host) { host.block_squares(part, sums); });
  }
};

class SimulatedKernels final : public ops::Kernels,
                               private OnHost<ops::Kernels>,
                               private ops::ImageKernels,
                               private ops::SequenceKernels {
 public:
  SimulatedKernels(Stream& stream, test::Enqueue enqueue)
      : OnHost{stream, std::move(enqueue), ops::make_kernels(ops::Kernels::Choice::reference)} {}

  const ops::ImageKernels& image() const override { return *this; }
  const ops::SequenceKernels& sequence() const override { return *this; }

  std::string_view name() const override { return "simulated"; }
  std::string fingerprint() const override { return "simulated"; }
  bool is_portable() const override { return host_->is_portable(); }

  void convert(const TensorView& x, const TensorView& y) const override {
    enqueue([x = for_host(x), y = for_host(y)](const Kernels& host) { host.convert(x, y); });
  }

  void matmul(const Matrix& a, ops::Kernels::Transpose transpose_a, const Matrix& b,
              ops::Kernels::Transpose transpose_b, const Matrix& c) const override {
    enqueue([=, a = on_host(a), b = on_host(b), c = on_host(c)](const Kernels& host) {
      host.matmul(a, transpose_a, b, transpose_b, c);
    });
  }
  std::int64_t row_stride(std::int64_t columns) const override { return columns + 8; }
  void sum_of_products(std::span<const ops::Kernels::Factors> factors, const TensorView& c) const override {
    // An onlooker is shown memory of the GPU's, before it is computed.
    if (std::ranges::any_of(factors, [](const Factors& each) { return each.on_product != nullptr; }))
      return ops::sum_of_whole_products(*this, factors, c, stream_);
    std::vector<ops::Kernels::Factors> on_host;
    for (const ops::Kernels::Factors& each : factors) on_host.push_back({for_host(each.a), for_host(each.b)});
    enqueue([on_host, c = for_host(c)](const Kernels& host) { host.sum_of_products(on_host, c); });
  }
  void linear(const TensorView& x, const TensorView& weight, const TensorView& bias,
              ops::Kernels::Activation activation, const TensorView& y) const override {
    enqueue([=, x = for_host(x), weight = for_host(weight), bias = for_host(bias),
             y = for_host(y)](const Kernels& host) { host.linear(x, weight, bias, activation, y); });
  }
  void add_bias(const TensorView& rows, const TensorView& bias) const override {
    enqueue([rows = for_host(rows), bias = for_host(bias)](const Kernels& host) { host.add_bias(rows, bias); });
  }
  void sum_rows(const TensorView& rows, const TensorView& out) const override {
    enqueue([rows = for_host(rows), out = for_host(out)](const Kernels& host) { host.sum_rows(rows, out); });
  }
  void relu(const TensorView& x, const TensorView& y) const override {
    enqueue([x = for_host(x), y = for_host(y)](const Kernels& host) { host.relu(x, y); });
  }
  void relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const override {
    enqueue([y = for_host(y), dy = for_host(dy), dx = for_host(dx)](const Kernels& host) {
      host.relu_gradient(y, dy, dx);
    });
  }
  ops::Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                     std::int64_t samples, const Matrix& d_logits) const override {
    return ask([=, logits = on_host(logits), labels = for_host(labels), d_logits = on_host(d_logits)](
                   const Kernels& host) { return host.softmax_cross_entropy(logits, labels, samples, d_logits); });
  }
  ops::Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                     std::int64_t samples) const override {
    return ask([=, logits = on_host(logits), labels = for_host(labels)](const Kernels& host) {
      return host.softmax_cross_entropy(logits, labels, samples);
    });
  }
  void add(const TensorView& sum, const TensorView& x) const override {
    enqueue([sum = for_host(sum), x = for_host(x)](const Kernels& host) { host.add(sum, x); });
  }
  void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                   ops::Kernels::Activation activation, const TensorView& y) const override {
    enqueue([=, x = for_host(x), weight = for_host(weight), bias = for_host(bias),
             y = for_host(y)](const Kernels& host) { host.image().convolution(x, weight, bias, activation, y); });
  }
  void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                             const TensorView& d_bias) const override {
    enqueue([x = for_host(x), dy = for_host(dy), d_weight = for_host(d_weight), d_bias = for_host(d_bias)](
                const Kernels& host) { host.image().convolution_gradients(x, dy, d_weight, d_bias); });
  }
  void convolution_input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) const override {
    enqueue([dy = for_host(dy), weight = for_host(weight), dx = for_host(dx)](const Kernels& host) {
      host.image().convolution_input_gradient(dy, weight, dx);
    });
  }
  void max_pool(const TensorView& x, const TensorView& y) const override {
    enqueue([x = for_host(x), y = for_host(y)](const Kernels& host) { host.image().max_pool(x, y); });
  }
  void max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override {
    enqueue([x = for_host(x), dy = for_host(dy), dx = for_host(dx)](const Kernels& host) {
      host.image().max_pool_gradient(x, dy, dx);
    });
  }
  void channel_means(const TensorView& x, const TensorView& sum) const override {
    enqueue([x = for_host(x), sum = for_host(sum)](const Kernels& host) { host.image().channel_means(x, sum); });
  }
  void channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                         const TensorView& sum) const override {
    enqueue([=, x = for_host(x), means = for_host(means), sum = for_host(sum)](const Kernels& host) {
      host.image().channel_variances(x, means, samples, sum);
    });
  }
  void batch_norm(const TensorView& x, const ops::Normalisation& by, const TensorView& gamma, const TensorView& beta,
                  const TensorView& y) const override {
    enqueue([x = for_host(x), by = on_host(by), gamma = for_host(gamma), beta = for_host(beta),
             y = for_host(y)](const Kernels& host) { host.image().batch_norm(x, by, gamma, beta, y); });
  }
  void batch_norm_gradients(const TensorView& x, const ops::Normalisation& by, const TensorView& dy,
                            const TensorView& d_gamma, const TensorView& d_beta) const override {
    enqueue([x = for_host(x), by = on_host(by), dy = for_host(dy), d_gamma = for_host(d_gamma),
             d_beta = for_host(d_beta)](const Kernels& host) {
      host.image().batch_norm_gradients(x, by, dy, d_gamma, d_beta);
    });
  }
  void batch_norm_input_gradient(const TensorView& x, const ops::Normalisation& by, const TensorView& gamma,
                                 const TensorView& dy, const TensorView& d_gamma, const TensorView& d_beta,
                                 const TensorView& dx) const override {
    enqueue([x = for_host(x), by = on_host(by), gamma = for_host(gamma), dy = for_host(dy), d_gamma = for_host(d_gamma),
             d_beta = for_host(d_beta), dx = for_host(dx)](const Kernels& host) {
      host.image().batch_norm_input_gradient(x, by, gamma, dy, d_gamma, d_beta, dx);
    });
  }
  void moving_average(const TensorView& average, const TensorView& sum, double divisor,
                      double momentum) const override {
    enqueue([=, average = for_host(average), sum = for_host(sum)](const Kernels& host) {
      host.image().moving_average(average, sum, divisor, momentum);
    });
  }
  void dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                    const TensorView& mask) const override {
    enqueue([=, mask = for_host(mask)](const Kernels& host) { host.image().dropout_mask(random, first, rate, mask); });
  }
  void multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const override {
    enqueue([x = for_host(x), factors = for_host(factors), y = for_host(y)](const Kernels& host) {
      host.image().multiply(x, factors, y);
    });
  }

  ops::Answer<void> gather_rows(const TensorView& table, const TensorView& indices,
                                const TensorView& rows) const override {
    return ask([table = for_host(table), indices = for_host(indices), rows = for_host(rows)](const Kernels& host) {
      host.sequence().gather_rows(table, indices, rows).read();
    });
  }
  void scatter_add_rows(const TensorView& rows, const TensorView& indices, const TensorView& table) const override {
    enqueue([rows = for_host(rows), indices = for_host(indices), table = for_host(table)](const Kernels& host) {
      try {
        host.sequence().scatter_add_rows(rows, indices, table);
      } catch (const InvalidArgument&) {
        // A GPU adds nothing for a bad index, of which gather_rows has told.
      }
    });
  }
  void layer_norm(const ops::LayerNorm& of) const override {
    enqueue(
        [on_host = ops::LayerNorm{for_host(of.x), for_host(of.gain), for_host(of.bias), of.epsilon, for_host(of.y),
                                  for_host(of.moments)}](const Kernels& host) { host.sequence().layer_norm(on_host); });
  }
  void layer_norm_gradient(const ops::LayerNormGradient& of) const override {
    enqueue([on_host = ops::LayerNormGradient{for_host(of.x), for_host(of.gain), for_host(of.moments), for_host(of.dy),
                                              for_host(of.dx), for_host(of.d_gain), for_host(of.d_bias)}](
                const Kernels& host) { host.sequence().layer_norm_gradient(on_host); });
  }
  void gelu(const TensorView& x, const TensorView& y) const override {
    enqueue([x = for_host(x), y = for_host(y)](const Kernels& host) { host.sequence().gelu(x, y); });
  }
  void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override {
    enqueue([x = for_host(x), dy = for_host(dy), dx = for_host(dx)](const Kernels& host) {
      host.sequence().gelu_gradient(x, dy, dx);
    });
  }
  ops::KeptScores kept_scores() const override { return host_->sequence().kept_scores(); }
  void causal_attention(const ops::CausalAttention& of) const override {
    enqueue([on_host = ops::CausalAttention{for_host(of.qkv), for_host(of.kept), for_host(of.y)}](const Kernels& host) {
      host.sequence().causal_attention(on_host);
    });
  }
  void causal_attention_gradient(const ops::CausalAttentionGradient& of) const override {
    enqueue([on_host = ops::CausalAttentionGradient{for_host(of.qkv), for_host(of.kept), for_host(of.dy),
                                                    for_host(of.d_qkv), for_host(of.scratch)}](const Kernels& host) {
      host.sequence().causal_attention_gradient(on_host);
    });
  }

 private:
  static Matrix on_host(const Matrix& matrix) { return {for_host(matrix.view), matrix.columns}; }
  static ops::Normalisation on_host(const ops::Normalisation& by) {
    return {for_host(by.mean), for_host(by.variance), by.samples, by.epsilon};
  }
};

}  // namespace

std::unique_ptr<ops::Kernels> test::make_simulated_kernels(Stream& stream, Enqueue enqueue) {
  return std::make_unique<SimulatedKernels>(stream, std::move(enqueue));
}

std::unique_ptr<detail::UpdateKernels> test::make_simulated_update_kernels(Stream& stream, Enqueue enqueue) {
  return std::make_unique<SimulatedUpdateKernels>(stream, std::move(enqueue));
}

}  // namespace lockstep
