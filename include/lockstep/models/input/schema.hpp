// What a model must know about its data so that it can be used on other data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/shape.hpp>

namespace lockstep {

/// Describes the data that a model was trained on. It is saved with the weights and governs how other data are read.
/// Names are UTF-8; a file's names in another encoding count as Latin-1.
struct LOCKSTEP_API DataSchema {
  /// 8-bit numbers, which are scaled to [0, 1], or others, which are not scaled.
  enum class Numbers : std::uint8_t { bytes, floats };

  /// Where the test set is: in files of its own, in the rows that a hash of their numbers picks, or at the end.
  enum class Split : std::uint8_t { files, hash, last };

  /// What a label is: one of several classes, or a number to regress on.
  enum class Task : std::uint8_t { classes, regression };

  /// How the columns of CSV are scaled: not at all, or to a mean of 0 and a standard deviation of 1 in the training
  /// set.
  enum class Scaling : std::uint8_t { none, standard };

  /// A number stands for (number - mean) / deviation.
  struct Scale {
    double mean = 0;
    double deviation = 1;
    bool operator==(const Scale&) const = default;
  };

  std::string kind = {};  ///< "IDX", "CIFAR-10", "CIFAR-100", "arrays of NumPy", "CSV", "text", "bytes" or "tokens"
  Shape sample = {};      ///< as LabelledData has it; empty for text and tokens
  Numbers numbers = Numbers::floats;
  std::vector<std::string> columns = {};  ///< of CSV: the names of a sample's numbers, in the order of the inputs
  std::string label_column = {};          ///< of CSV
  Task task = Task::classes;              ///< of CSV; all others have classes
  std::vector<Scale> scales = {};         ///< of each of `columns`; empty if they are not scaled
  Scale label_scale = {};                 ///< of the labels, if columns are scaled and the task is a regression
  /// The name of each class, by its number: "0", "1", … where the labels are numbers. Empty for regressions, text and
  /// tokens.
  std::vector<std::string> classes = {};
  std::optional<std::int64_t> vocabulary = {};  ///< of tokens
  Split split = Split::files;
  double test_fraction = 0;  ///< share of the test set, unless it is in files of its own

  /// One line of JSON.
  std::string to_json() const;

  /// Inverts to_json. Error, which begins with `source`, if the text does not describe data that this version can read.
  static DataSchema parse(std::string_view text, std::string_view source);

  bool operator==(const DataSchema&) const = default;
};

}  // namespace lockstep
