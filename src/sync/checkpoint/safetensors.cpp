#include "sync/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/foreign_json.hpp"
#include "sync/checkpoint/failure.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written and read as memory has it");

constexpr std::string_view metadata_key = "__metadata__";

// In the metadata of every file that lockstep writes.
constexpr std::string_view writer_key = "writer";
constexpr std::string_view writer = "lockstep";

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array type_names{
    TypeName{DType::f32, "F32"},   TypeName{DType::f64, "F64"}, TypeName{DType::f16, "F16"},
    TypeName{DType::bf16, "BF16"}, TypeName{DType::i32, "I32"}, TypeName{DType::i64, "I64"},
    TypeName{DType::u8, "U8"},
};

/// The header's length is a multiple of this, so that the data after it is aligned for every type.
constexpr std::size_t alignment = 8;

std::string_view name_in_file(DType dtype) {
  return std::find_if(type_names.begin(), type_names.end(), [&](const TypeName& each) { return each.dtype == dtype; })
      ->name;
}

/// As JSON; nothing for a text that is not UTF-8.
std::optional<std::string> quoted(const std::string& text) {
  try {
    return OrderedJson(text).dump();
  } catch (const OrderedJson::exception&) {
    return std::nullopt;
  }
}

/// The name of an entry, as JSON.
std::string quoted_name(const std::string& name, std::string_view source) {
  if (name == metadata_key)
    fail_checkpoint(source,
                    fmt::format("no entry can be called {}: the format has that name for itself", metadata_key));
  std::optional<std::string> text = quoted(name);
  if (!text) fail_checkpoint(source, fmt::format("the name {} is no text in UTF-8", shown(name)));
  return *std::move(text);
}

/// Reads one entry of a header, or says what is wrong with it.
class EntryReader {
 public:
  EntryReader(std::string_view name, const OrderedJson& fields, std::string_view source)
      : name_{name}, fields_{fields}, source_{source} {}

  Entry read(std::uint64_t data_bytes) const {
    if (!fields_.is_object()) fail(R"(expected {"dtype": …, "shape": …, "data_offsets": …})", fields_);
    const std::string& type = type_text();
    const std::vector<std::uint64_t> extents = numbers("shape"), offsets = numbers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      fail("expected the data_offsets [begin, end]", field("data_offsets"));
    if (offsets[1] > data_bytes)
      fail(fmt::format("ends at byte {} of the data, of which there are {}; expected the whole file", offsets[1],
                       data_bytes));
    Entry entry{std::string{name_}, DType::u8, {}, offsets[0], offsets[1]};
    const auto known = std::ranges::find(type_names, type, &TypeName::name);
    if (known == type_names.end() || extents.size() > Shape::most_dimensions) {
      entry.shape = {static_cast<std::int64_t>(offsets[1] - offsets[0])};
      entry.foreign = excerpt(fmt::format("{}[{}]", type, fmt::join(extents, ", ")));
      return entry;
    }
    entry.dtype = known->dtype;
    entry.shape = shape_of(extents);
    require_size(entry);
    return entry;
  }

 private:
  const OrderedJson& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) fail(fmt::format("has no {}", key));
    return *found;
  }

  const std::string& type_text() const {
    const OrderedJson& given = field("dtype");
    if (!given.is_string()) fail("expected the name of a type as its dtype", given);
    return given.get_ref<const std::string&>();
  }

  Shape shape_of(const std::vector<std::uint64_t>& extents) const {
    Shape shape;
    for (const std::uint64_t extent : extents) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail("expected a shape that memory can hold", field("shape"));
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    return shape;
  }

  std::vector<std::uint64_t> numbers(const char* key) const {
    const OrderedJson& given = field(key);
    const bool right = given.is_array() && std::all_of(given.begin(), given.end(), [](const OrderedJson& each) {
                         return each.is_number_unsigned();
                       });
    if (!right) fail(fmt::format("expected a list of whole numbers as its {}", key), given);
    return given.get<std::vector<std::uint64_t>>();
  }

  /// Compares the bytes by division, because a product may overflow.
  void require_size(const Entry& entry) const {
    const std::uint64_t bytes = entry.end - entry.begin, element = size_of(entry.dtype);
    std::optional<std::int64_t> count;
    try {
      count = element_count(entry.shape);
    } catch (const InvalidArgument&) {
    }
    if (!count || bytes % element != 0 || bytes / element != static_cast<std::uint64_t>(*count))
      fail(fmt::format("its {} bytes are not those of {}", bytes, describe(entry)));
  }

  [[noreturn]] void fail(std::string_view what) const {
    fail_checkpoint(source_, fmt::format("entry {}: {}", shown(name_), what));
  }
  [[noreturn]] void fail(std::string_view what, const OrderedJson& given) const {
    fail(fmt::format("{}, got {}", what, shown(given)));
  }

  std::string_view name_;
  const OrderedJson& fields_;
  std::string_view source_;
};

WeightsMetadata metadata_in(const OrderedJson& value, std::string_view source) {
  if (value.is_null()) return {};  // as the format's own programs read it
  const bool right = value.is_object() &&
                     std::all_of(value.begin(), value.end(), [](const OrderedJson& each) { return each.is_string(); });
  if (!right) fail_checkpoint(source, fmt::format("{}: expected texts by name, got {}", metadata_key, shown(value)));
  WeightsMetadata metadata;
  for (const auto& [name, text] : value.items())
    if (name != writer_key || text != writer) metadata.emplace(name, text.get<std::string>());
  return metadata;
}

/// Every byte of the data must belong to exactly one entry. `entries` are in the order of their bytes.
void require_no_gaps(std::span<const Entry> entries, std::uint64_t data_bytes, std::string_view source) {
  const auto require_next_at = [&](std::uint64_t end, std::uint64_t begin) {
    if (begin > end) fail_checkpoint(source, fmt::format("bytes {} to {} of its data belong to no entry", end, begin));
  };
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin < end)
      fail_checkpoint(source, fmt::format("entry {} begins at byte {} of the data, inside another that ends at {}",
                                          shown(entry.name), entry.begin, end));
    require_next_at(end, entry.begin);
    end = entry.end;
  }
  require_next_at(end, data_bytes);
}

}  // namespace

std::string describe(const Entry& entry) {
  if (!entry.foreign.empty()) return entry.foreign;
  return fmt::format("{}{}", lockstep::name_of(entry.dtype), excerpt(lockstep::describe(entry.shape)));
}

void lay_out(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return size_of(a.dtype) > size_of(b.dtype); });
  std::uint64_t next = 0;
  for (Entry& entry : entries) {
    entry.begin = next;
    next += static_cast<std::uint64_t>(element_count(entry.shape)) * size_of(entry.dtype);
    entry.end = next;
  }
}

void require_writable(const WeightsMetadata& metadata) {
  if (metadata.contains(std::string{writer_key}))
    throw InvalidArgument{fmt::format("metadata called '{}', which says that lockstep wrote the file", writer_key)};
  for (const auto& [name, text] : metadata)
    if (!quoted(name) || !quoted(text))
      throw InvalidArgument{fmt::format("the metadata {} is no text in UTF-8", shown(name))};
}

std::string header_of(const Header& header, std::string_view source) {
  std::string json = std::string{own_begin};
  for (const auto& [name, text] : header.metadata)
    fmt::format_to(std::back_inserter(json), ",{}:{}", quoted(name).value(), quoted(text).value());
  json += '}';
  for (const Entry& entry : header.entries)
    fmt::format_to(std::back_inserter(json), R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   quoted_name(entry.name, source), name_in_file(entry.dtype), fmt::join(entry.shape, ","), entry.begin,
                   entry.end);
  json += '}';
  json.resize((json.size() + alignment - 1) / alignment * alignment, ' ');
  const std::uint64_t length = json.size();
  if (length > longest_header)
    fail_checkpoint(source, fmt::format("would begin with a header of {} bytes; expected at most {}, as the "
                                        "safetensors format has it",
                                        length, longest_header));
  json.insert(0, length_bytes, '\0');
  std::memcpy(json.data(), &length, length_bytes);
  return json;
}

std::uint64_t header_length(std::span<const std::byte, length_bytes> first_bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), length_bytes);
  return length;
}

Header parse_header(std::string_view header, std::uint64_t data_bytes, std::string_view source) {
  Header parsed;
  const auto take = [&](const std::string& name, const OrderedJson& value) {
    if (name == metadata_key)
      parsed.metadata = metadata_in(value, source);
    else
      parsed.entries.push_back(EntryReader{name, value, source}.read(data_bytes));
  };
  try {
    parse_foreign_members(header, take);
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    fail_checkpoint(source, fmt::format("its header {}; expected a file in the safetensors format", error.what()));
  }
  std::stable_sort(parsed.entries.begin(), parsed.entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair{a.begin, a.end} < std::pair{b.begin, b.end};
  });
  require_no_gaps(parsed.entries, data_bytes, source);
  return parsed;
}

}  // namespace lockstep::safetensors
