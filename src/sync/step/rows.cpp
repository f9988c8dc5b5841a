#include "sync/step/rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/element_type.hpp"
#include "core/tensor/convert.hpp"

namespace lockstep {
namespace {

/// All ranks' messages together must stay below 2^31 bytes.
constexpr std::int64_t gathered_bytes = 1 << 30;

/// So that every part of a message is aligned.
constexpr std::int64_t padding = 8;

/// The place of a row that is to be added.
struct SourceRow {
  std::int64_t index;
  const std::byte* values;
};

Shape with_rows(Shape shape, std::int64_t rows) {
  shape.front() = rows;
  return shape;
}

std::int64_t row_size_of(const IndexedSlices& slices) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < slices.dense_shape.size(); ++i) elements *= slices.dense_shape[i];
  return elements;
}

template <class T>
void add_rows(std::span<const SourceRow> sources, std::size_t elements, std::span<T> sums) {
  if (elements == 0) return;
  T *to = nullptr, *next = sums.data();
  std::int64_t last = -1;
  for (const SourceRow& source : sources) {
    if (std::exchange(last, source.index) != source.index) {
      to = std::exchange(next, next + elements);
      std::memcpy(to, source.values, elements * sizeof(T));
      continue;
    }
    const auto* const from = reinterpret_cast<const T*>(source.values);
    for (std::size_t i = 0; i < elements; ++i) to[i] += from[i];
  }
}

/// Of `slices` in a message, in bytes.
std::int64_t value_bytes(const IndexedSlices& slices, std::int64_t rows, DType type) {
  const auto bytes = rows * row_size_of(slices) * static_cast<std::int64_t>(size_of(type));
  return (bytes + padding - 1) / padding * padding;
}

/// Values as another floating-point type; the same tensor if it has that.
Tensor as_type(const Tensor& values, DType type) {
  if (values.dtype() == type) return values;
  const Tensor converted = Tensor::uninitialised(type, values.shape());
  detail::convert(values.view(), converted.view());
  return converted;
}

/// Reads a message from `from` on: rows that are like `own`, and travel as `type`.
IndexedSlices next_rows(const Tensor& message, std::byte*& from, const IndexedSlices& own, DType type) {
  std::int64_t count = 0;
  std::memcpy(&count, from, sizeof count);
  from += sizeof count;
  const TensorView indices{from, {count}, DType::i64};
  from += indices.bytes();
  const TensorView values{from, with_rows(own.dense_shape, count), type};
  from += value_bytes(own, count, type);
  return {as_type(message.sharing(values), own.values.dtype()), message.sharing(indices), own.dense_shape};
}

}  // namespace

IndexedSlices sum_rows(std::span<const IndexedSlices> parts) {
  std::vector<SourceRow> sources;
  for (const IndexedSlices& part : parts) {
    const std::byte* from = part.values.view().data();
    const auto row_bytes = static_cast<std::size_t>(row_size_of(part)) * size_of(part.values.dtype());
    for (const std::int64_t index : part.indices.view().elements<std::int64_t>())
      sources.push_back({index, std::exchange(from, from + row_bytes)});
  }
  std::ranges::stable_sort(sources, {}, &SourceRow::index);
  std::vector<std::int64_t> indices;
  for (const SourceRow& each : sources)
    if (indices.empty() || indices.back() != each.index) indices.push_back(each.index);

  const IndexedSlices& first = parts.front();
  const std::int64_t rows = std::ssize(indices);
  const Tensor values = Tensor::uninitialised(first.values.dtype(), with_rows(first.dense_shape, rows));
  const auto elements = static_cast<std::size_t>(row_size_of(first));
  if (values.dtype() == DType::f64) {
    add_rows(sources, elements, values.view().elements<double>());
  } else {
    add_rows(sources, elements, values.view().elements<float>());
  }
  return {values, Tensor::from(indices, {rows}), first.dense_shape};
}

void RowTree::push(IndexedSlices part, std::int64_t parts) {
  partials_.push_back({std::move(part), parts});
  while (partials_.size() > 1 && partials_.end()[-2].parts == partials_.back().parts) join_last_two();
}

IndexedSlices RowTree::finish() {
  while (partials_.size() > 1) join_last_two();
  IndexedSlices sum = std::move(partials_.back().sum);
  partials_.clear();
  return sum;
}

void RowTree::join_last_two() {
  Partial& first = partials_.end()[-2];
  const std::array both{std::move(first.sum), std::move(partials_.back().sum)};
  first.sum = sum_rows(both);
  first.parts += partials_.back().parts;
  partials_.pop_back();
}

std::vector<RowRun> runs_of(const IndexedSlices& sum) {
  const std::int64_t row = row_size_of(sum);
  std::vector<RowRun> runs;
  for (const std::int64_t index : sum.indices.view().elements<std::int64_t>()) {
    if (runs.empty() || index * row != runs.back().first + runs.back().count) runs.push_back({index * row, 0});
    runs.back().count += row;
  }
  return runs;
}

void write_rows(const IndexedSlices& sum, const TensorView& gradient, Stream& stream) {
  gradient.fill_zero(stream);
  std::int64_t from = 0;
  for (const RowRun& run : runs_of(sum)) {
    copy(sum.values.view().slice(from, run.count), gradient.slice(run.first, run.count), stream);
    from += run.count;
  }
}

RowExchange::RowExchange(int rank, int ranks, std::int64_t most)
    : rank_{static_cast<std::size_t>(rank)},
      most_{most > 0 ? most : gathered_bytes / ranks},
      counts_(static_cast<std::size_t>(ranks)) {}

void RowExchange::pack(std::vector<IndexedSlices> own, std::span<const DType> types) {
  own_ = std::move(own);
  types_.assign(types.begin(), types.end());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const std::int64_t count = own_[i].indices.count();
    bytes += static_cast<std::int64_t>(sizeof count) * (1 + count) + value_bytes(own_[i], count, types_[i]);
  }
  counts_[rank_] = bytes;
  message_ = Tensor::uninitialised(DType::u8, {bytes});
  message_.view().fill_zero();
  std::byte* to = message_.view().data();
  const auto write = [&](const void* from, std::size_t size) {
    if (size > 0) std::memcpy(to, from, size);
    to += size;
  };
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const std::int64_t count = own_[i].indices.count();
    const Tensor values = as_type(own_[i].values, types_[i]);
    write(&count, sizeof count);
    write(own_[i].indices.view().data(), own_[i].indices.view().bytes());
    std::byte* const next = to + value_bytes(own_[i], count, types_[i]);
    write(values.view().data(), values.view().bytes());
    to = next;
  }
}

/// The messages by rank.
std::vector<Tensor> RowExchange::gather(Reductions& reductions) const {
  std::vector<Tensor> messages;
  const std::int64_t longest = *std::ranges::max_element(counts_);
  const auto part_of = [&](std::int64_t size, std::int64_t first) {
    return std::clamp(size - first, std::int64_t{0}, most_);
  };
  for (std::int64_t first = 0; first < longest; first += most_) {
    const std::int64_t own = counts_[rank_];
    Tensor part = message_.sharing(message_.view().slice(std::min(first, own), part_of(own, first)));
    reductions.all_gather(std::span{&part, 1});
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      const std::int64_t size = part_of(counts_[rank], first);
      const TensorView from = part.view().slice(std::exchange(begin, begin + size), size);
      if (longest <= most_) {
        messages.push_back(part.sharing(from));
      } else {
        if (first == 0) messages.push_back(Tensor::uninitialised(DType::u8, {counts_[rank]}));
        copy(from, messages[rank].view().slice(std::min(first, counts_[rank]), size));
      }
    }
  }
  return messages;
}

std::vector<std::vector<IndexedSlices>> RowExchange::exchange(const RankSums& sums) {
  std::vector<std::vector<IndexedSlices>> rows(own_.size());
  const auto empty = static_cast<std::int64_t>(own_.size() * sizeof(std::int64_t));
  if (counts_.size() == 1 || std::ranges::all_of(counts_, [&](std::int64_t each) { return each == empty; })) {
    for (std::size_t i = 0; i < own_.size(); ++i) rows[i] = {own_[i]};
    return rows;
  }
  std::vector<Tensor> messages;
  sums.make([&](Reductions& reductions) { messages = gather(reductions); });
  for (const Tensor& message : messages) {
    std::byte* next = message.view().data();
    for (std::size_t i = 0; i < own_.size(); ++i) rows[i].push_back(next_rows(message, next, own_[i], types_[i]));
  }
  return rows;
}

}  // namespace lockstep
