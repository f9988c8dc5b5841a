#include "checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>

#include "checkpoint/failure.hpp"

namespace lockstep::safetensors {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the file is written and read as memory has it");

constexpr std::string_view metadata_key = "__metadata__";
constexpr std::string_view metadata = R"({"writer":"lockstep"})";

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

/// The part of a header that goes into a message.
std::string shown(const Json& value) {
  constexpr std::size_t longest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > longest) text.replace(longest, std::string::npos, "...");
  return text;
}

/// The name of an entry, as JSON.
std::string quoted(const std::string& name, std::string_view source) {
  try {
    return Json(name).dump();
  } catch (const Json::exception&) {
    fail_checkpoint(source, fmt::format("the name {} is no text in UTF-8", shown(name)));
  }
}

/// Reads one entry of a header, or says what is wrong with it.
class EntryReader {
 public:
  EntryReader(std::string_view name, const Json& fields, std::string_view source)
      : name_{name}, fields_{fields}, source_{source} {}

  Entry read(std::uint64_t data_bytes) const {
    if (!fields_.is_object() || fields_.size() != 3)
      fail(R"(expected {"dtype": …, "shape": …, "data_offsets": …})", fields_);
    Entry entry{std::string{name_}, dtype(), shape(), 0, 0};
    const std::vector<std::uint64_t> offsets = numbers("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      fail("expected the data_offsets [begin, end]", field("data_offsets"));
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.end > data_bytes)
      fail(fmt::format("ends at byte {} of the data, of which there are {}; expected the whole file", entry.end,
                       data_bytes));
    require_size(entry);
    return entry;
  }

 private:
  const Json& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) fail(fmt::format("has no {}", key));
    return *found;
  }

  DType dtype() const {
    const Json& given = field("dtype");
    for (const TypeName& each : type_names)
      if (given == each.name) return each.dtype;
    std::vector<std::string_view> known;
    for (const TypeName& each : type_names) known.push_back(each.name);
    fail(fmt::format("expected one of the types {}", fmt::join(known, ", ")), given);
  }

  Shape shape() const {
    Shape shape;
    for (const std::uint64_t extent : numbers("shape")) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail("expected a shape that memory can hold", field("shape"));
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    return shape;
  }

  std::vector<std::uint64_t> numbers(const char* key) const {
    const Json& given = field(key);
    const bool right = given.is_array() && std::all_of(given.begin(), given.end(),
                                                       [](const Json& each) { return each.is_number_unsigned(); });
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
  [[noreturn]] void fail(std::string_view what, const Json& given) const {
    fail(fmt::format("{}, got {}", what, shown(given)));
  }

  std::string_view name_;
  const Json& fields_;
  std::string_view source_;
};

Json parse_json(std::string_view header, std::string_view source) {
  using Event = Json::parse_event_t;
  constexpr int deepest = 2;                // the lists of an entry
  std::vector<std::set<std::string>> keys;  // of the objects that the parser is inside of
  try {
    return Json::parse(header, [&](int depth, Event event, Json& parsed) {
      if ((event == Event::object_start || event == Event::array_start) && depth > deepest)
        fail_checkpoint(source, "its header is nested deeper than that of a file in the safetensors format");
      if (event == Event::object_start) keys.emplace_back();
      if (event == Event::object_end) keys.pop_back();
      // The parser would silently keep the last one.
      if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
        fail_checkpoint(source, fmt::format("the key {} is twice in its header; expected it once", shown(parsed)));
      return true;
    });
  } catch (const Json::exception&) {
    fail_checkpoint(source, "its header is no JSON; expected a file in the safetensors format");
  }
}

bool is_metadata(const Json& value) {
  return value.is_object() &&
         std::all_of(value.begin(), value.end(), [](const Json& each) { return each.is_string(); });
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
  return fmt::format("{}{}", lockstep::name_of(entry.dtype), to_string(entry.shape));
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

std::string header_of(std::span<const Entry> entries, std::string_view source) {
  std::string json = fmt::format(R"({{"{}":{})", metadata_key, metadata);
  for (const Entry& entry : entries) {
    if (entry.name == metadata_key)
      fail_checkpoint(source,
                      fmt::format("no entry can be called {}: the format has that name for itself", metadata_key));
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(entry.name, source),
                        name_in_file(entry.dtype), fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  json += '}';
  json.resize((json.size() + alignment - 1) / alignment * alignment, ' ');
  const std::uint64_t length = json.size();
  std::string header(length_bytes, '\0');
  std::memcpy(header.data(), &length, length_bytes);
  return header + json;
}

std::uint64_t header_length(std::span<const std::byte, length_bytes> first_bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), length_bytes);
  return length;
}

std::vector<Entry> parse_header(std::string_view header, std::uint64_t data_bytes, std::string_view source) {
  const Json root = parse_json(header, source);
  if (!root.is_object())
    fail_checkpoint(source, "its header is no JSON object; expected a file in the safetensors format");
  std::vector<Entry> entries;
  for (const auto& [name, value] : root.items()) {
    if (name != metadata_key) {
      entries.push_back(EntryReader{name, value, source}.read(data_bytes));
    } else if (!is_metadata(value)) {
      fail_checkpoint(source, fmt::format("{}: expected texts by name, got {}", metadata_key, shown(value)));
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair{a.begin, a.end} < std::pair{b.begin, b.end};
  });
  require_no_gaps(entries, data_bytes, source);
  return entries;
}

}  // namespace lockstep::safetensors
