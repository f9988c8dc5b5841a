#include "sync/checkpoint/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/excerpt.hpp"
#include "core/tensor/digest.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {
namespace {

using safetensors::Entry;
using ByName = std::unordered_map<std::string_view, const NamedTensor*>;

/// CheckpointError if two have one name.
ByName by_name(std::span<const NamedTensor> tensors, std::string_view source) {
  ByName all;
  for (const NamedTensor& tensor : tensors) {
    const auto [first, is_new] = all.emplace(tensor.name, &tensor);
    if (!is_new)
      fail_checkpoint(source, fmt::format("two values are called '{}', {} and {}; expected a name of its own for each",
                                          tensor.name, describe(first->second->value), describe(tensor.value)));
  }
  return all;
}

struct Contents {
  safetensors::Header header;
  std::uint64_t data;  ///< where the data begins in the file
};

Contents read_header(const ExistingFile& file, std::string_view source) {
  std::array<std::byte, safetensors::length_bytes> first;
  std::array<char, 1> brace;
  if (file.size() < first.size() + brace.size())
    fail_checkpoint(source, fmt::format("has {} bytes; expected a file in the safetensors format", file.size()));
  file.read(0, first);
  file.read(first.size(), std::as_writable_bytes(std::span{brace}));
  // Of any other file the length would be a riddle.
  if (brace.front() != '{') fail_checkpoint(source, "is no file in the safetensors format");
  const std::uint64_t length = safetensors::header_length(first), behind = file.size() - first.size();
  if (length > behind)
    fail_checkpoint(source, fmt::format("begins with a header of {} bytes, and has {} more; expected a whole file in "
                                        "the safetensors format",
                                        length, behind));
  if (length > safetensors::longest_header)
    fail_checkpoint(source, fmt::format("begins with a header of {} bytes; expected at most {}, as the safetensors "
                                        "format has it",
                                        length, safetensors::longest_header));
  std::string header(length, '\0');
  file.read(first.size(), std::as_writable_bytes(std::span{header}));
  return {safetensors::parse_header(header, behind - length, source), first.size() + length};
}

/// What to do about entries that the program has no place for. Empty if none of them is optimizer state, which is
/// called "VARIABLE@SLOT" or "OPTIMIZER@COUNTER".
std::string cure_for(std::span<const std::string_view> unknown) {
  const auto state = std::ranges::find_if(unknown, [](std::string_view name) { return name.find('@') != name.npos; });
  if (state == unknown.end()) return {};
  return fmt::format(
      "; '{}' is state of an optimizer that this program has not prepared: call optimizer.prepare(strategy, "
      "variables), or make the ReplicatedOptimizer of a torch optimizer, before the checkpoint is restored",
      excerpt(*state));
}

/// Requires one entry for each of `wanted`, with its type and shape, and no other.
void require_all(const ByName& wanted, std::span<const Entry> entries, std::string_view source) {
  std::unordered_set<std::string_view> there;
  std::vector<std::string_view> missing, unknown;
  for (const Entry& entry : entries) {
    there.insert(entry.name);
    if (!wanted.contains(entry.name)) unknown.push_back(entry.name);
  }
  for (const auto& [name, tensor] : wanted)
    if (!there.contains(name)) missing.push_back(name);
  std::ranges::sort(missing);
  std::ranges::sort(unknown);
  std::vector<std::string> wrong;
  if (!missing.empty()) wrong.push_back("has no entry " + listed(missing));
  if (!unknown.empty()) wrong.push_back("has the entry " + listed(unknown));
  if (!wrong.empty())
    fail_checkpoint(source,
                    fmt::format("{}; expected one for each variable and each piece of optimizer state, and no other{}",
                                fmt::join(wrong, ", and "), cure_for(unknown)));

  for (const Entry& entry : entries)
    if (const TensorView& value = wanted.at(entry.name)->value; !entry.fits(value.dtype(), value.shape()))
      fail_checkpoint(source,
                      fmt::format("entry '{}' is {}; expected {}", entry.name, describe(entry), describe(value)));
}

}  // namespace

void write_tensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                   const WeightsMetadata& metadata) {
  const ByName named = by_name(tensors, path.string());
  safetensors::Header header{.entries = {}, .metadata = metadata};
  for (const auto& [name, value] : tensors) header.entries.push_back({name, value.dtype(), value.shape()});
  safetensors::lay_out(header.entries);
  const std::string text = safetensors::header_of(header, path.string());

  NewFile file{path};
  file.write(std::as_bytes(std::span{text}));
  for (const Entry& entry : header.entries) {
    const Tensor value = Tensor::on_host(named.at(entry.name)->value);
    file.write({value.view().data(), value.view().bytes()});
  }
  file.commit();
}

OpenTensorFile::OpenTensorFile(const std::filesystem::path& path) : path_{path}, file_{path} {
  auto [header, data] = read_header(file_, path.string());
  header_ = std::move(header);
  data_ = data;
}

OpenTensorFile::OpenTensorFile(const std::filesystem::path& path, ExpectedContents expected) : OpenTensorFile{path} {
  if (header_.metadata != expected.metadata)
    fail_checkpoint(path.string(), "its metadata have been altered: they are not the manifest's");
  digests_ = std::move(expected.digests);
}

Tensor OpenTensorFile::read(const Entry& entry) const {
  const Tensor value = Tensor::zeros(entry.dtype, entry.shape);
  file_.read(data_ + entry.begin, {value.view().data(), value.view().bytes()});
  if (!digests_) return value;
  const auto digest = digests_->find(entry.name);
  if (digest == digests_->end() || digest->second != detail::digest_of_elements(value.view()))
    fail_checkpoint(path_.string(),
                    fmt::format("entry '{}' has been altered: its digest is not the manifest's", excerpt(entry.name)));
  return value;
}

std::string listed(std::span<const std::string_view> names) {
  constexpr std::size_t most = 5;
  const std::string shown = excerpt(fmt::format("{}", fmt::join(names.first(std::min(names.size(), most)), "', '")));
  return fmt::format("'{}'", shown) + (names.size() > most ? fmt::format(" and {} more", names.size() - most) : "");
}

std::vector<Tensor> read_tensors(const OpenTensorFile& file, std::span<const NamedTensor> wanted) {
  const ByName named = by_name(wanted, file.path().string());
  require_all(named, file.entries(), file.path().string());

  std::vector<Tensor> values(wanted.size());
  for (const Entry& entry : file.entries())
    values[static_cast<std::size_t>(named.at(entry.name) - wanted.data())] = file.read(entry);
  return values;
}

std::vector<Tensor> read_tensors(const std::filesystem::path& path, std::span<const NamedTensor> wanted) {
  (void)by_name(wanted, path.string());
  return read_tensors(OpenTensorFile{path}, wanted);
}

}  // namespace lockstep
