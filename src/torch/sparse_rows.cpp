#include "torch/sparse_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <ATen/Functions.h>

#include "device/device.hpp"
#include "reduce/cross_device_ops.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

at::ScalarType sum_type_of(const at::Tensor& table) {
  return table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::int64_t row_size_of(const at::Tensor& table) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : table.sizes().slice(1)) elements *= extent;
  return elements;
}

/// The place of a row that is to be added.
struct SourceRow {
  std::int64_t index;
  const std::byte* values;
};

template <class T>
void add_rows(std::span<const SourceRow> sources, std::size_t elements, T* next) {
  const std::size_t bytes = elements * sizeof(T);
  if (bytes == 0) return;
  T* to = nullptr;
  std::int64_t last = -1;
  for (const SourceRow& source : sources) {
    if (std::exchange(last, source.index) != source.index) {
      to = std::exchange(next, next + elements);
      std::memcpy(to, source.values, bytes);
      continue;
    }
    const auto* const from = reinterpret_cast<const T*>(source.values);
    for (std::size_t i = 0; i < elements; ++i) to[i] += from[i];
  }
}

/// `sources` in the order in which those of one index are to be added up.
Rows add_up(std::vector<SourceRow> sources, std::int64_t row_size, at::ScalarType type) {
  std::ranges::stable_sort(sources, {}, &SourceRow::index);
  Rows sum;
  for (const SourceRow& each : sources)
    if (sum.indices.empty() || sum.indices.back() != each.index) sum.indices.push_back(each.index);
  sum.values = at::empty({std::ssize(sum.indices), row_size}, type);
  const auto elements = static_cast<std::size_t>(row_size);
  if (type == at::kDouble) {
    add_rows(sources, elements, sum.values.data_ptr<double>());
  } else {
    add_rows(sources, elements, sum.values.data_ptr<float>());
  }
  return sum;
}

void append(std::vector<SourceRow>& sources, std::span<const std::int64_t> indices, const at::Tensor& values) {
  const auto* from = static_cast<const std::byte*>(values.data_ptr());
  const auto row_bytes = static_cast<std::size_t>(values.size(1)) * values.element_size();
  for (const std::int64_t index : indices) sources.push_back({index, std::exchange(from, from + row_bytes)});
}

std::span<const std::int64_t> elements_of(const at::Tensor& indices) {
  return {indices.data_ptr<std::int64_t>(), static_cast<std::size_t>(indices.numel())};
}

/// So that every part of a message is aligned.
std::int64_t padded_bytes(std::int64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

std::int64_t value_bytes(std::int64_t rows, const at::Tensor& table) {
  return rows * row_size_of(table) * static_cast<std::int64_t>(table.element_size());
}

/// Reads a message from its beginning on. The values stay where they are, in memory of `owner`.
Rows next_rows(const std::byte*& from, const at::Tensor& table, const std::shared_ptr<const Tensor>& owner) {
  std::int64_t count = 0;
  std::memcpy(&count, from, sizeof count);
  from += sizeof count;
  Rows rows;
  rows.indices.resize(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(rows.indices.data(), from, rows.indices.size() * sizeof count);
  from += rows.indices.size() * sizeof count;
  rows.values = at::from_blob(
                    const_cast<std::byte*>(from), {count, row_size_of(table)}, [owner](void*) {},
                    at::TensorOptions{}.dtype(table.scalar_type()))
                    .to(sum_type_of(table));
  from += padded_bytes(value_bytes(count, table));
  return rows;
}

}  // namespace

Rows no_rows_of(const at::Tensor& table) {
  return {.indices = {}, .values = at::empty({0, row_size_of(table)}, sum_type_of(table))};
}

Rows rows_of(const at::Tensor& gradient, TorchDevice& device) {
  const at::NoGradGuard plain;
  const at::ScalarType type = sum_type_of(gradient);
  const std::int64_t row_size = row_size_of(gradient);
  std::vector<SourceRow> sources;
  if (!gradient.is_sparse() || gradient.sparse_dim() != 1) {
    const at::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
    Rows all{.indices = std::vector<std::int64_t>(static_cast<std::size_t>(dense.size(0))), .values = {}};
    for (std::size_t i = 0; i < all.indices.size(); ++i) all.indices[i] = static_cast<std::int64_t>(i);
    // A copy: autograd's tensor may be changed in place by the next pass.
    all.values = device.on_host(dense).to(type, false, true).reshape({dense.size(0), row_size}).contiguous();
    return all;
  }
  const at::Tensor indices = device.on_host(gradient._indices()).select(0, 0).contiguous();
  const at::Tensor values =
      device.on_host(gradient._values()).to(type).reshape({indices.numel(), row_size}).contiguous();
  append(sources, elements_of(indices), values);
  return add_up(std::move(sources), row_size, type);
}

Rows sum_in_order(std::span<const Rows> parts) {
  const at::Tensor& values = parts.front().values;
  std::vector<SourceRow> sources;
  for (const Rows& part : parts) append(sources, part.indices, part.values);
  return add_up(std::move(sources), values.size(1), values.scalar_type());
}

void RowTree::push(Rows part) {
  partials_.push_back({std::move(part), 1});
  while (partials_.size() > 1 && partials_.end()[-2].parts == partials_.back().parts) join_last_two();
}

Rows RowTree::finish() {
  while (partials_.size() > 1) join_last_two();
  Rows sum = std::move(partials_.back().sum);
  partials_.clear();
  return sum;
}

void RowTree::join_last_two() {
  Partial& first = partials_.end()[-2];
  const std::array both{std::move(first.sum), std::move(partials_.back().sum)};
  first.sum = sum_in_order(both);
  first.parts += partials_.back().parts;
  partials_.pop_back();
}

at::Tensor sparse_gradient(const Rows& rows, const at::Tensor& table) {
  const at::NoGradGuard plain;
  at::Tensor indices = at::empty({1, std::ssize(rows.indices)}, at::kLong);
  std::ranges::copy(rows.indices, indices.data_ptr<std::int64_t>());
  std::vector<std::int64_t> shape = table.sizes().vec();
  shape.front() = std::ssize(rows.indices);
  const at::Tensor values = rows.values.view(shape).to(table.options());
  return at::_sparse_coo_tensor_unsafe(indices.to(table.device()), values, table.sizes())._coalesced_(true);
}

IndexedSlices slices_of(const Rows& rows, const at::Tensor& table) {
  const auto own = std::make_shared<const at::Tensor>(rows.values.to(table.scalar_type()));
  Shape shape{table.sizes().begin(), table.sizes().end()};
  const Shape dense_shape = shape;
  shape[0] = std::ssize(rows.indices);
  return {.values = Tensor{std::shared_ptr<const Buffer>{own, nullptr},
                           TensorView{static_cast<std::byte*>(own->data_ptr()), shape,
                                      *libtorch::dtype_of(own->scalar_type())}},
          .indices = Tensor::from(rows.indices, {shape[0]}),
          .dense_shape = dense_shape};
}

RowMessage::RowMessage(std::span<const Rows> rows, std::span<const at::Tensor> tables) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t count = std::ssize(rows[i].indices);
    bytes += static_cast<std::int64_t>(sizeof count) * (1 + count) + padded_bytes(value_bytes(count, tables[i]));
  }
  packed_ = Tensor::uninitialised(DType::u8, {bytes});
  std::byte* to = packed_.view().data();
  const auto write = [&](const void* from, std::size_t size) {
    if (size > 0) std::memcpy(to, from, size);
    to += size;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t count = std::ssize(rows[i].indices);
    write(&count, sizeof count);
    write(rows[i].indices.data(), rows[i].indices.size() * sizeof count);
    const at::Tensor values = rows[i].values.to(tables[i].scalar_type());
    write(values.data_ptr(), values.nbytes());
    const std::array<std::byte, 8> padding{};
    write(padding.data(), static_cast<std::size_t>(padded_bytes(value_bytes(count, tables[i]))) - values.nbytes());
  }
}

std::vector<std::vector<Rows>> RowMessage::gather(CrossDeviceOps& reductions, std::span<const at::Tensor> tables,
                                                  std::span<const std::int64_t> bytes, std::int64_t most) const {
  const std::int64_t longest = *std::ranges::max_element(bytes);
  std::vector<std::shared_ptr<const Tensor>> whole;  // messages by rank, or all of them as one
  if (longest > most)
    for (const std::int64_t each : bytes)
      whole.push_back(std::make_shared<const Tensor>(Tensor::uninitialised(DType::u8, {each})));
  const auto part_of = [&](std::int64_t size, std::int64_t first) {
    return std::clamp(size - first, std::int64_t{0}, most);
  };
  for (std::int64_t first = 0; first < longest; first += most) {
    Tensor part = packed_.sharing(packed_.view().slice(std::min(first, this->bytes()), part_of(this->bytes(), first)));
    reductions.all_gather(std::span{&part, 1});
    if (longest <= most) {
      whole.push_back(std::make_shared<const Tensor>(std::move(part)));
      break;
    }
    const std::byte* from = part.view().data();
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      const auto size = static_cast<std::size_t>(part_of(bytes[rank], first));
      if (size > 0) std::memcpy(whole[rank]->view().data() + first, from, size);
      from += size;
    }
  }
  std::vector<std::vector<Rows>> rows(tables.size());
  const std::byte* next = whole.front()->view().data();
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    const std::shared_ptr<const Tensor>& owner = whole.size() > 1 ? whole[rank] : whole.front();
    if (whole.size() > 1) next = owner->view().data();
    for (std::size_t i = 0; i < tables.size(); ++i) rows[i].push_back(next_rows(next, tables[i], owner));
  }
  return rows;
}

}  // namespace lockstep::libtorch
