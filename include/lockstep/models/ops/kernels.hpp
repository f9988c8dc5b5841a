// The arithmetic of training, on memory of one device. Only nn and optim call it.
//
// Three implementations share one interface. `reference` is plain loops in f32 and f64 on the host. It is the oracle,
// and what a build without oneDNN trains with. `oneDNN` computes matrix products, convolutions and GELU with the
// library, in f32 and, where the processor has instructions for it, in bf16; the rest with the same loops. `cuda` works
// on GPU memory: products by cuBLASLt, those of f32 and f64 in full precision, the rest by its own kernels.
//
// The bits. Every kernel is a function of its operands' values and shapes alone. The rank, the time and the operands'
// place in memory do not matter. This holds for one build on one instruction set with one thread (the default), and for
// one build on one model of GPU with one version of cuBLASLt. oneDNN cuts some products differently for another number
// of threads, so the bits depend on that number too. They also depend on the shape: a row of a library's product may
// have different bits if the product has another number of rows, for oneDNN mostly below 16. A row of the reference's
// has the same bits among any number of rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::detail {
/// What a kernel tells the host.
template <class T>
class Answer;
}  // namespace lockstep::detail

namespace lockstep::ops {

// The kernels that only the models and optimizers of this library call.
class ImageKernels;
class SequenceKernels;

/// All views have one dtype, f32 or f64 (labels: i32), are row-major, and lie in memory of the kernels' device. A GPU's
/// kernels are enqueued on the stream that they were made for. They do not block the host, except those that return a
/// value and the first `linear` of a shape. A call that returns an Answer does not block either: the Answer is known
/// later. InvalidArgument for other views, and for shapes that do not fit, before anything is written; the message
/// names the operation and both operands. "Overwritten" means that the old content is not read. The memory of a written
/// operand must not overlap that of another operand unless a comment allows it; that, too, is an InvalidArgument.
/// Extents of zero are valid.
///
/// NaN and infinity are never hidden: they flow through every kernel to the loss.
///
/// Kernels have no state that a caller could see, so threads may call them on disjoint operands at the same time.
///
/// Mixed precision. The operands that make up activations, their gradients and the weights of products may be bf16.
/// Then biases, gains, statistics, masks, and the sums that are gradients of weights and biases are f32 (labels: i32),
/// and so may the results of `matmul` and `linear` be. The result is what the same kernel makes of the operands as f32,
/// rounded once to nearest even, except that a library may add up the terms of a product in another order and compute
/// GELU with other roundings. Probabilities of attention are rounded before they are multiplied, and so are the
/// gradients of its scores. The kernels for optimizers take f32 and f64 alone.
///
/// All of this applies to the families of kernels too.
class LOCKSTEP_API Kernels {
 public:
  enum class Choice : std::uint8_t { automatic, reference, onednn, cuda };

  /// How many threads a kernel may run on; at least one. Applies whichever thread calls, and OMP_NUM_THREADS does not
  /// change it. The reference kernels always use one, and a GPU none.
  struct Threads {
    int count = 1;
  };

  /// What `linear` applies to its sums.
  enum class Activation : std::uint8_t { none, relu };

  /// Whether a product takes an operand as it lies, or transposed.
  enum class Transpose : std::uint8_t { no, yes };

  /// A matrix whose rows may lie further apart than they are long: the first `columns` columns of a two-dimensional
  /// view. The other columns are padding. Kernels do not read it; where they write, it keeps its content or becomes
  /// zero.
  struct Matrix {
    TensorView view;
    std::int64_t columns;

    /// All columns: a matrix without padding.
    Matrix(const TensorView& all) : Matrix{all, all.shape().size() == 2 ? all.shape()[1] : 0} {}
    Matrix(TensorView padded, std::int64_t of_matrix) : view{std::move(padded)}, columns{of_matrix} {}

    std::int64_t rows() const { return view.shape()[0]; }
    /// Elements from the beginning of a row to that of the next.
    std::int64_t stride() const { return view.shape()[1]; }
  };

  /// A batch's loss as sums, not means, because batches are cut into shards of unequal size.
  struct BatchLoss {
    /// Sums over the labels of a model that predicts a number for each.
    struct Residuals {
      double absolute = 0;  ///< of the distances between predictions and labels
      double labels = 0;    ///< of the labels
      double squares = 0;   ///< of their squares
    };

    /// A sum of losses, and the weight of the labels that they belong to.
    struct Weighed {
      double loss = 0;
      double weight = 0;
    };

    double loss_sum = 0;       ///< each label's loss times its weight
    std::int64_t correct = 0;  ///< labels that were predicted, for a classifier
    /// The sum of the labels' weights, which a mean divides by. If empty, each label weighs 1, as for every kernel.
    std::optional<double> weight = {};
    std::optional<Residuals> residuals = {};  ///< of an evaluation of a model that predicts numbers
  };

  /// Operands of a product: a [k, m] and b [k, n].
  struct Factors {
    TensorView a;
    TensorView b;
    /// If set, gets the product of these two before it is added to others: all rows, or in several calls some at a
    /// time, from the first on. It may change them. On a GPU, the stream may still be computing them.
    std::function<void(const TensorView& rows)> on_product = {};
    /// Whether the product only goes to `on_product` and is not added. Such factors come after all others.
    bool only_shown = false;
  };

  virtual ~Kernels() = default;

  /// LOCAL. The families of kernels for images and for sequences, which live as long as this object.
  virtual const ImageKernels& image() const = 0;
  virtual const SequenceKernels& sequence() const = 0;

  /// "reference", "oneDNN" or "cuda".
  virtual std::string_view name() const = 0;

  /// What the bits of a product depend on besides its operands: library, version, instruction set or GPU, threads.
  /// Ranks with different fingerprints may compute different bits. Equal fingerprints promise nothing about the C
  /// library, unless the kernels are portable.
  virtual std::string fingerprint() const = 0;

  /// Whether all that a training computes with these kernels has the same bits on every machine with IEEE arithmetic,
  /// whatever its processor, compiler and libraries, as with the reference: sums in one order, nothing fused, and
  /// exponentials, logarithms and their like from lockstep itself. Initial values are then computed in the same way;
  /// optimizers are asked for it by their options (Sgd::Options::portable).
  virtual bool is_portable() const { return false; }

  /// y = x: f32 rounded to bf16, to nearest even, or bf16 as f32, which is exact. Same shape.
  virtual void convert(const TensorView& x, const TensorView& y) const = 0;

  /// c = op(a) · op(b), all of two dimensions; op transposes if asked. c is overwritten. The reference adds the terms
  /// of each element in ascending order, whatever the shapes, so a row of c has the same bits among any number of rows.
  virtual void matmul(const Matrix& a, Transpose transpose_a, const Matrix& b, Transpose transpose_b,
                      const Matrix& c) const = 0;

  /// LOCAL. The row stride for fast products: on a GPU, `columns` rounded up to a multiple of 64, so that rows are
  /// aligned; on the host `columns`.
  virtual std::int64_t row_stride(std::int64_t columns) const = 0;

  /// c = the sum of transposed a · b over `factors`: the gradient of a weight from several shards. There is at least
  /// one product to add, and each factor may have any number of rows. c is overwritten. The reference has the bits of a
  /// `matmul` for each, added up as FixedOrderAccumulator does. A library may add a product to the sum while computing
  /// it, and so round differently; callers that need the reference's bits test the shapes in use.
  virtual void sum_of_products(std::span<const Factors> factors, const TensorView& c) const = 0;

  /// y = activation(x · weight + bias) for rows x [n, inputs], weight [inputs, outputs], bias [outputs] and y [n,
  /// outputs], which is overwritten. On the host these are the bits of matmul, add_bias and relu. A GPU may fuse all
  /// three, and then rounds the product differently.
  virtual void linear(const TensorView& x, const TensorView& weight, const TensorView& bias, Activation activation,
                      const TensorView& y) const = 0;

  /// Adds bias [columns] to each row of rows [n, columns], in place.
  virtual void add_bias(const TensorView& rows, const TensorView& bias) const = 0;

  /// out [columns] = the sum over the rows of rows [n, columns], first row first, starting from zero: the gradient of a
  /// bias. out is overwritten.
  virtual void sum_rows(const TensorView& rows, const TensorView& out) const = 0;

  /// y = max(x, 0), and NaN where x is NaN. Same shape; y may be x.
  virtual void relu(const TensorView& x, const TensorView& y) const = 0;

  /// dx = dy where y, the result of relu, is positive or NaN; 0 elsewhere. Same shape; dx may be y or dy.
  virtual void relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const = 0;

  /// Softmax and cross-entropy of logits [rows, classes] against labels i32 [rows]. Only the first `samples` rows
  /// count, which may be none. The rows and labels after them are padding and are not read.
  ///
  /// `correct` counts the rows whose largest logit is the label's; of equal logits the lowest class wins. Losses are
  /// added up in double, in the order of the rows. A counted row with a NaN or +infinity, or with -infinity at its
  /// label, makes the loss non-finite; -infinity elsewhere is a class of probability zero. A row whose loss is NaN is
  /// not correct. InvalidArgument for a counted label outside [0, classes).
  ///
  /// This overload writes the gradient of the *sum* of the losses to d_logits [rows, classes]: softmax minus one-hot in
  /// the rows that count, zero in the others. d_logits may be logits, and has the same stride.
  BatchLoss softmax_cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples,
                                  const Matrix& d_logits) const;

  /// The same without a gradient, for evaluation. The result has the same bits.
  BatchLoss softmax_cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples) const;

  /// sum += x, element by element. Same shape.
  virtual void add(const TensorView& sum, const TensorView& x) const = 0;

 private:
  friend struct detail::Inside<Kernels>;
  virtual detail::Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                                std::int64_t samples, const Matrix& d_logits) const = 0;
  virtual detail::Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                                std::int64_t samples) const = 0;
};

/// LOCAL. Makes kernels for memory of the stream's device; `stream` must outlive them. On a GPU's stream `automatic` is
/// cuda; on the host's it is oneDNN if built in, else the reference. ConfigError for a choice that the build or the
/// stream's device does not have, InvalidArgument for less than one thread.
LOCKSTEP_API std::unique_ptr<Kernels> make_kernels(Kernels::Choice choice, Kernels::Threads threads = {},
                                                   Stream& stream = Stream::host());

}  // namespace lockstep::ops
