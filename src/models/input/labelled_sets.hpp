// What a reader of labelled samples returns, whatever the kind of its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/schema.hpp>

#include "core/base/digest.hpp"
#include "models/input/fixed_array.hpp"
#include "models/input/number_rows.hpp"

namespace lockstep {

/// Rows, and a label for each of them.
struct LabelledRows {
  std::shared_ptr<const NumberRows> rows = {};  ///< null where they are not read
  FixedArray<std::int32_t> labels = {};
  FixedArray<double> numbers = {};         ///< in a regression, instead, as they are in the file
  std::vector<std::string> counters = {};  ///< columns that count the rows of their file
};

struct LabelledSets {
  DataSchema schema = {};
  LabelledRows train = {}, test = {};
  Digest digest = {};  ///< of sizes, numbers and labels
};

/// `name` in `folder`, or else `name`.gz. ConfigError if neither is there.
std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name);

/// Whether a file of this name, packed or not, is one of a data set.
bool is_data_name(std::string_view name);

/// The command that renames a file of `folder` to `name`, if there is one whose name differs by a character or two;
/// empty otherwise.
std::string renaming_of(const std::filesystem::path& folder, std::string_view name);

/// "3 x 4", the extents of a shape.
std::string extents_text(const Shape& shape);

/// "images of 3 x 4", or "rows of 7 numbers".
std::string samples_text(const Shape& sample);

/// Whether the training set is read too.
bool trains(const LabelledData::Options& options);

/// The task and the scaling: those of the schema, or else of the options.
DataSchema::Task task_of(const LabelledData::Options& options);
DataSchema::Scaling scaling_of(const LabelledData::Options& options);

/// ", as the model has 10 classes".
std::string model_has(const DataSchema& schema);

/// ConfigError unless the options or a schema say which classes there are, where the test set alone cannot.
void require_known_classes(const std::filesystem::path& test, const LabelledData::Options& options);

/// ConfigError if there is a schema and it has samples of another shape, or other numbers, than `path`.
void require_as_trained(const std::filesystem::path& path, const LabelledData::Options& options, const Shape& sample,
                        DataSchema::Numbers numbers);

/// The schema of data without names of their own: the one of the options, with what is of these data, or a new one.
DataSchema schema_of(const LabelledData::Options& options, std::string kind, const Shape& sample,
                     DataSchema::Numbers numbers);

/// Which labels a file may hold: 0 to `classes` - 1. `origin` says whence that number: " (--classes 10)".
struct LabelRule {
  std::int64_t classes = 0;
  std::string origin;

  /// For the classes of the schema, or else those that the user gave, or else for `usual`, which `origin` explains.
  static LabelRule of(const LabelledData::Options& options, std::int64_t usual, std::string origin);

  /// ConfigError for a label that is not allowed. `what` and `number` say which it is.
  void require(const std::filesystem::path& path, std::int64_t label, std::int64_t number,
               const char* what = "label") const;
};

/// The most classes there may be. A label above is no class but something else, such as a number that names a sample.
inline constexpr std::int64_t most_classes = 65536;

/// Readers, each for a folder or file that `recognise` has told to be theirs. ConfigError for any fault.
LabelledSets load_idx_sets(const std::filesystem::path& folder, const LabelledData::Options& options);
LabelledSets load_cifar_10(const std::filesystem::path& folder, const LabelledData::Options& options);
LabelledSets load_cifar_100(const std::filesystem::path& folder, const LabelledData::Options& options);
LabelledSets load_npy_sets(const std::filesystem::path& folder, const LabelledData::Options& options);
LabelledSets load_csv_sets(const std::filesystem::path& folder_or_file, const LabelledData::Options& options);

/// Recognises what `path` names, or an unlabelled `file`, and reads it. Those without labels are the training set.
LabelledSets load_labelled_sets(const std::filesystem::path& path, const LabelledData::Options& options);
LabelledSets load_unlabelled_sets(const std::filesystem::path& file, const LabelledData::Options& options);

/// Whether a folder contains images or arrays that LabelledData::load recognises by file names and sizes.
/// Never throws.
bool is_folder_of_images(const std::filesystem::path& folder);

/// The files that load_labelled_sets would read at `path`, and those that it would read if they were there.
std::vector<std::filesystem::path> data_files(const std::filesystem::path& path);

/// What has been read, or taken over.
struct LabelledParts {
  DataSchema schema = {};
  LabelledRows train = {}, test = {};
  std::uint64_t digest = 0;
};
LabelledParts parts_of(LabelledSets sets);
LabelledData labelled_data_of(LabelledParts parts, DType dtype);

/// Rows without labels, in one file.
struct UnlabelledRows {
  DataSchema schema = {};
  std::shared_ptr<const NumberRows> rows = {};
  Digest digest = {};
};
UnlabelledRows load_idx_rows(const std::filesystem::path& file, const LabelledData::Options& options);
UnlabelledRows load_npy_rows(const std::filesystem::path& file, const LabelledData::Options& options);
UnlabelledRows load_csv_rows(const std::filesystem::path& file, const LabelledData::Options& options);

}  // namespace lockstep
