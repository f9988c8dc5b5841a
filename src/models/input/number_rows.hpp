// The numbers of samples, row by row: in memory, or in files from which each row is read when it is wanted.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

#include "models/input/data_block.hpp"
#include "models/input/file_content.hpp"
#include "models/input/fixed_array.hpp"
#include "models/input/stored_file.hpp"

namespace lockstep {

/// Rows of equally many numbers that never change. LOCAL; several threads may read at once.
class NumberRows {
 public:
  virtual ~NumberRows() = default;

  virtual std::int64_t count() const = 0;

  /// Numbers in a row.
  virtual std::int64_t width() const = 0;

  /// Whether no row is read from a file again.
  virtual bool in_memory() const = 0;

  /// Writes a row that exists, into room for `width` numbers. ConfigError if it is in a file that can no longer be
  /// read, or that has changed.
  virtual void read(std::int64_t row, std::span<float> to) const = 0;
  virtual void read(std::int64_t row, std::span<double> to) const = 0;

  /// As SampleSource has it.
  virtual void require_unchanged() const {}

  /// What other rows like these are made of: for save_rows.
  virtual nlohmann::json save(BlockWriter& block) const = 0;
};

/// The memory that is left for the rows of a data set (--data-memory).
struct DataMemory {
  std::uint64_t left_bytes = 0;

  /// Whether `bytes` more fit. Takes them then.
  bool take(std::uint64_t bytes);

  /// ConfigError for a packed file that does not fit: its rows cannot be read one by one.
  [[noreturn]] void refuse_packed(const FileBytes& file) const;
};

/// How a row is stored.
struct RowFormat {
  enum class Element : std::uint8_t { u8, f32, f64 };

  Element element = Element::u8;  ///< u8 stands for the numbers from 0 to 1, in steps of 1/255
  std::endian order = std::endian::native;
  std::int64_t width = 1;         ///< numbers in a row
  std::int64_t planes = 1;        ///< the numbers are stored plane by plane, and read as those of all planes in turn
  std::int64_t prefix_bytes = 0;  ///< before the numbers

  std::int64_t bytes() const;
  NLOHMANN_DEFINE_TYPE_INTRUSIVE(RowFormat, element, order, width, planes, prefix_bytes)
};

/// Rows from files, of one format.
class StoredRows final : public NumberRows {
 public:
  /// The numbers must be finite in `dtype`. If one is not, `hint` ends the message.
  StoredRows(const RowFormat& format, DType dtype, std::string hint = {})
      : format_{format}, dtype_{dtype}, hint_{std::move(hint)} {}
  /// As they were saved.
  StoredRows(const nlohmann::json& saved, const BlockReader& block);

  /// Is shown the stored bytes of whole rows, of which the first is row `first` of the file.
  using Inspect = std::function<void(std::int64_t first, std::span<const std::uint8_t> rows)>;

  /// Appends the rows that `content` announces. Reads all of them once. They stay in memory if they fit into `memory`,
  /// and are read again from the file otherwise. ConfigError as read_content, for numbers that are not finite, and for
  /// a packed file that does not fit.
  void append(FileBytes& file, const AnnouncedContent& content, DataMemory& memory, const Inspect& inspect);

  /// Appends the rows of `content`, which is all that `file` holds and fits into `memory`.
  void append(const FileBytes& file, std::vector<std::uint8_t> content, DataMemory& memory, const Inspect& inspect);

  std::int64_t count() const override { return pieces_.empty() ? 0 : pieces_.back().end; }
  std::int64_t width() const override { return format_.width; }
  bool in_memory() const override;
  void read(std::int64_t row, std::span<float> to) const override;
  void read(std::int64_t row, std::span<double> to) const override;
  void require_unchanged() const override;
  nlohmann::json save(BlockWriter& block) const override;

 private:
  /// The rows of one file.
  struct Piece {
    std::int64_t end = 0;  ///< the number of rows up to and with this piece
    FixedArray<std::uint8_t> memory = {};
    std::shared_ptr<const StoredFile> file = {};  ///< null if the rows are in memory
    std::uint64_t offset = 0;
  };

  /// `content` is of the piece that follows.
  void keep(const FileBytes& file, std::vector<std::uint8_t> content, const Inspect& inspect);
  template <class Real>
  void decode(std::int64_t row, std::span<Real> to) const;
  void require_finite(const FileBytes& file, std::int64_t first, std::span<const std::uint8_t> rows) const;
  /// ", with 5 more in 3 of the 100 rows from there on": how many numbers of these rows are not finite as Real, but for
  /// the first. Empty if there is no other.
  template <class Real>
  std::string others_text(std::span<const std::uint8_t> rows) const;

  RowFormat format_;
  DType dtype_;
  std::string hint_;
  std::vector<Piece> pieces_;
};

}  // namespace lockstep
