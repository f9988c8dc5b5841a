// Labelled images and rows of numbers, in the formats in which people have them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>

namespace lockstep {

struct LOCKSTEP_API LabelledData {
  /// How `load` reads files.
  struct Options {
    /// Labels go from 0 to this number minus 1. If empty, the data say it: 10 for IDX and CIFAR-10, 100 for CIFAR-100,
    /// and otherwise the largest label of the training set plus 1, or of the only file. If the labels of a CSV file are
    /// names, it must be the number of names.
    std::optional<std::int64_t> classes = {};
    DType dtype = DType::f32;            ///< f32 or f64, the type of a batch's inputs
    std::string label_column = "label";  ///< of CSV files
    /// Only CSV files have tasks other than classes. The labels of a regression are finite numbers; a training set must
    /// have several. Batches hold them in the type of the inputs.
    DataSchema::Task task = DataSchema::Task::classes;
    /// Scales the columns of CSV files and, in a regression, the labels. Means and deviations are those of the training
    /// set, computed in double, row by row in their order; a column in which all numbers are equal, up to rounding, has
    /// a deviation of 1.
    DataSchema::Scaling scaling = DataSchema::Scaling::none;
    /// Files are kept in memory, one after the other, as long as they fit into this many bytes. Samples of the others
    /// are read when a batch is filled; such files must not be packed. Labels, and where the rows of a CSV file begin,
    /// are in memory in any case.
    std::uint64_t memory_bytes = std::uint64_t{1} << 30;
    /// How one CSV file is split, by `hash` or `last`, and the share of the test set in it. InvalidArgument for
    /// `files`.
    DataSchema::Split split = DataSchema::Split::hash;
    double test_fraction = 0.1;
    /// The files of the training set may be missing. Arrays and `test.csv` do not show the number of classes, so
    /// `classes` or `schema` must give it.
    bool test_only = false;
    /// What a model was trained on. If set, data must match it, except in kind: it decides classes, the label column,
    /// the task, means and deviations, and the split of one file, and columns are found by their names, in any order.
    std::optional<DataSchema> schema = {};
  };

  /// Reads the training and test set at `path`, and recognises what it is:
  ///
  /// - a folder of IDX files: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
  ///   `t10k-labels-idx1-ubyte`;
  /// - CIFAR-10 in its binary version: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`;
  /// - CIFAR-100 in its binary version, by its fine labels: `train.bin` and `test.bin`;
  /// - arrays of NumPy in C order: `x_train.npy`, `y_train.npy`, `x_test.npy` and `y_test.npy`. Samples are of type u1,
  ///   f4 or f8 and of shape [n, numbers], [n, rows, columns] or [n, rows, columns, channels]; labels are integers;
  /// - CSV with a header: `train.csv` and `test.csv`, or one file, where a hash of a row's number decides whether it is
  ///   in the test set. The column `label_column` holds the class, all others hold numbers. Columns of `test.csv` are
  ///   found by name. If all labels of the training set, or of the only file, are whole numbers from 0, they are the
  ///   classes. Otherwise, the classes are the different labels in the order of their bytes.
  ///
  /// Every file may be packed (gzip). 8-bit numbers are scaled to [0, 1], others are not scaled and must be finite. All
  /// of it is read and checked before this returns: any fault is a one-line ConfigError with the file and the place. A
  /// file that stays on disk must not change while the result lives: if it does, SampleSource::require_unchanged throws
  /// a ConfigError, and so does SampleSource::fill if it has become shorter.
  static LabelledData load(const std::filesystem::path& path, const Options& options);

  /// Reads the samples of one file without labels, for predictions: an IDX file, an .npy array, or CSV with a header,
  /// whose column of labels is ignored. Every label in its batches is 0. Without `classes` and `schema`, there
  /// are 10 classes. ConfigError as from `load`, and for columns to scale without a schema.
  static LabelledData load_unlabelled(const std::filesystem::path& file, const Options& options);

  std::string text;  ///< "CIFAR-10: 50000 images of 32 x 32 x 3 to train on and 10000 to test, 10 classes"
  /// The shape of a sample, which a batch holds as one row: [rows, columns] or [rows, columns, channels] of images, and
  /// otherwise [numbers].
  Shape sample;
  std::int64_t classes = 0;                   ///< 0 in a regression
  std::unique_ptr<const SampleSource> train;  ///< null if the test set alone is read
  std::unique_ptr<const SampleSource> test;   ///< null for data without labels
  std::uint64_t digest = 0;  ///< of sizes, numbers and labels: equal on ranks that loaded the same data
  DataSchema schema = {};    ///< describes these data; classes and columns are those of the options' schema

  bool has_images() const { return sample.size() > 1; }
};

}  // namespace lockstep
