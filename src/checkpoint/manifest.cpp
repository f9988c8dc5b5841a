#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/digest.hpp>

#include "checkpoint/failure.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t format = 1;

std::uint64_t digest_from(const std::string& hex) {
  std::uint64_t digest = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), digest, 16);
  if (error != std::errc{} || hex.size() != 16 || end != hex.data() + hex.size())
    throw Error{fmt::format("the digest '{}'; expected 16 hexadecimal digits", hex)};
  return digest;
}

template <class Number>
Number number_from(const Json& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{1} << 62)
    throw Error{fmt::format("\"{}\": {}; expected a whole number", key, value.dump())};
  return value.get<Number>();
}

/// Files are looked for in the checkpoint's folder only.
std::string file_name_from(const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    throw Error{fmt::format("a file called '{}'", name)};
  return name;
}

/// Of everything in the manifest but this itself.
std::string digest_of_content(const Json& json) {
  Json content = json;
  content.erase("digest");
  return to_hex(digest_of(content.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  manifest.program = json.value("program", "");
  manifest.step = number_from<std::int64_t>(json, "step");
  if (const auto best = json.find("best"); best != json.end())
    manifest.best = {number_from<std::int64_t>(*best, "step"), best->at("loss").get<double>()};
  for (const auto& [key, value] : json.at("training").items())
    manifest.training.emplace_back(key, value.get<std::string>());
  manifest.kernels = json.at("kernels").get<std::string>();
  for (const auto& [key, value] : json.at("state").items()) manifest.state.emplace(key, value.get<std::string>());
  for (const auto& [name, file] : json.at("files").items()) {
    Manifest::File& added = manifest.files.emplace_back();
    added.name = file_name_from(name);
    added.bytes = number_from<std::uint64_t>(file, "bytes");
    for (const auto& [tensor, digest] : file.at("digests").items())
      added.digests.emplace_back(tensor, digest_from(digest.get<std::string>()));
  }
  return manifest;
}

}  // namespace

const Manifest::File* Manifest::file(std::string_view name) const {
  const auto found = std::ranges::find(files, name, &File::name);
  return found == files.end() ? nullptr : &*found;
}

std::string to_json(const Manifest& manifest) {
  Json training = Json::object(), files = Json::object();
  for (const auto& [key, value] : manifest.training) training[key] = value;
  for (const Manifest::File& file : manifest.files) {
    Json digests = Json::object();
    for (const auto& [name, digest] : file.digests) digests[name] = to_hex(digest);
    files[file.name] = {{"bytes", file.bytes}, {"digests", std::move(digests)}};
  }
  Json json{{"format", format}, {"program", manifest.program}, {"step", manifest.step}};
  if (manifest.best) json["best"] = {{"step", manifest.best->step}, {"loss", manifest.best->loss}};
  json["training"] = std::move(training);
  json["kernels"] = manifest.kernels;
  json["state"] = manifest.state.empty() ? Json::object() : Json(manifest.state);
  json["files"] = std::move(files);
  json["digest"] = digest_of_content(json);
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

Manifest parse_manifest(std::string_view json, std::string_view source) {
  try {
    const Json parsed = Json::parse(json);
    if (const auto version = number_from<std::int64_t>(parsed, "format"); version > format)
      fail_checkpoint(source, fmt::format("was written in format {} by {}; this is lockstep " LOCKSTEP_VERSION
                                          ", which reads up to format {}",
                                          version, parsed.value("program", "a program without a name"), format));
    Manifest manifest = from_json(parsed);
    if (parsed.value("digest", "") != digest_of_content(parsed))
      fail_checkpoint(source, "has been altered: its digest is another");
    return manifest;
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    fail_checkpoint(source, fmt::format("is no manifest: {}", error.what()));
  }
}

std::string difference(const TrainingFacts& there, const TrainingFacts& here) {
  const auto value_in = [](const TrainingFacts& facts, const std::string& key) {
    const auto found = std::ranges::find(facts, key, &TrainingFacts::value_type::first);
    return found == facts.end() ? std::string{"none"} : found->second;
  };
  for (const TrainingFacts* const facts : {&here, &there})
    for (const auto& [key, unused] : *facts)
      if (const std::string theirs = value_in(there, key), ours = value_in(here, key); theirs != ours)
        return fmt::format("is of a training with {} {}, and this one has {}", key, theirs, ours);
  return {};
}

}  // namespace lockstep
