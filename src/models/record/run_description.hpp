// What run.json says.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/foreign_json.hpp"

namespace lockstep {

/// COLL, blocking, one agreement. Who the ranks are: [{"replica","task","host","device","process"},…].
OrderedJson gather_ranks(Strategy& strategy, const Here& here);

/// What this process knows of a run that begins now: {"format","lockstep","program","command","cluster","mpi","ranks",
/// "paths","started","ended","result","starts"}, and "options", "fingerprint" and "data" without contents.
OrderedJson describe_run(OrderedJson ranks);

/// Now, such as "2026-11-26T14:05:09Z".
std::string time_text();

/// `path`, not empty, for a file in `folder`: relative to it if it is inside, else absolute.
std::string path_in(const std::filesystem::path& folder, const std::filesystem::path& path);

/// The object in `text`. InvalidArgument, which calls it `what`, if it is none.
OrderedJson parse_object(std::string_view text, const char* what);

/// What run.json may hold at most: far more than what is said of 10,000 ranks and their data.
inline constexpr std::size_t longest_description = std::size_t{16} << 20;

/// run.json of an earlier start. An empty object if there is none, or what a crash of the machine left. ConfigError for
/// a file of something else; FileError if it cannot be read.
OrderedJson read_description(const std::filesystem::path& path, const std::string& name);

}  // namespace lockstep
