// The arithmetic of training, on memory of one device: what nn and optim call, and no one else.
//
// Three implementations stand behind one interface. `reference` is plain loops in f32 and f64 on the host: the
// oracle, and what a build without oneDNN trains with. `oneDNN` does the matrix products, the convolutions and GELU
// of f32 with the library, the rest with the same loops. `cuda` works on the memory of a GPU: products by cuBLASLt in
// full f32 and f64, the rest by kernels of its own; it refuses the families of images and of sequences (ConfigError).
//
// The bits. Every kernel is a function of its operands' values and shapes, and of nothing else: not of the
// rank, of the time, or of where the operands lie in memory. That holds for one build on one instruction set
// with one thread (the default), and for one build on one model of GPU with one version of cuBLASLt. oneDNN
// cuts some products differently for another number of threads, so that number is then one more thing that the
// bits depend on. And the shape is part of the operands: a row of a library's product may have other bits where
// the product has another number of rows, for oneDNN mostly below 16. The reference's has the same among any
// number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/ops/activation.hpp>
#include <lockstep/ops/image_kernels.hpp>
#include <lockstep/ops/sequence_kernels.hpp>
#include <lockstep/ops/update_kernels.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::ops {

/// Whether an operand of a product is read as it lies, or by columns.
enum class Transpose : std::uint8_t { no, yes };

/// Of a product: a [k, m] and b [k, n].
struct Factors {
  TensorView a;
  TensorView b;
};

/// What a batch's loss adds up from: sums, not means, because batches are cut into shards of unequal size.
struct CrossEntropy {
  double loss_sum = 0;
  std::int64_t correct = 0;
};

/// All views are of one dtype, f32 or f64 (labels: i32), row-major and in memory of the kernels' device. A GPU's
/// kernels are enqueued on the stream that they were made for and do not block the host, but for what returns a
/// value, and for the first `linear` of a shape. InvalidArgument for anything else and for shapes that do not fit,
/// before anything is written; the message names the operation and both operands. "Overwritten": the old content is not
/// read. Unless a comment allows it, the memory of a written operand must not overlap that of another operand: that,
/// too, is an InvalidArgument. Extents of zero are valid.
///
/// NaN and infinity are never hidden: they flow through every kernel to the loss.
///
/// Not synchronised, but without state that a caller could see: threads may call kernels on disjoint operands
/// at the same time.
///
/// All of this holds for the families that it takes in, too. They are virtual bases, so that a backend may take its
/// answers to a family from a class of its own.
class Kernels : public virtual UpdateKernels, public virtual ImageKernels, public virtual SequenceKernels {
 public:
  /// "reference", "oneDNN" or "cuda".
  virtual std::string_view name() const = 0;

  /// What the bits of a product depend on besides its operands: library, version, instruction set or GPU, threads.
  /// Ranks with different fingerprints may compute different bits; equal ones promise nothing about the C
  /// library.
  virtual std::string fingerprint() const = 0;

  /// c = op(a) · op(b). a, b and c are of two dimensions; op transposes where asked. c is overwritten. The
  /// reference adds the terms of each element in ascending order, whatever the shapes: a row of c has the
  /// same bits among any number of rows.
  virtual void matmul(const TensorView& a, Transpose transpose_a, const TensorView& b, Transpose transpose_b,
                      const TensorView& c) const = 0;

  /// c = the sum of transposed a · b over `factors`, one or more of any number of rows each: the gradient of a weight
  /// from several shards. c is overwritten. The reference has the bits of a `matmul` for each, added up as
  /// fixed_order_sum does. A library may add a product while it computes it, and so round otherwise: whoever needs
  /// those bits tries it out on the shapes in use (DenseTrial).
  virtual void sum_of_products(std::span<const Factors> factors, const TensorView& c) const = 0;

  /// y = activation(x · weight + bias) for rows x [n, inputs], weight [inputs, outputs], bias [outputs] and y
  /// [n, outputs], which is overwritten. On the host these are the bits of matmul, add_bias and relu; a GPU may do all
  /// three at once, with other roundings of the product.
  virtual void linear(const TensorView& x, const TensorView& weight, const TensorView& bias, Activation activation,
                      const TensorView& y) const = 0;

  /// Adds bias [columns] to each row of rows [n, columns], in place.
  virtual void add_bias(const TensorView& rows, const TensorView& bias) const = 0;

  /// out [columns] = the sum over the rows of rows [n, columns], first row first, starting from zero: the
  /// gradient of a bias. out is overwritten.
  virtual void sum_rows(const TensorView& rows, const TensorView& out) const = 0;

  /// y = max(x, 0), and NaN where x is NaN. Same shape; y may be x.
  virtual void relu(const TensorView& x, const TensorView& y) const = 0;

  /// dx = dy where y, the result of relu, is positive or NaN; 0 elsewhere. Same shape; dx may be y or dy.
  virtual void relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const = 0;

  /// Softmax and cross-entropy of logits [rows, classes] against labels i32 [rows]. Only the first `samples`
  /// rows count, which may be none; the rows (and labels) behind them are padding and are not read.
  ///
  /// `correct` counts the rows whose largest logit is the label's; of equal logits the lowest class wins.
  /// Losses are added up in double, in the order of the rows. A counted row with a NaN or +infinity, or with
  /// -infinity at its label, makes the loss non-finite (-infinity elsewhere is a class of probability zero),
  /// and a row whose loss is NaN is not correct. InvalidArgument for a counted label outside [0, classes).
  ///
  /// This one writes the gradient of the *sum* of the losses to d_logits [rows, classes]: softmax minus
  /// one-hot in the rows that count, zero in the others. d_logits may be logits.
  virtual CrossEntropy softmax_cross_entropy(const TensorView& logits, const TensorView& labels, std::int64_t samples,
                                             const TensorView& d_logits) const = 0;

  /// The same without a gradient, for evaluation: the same bits in the result.
  virtual CrossEntropy softmax_cross_entropy(const TensorView& logits, const TensorView& labels,
                                             std::int64_t samples) const = 0;

  /// sum += x, element by element. Same shape.
  virtual void add(const TensorView& sum, const TensorView& x) const = 0;
};

enum class KernelChoice : std::uint8_t { automatic, reference, onednn, cuda };

/// "auto", "reference", "onednn" or "cuda"; ConfigError that lists them for anything else.
KernelChoice parse_kernel_choice(std::string_view name);

/// How many threads a kernel may run on: at least one. It holds whichever thread calls, and OMP_NUM_THREADS
/// has no say. The reference kernels use one in any case, and a GPU none.
struct Threads {
  int count = 1;
};

/// For memory of the stream's device; `stream` must outlive the result. `automatic` is cuda on a GPU's stream, and
/// oneDNN where it was built in, the reference otherwise, on the host's. ConfigError for a choice that the
/// build or the stream's device does not have, InvalidArgument for less than one thread.
std::unique_ptr<Kernels> make_kernels(KernelChoice choice, Threads threads = {}, Stream& stream = host_stream());

}  // namespace lockstep::ops
