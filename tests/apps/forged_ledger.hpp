// Ledgers that somebody has changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <xxhash.h>

#include "support/training_job.hpp"

namespace lockstep::test {

/// The options of a training with checkpoints after steps 4, 8 and 9, and entries of the ledger for steps 3, 6 and 9.
inline Arguments recorded(const std::filesystem::path& folder) {
  return {"--data", small_data(),         "--hidden", "16",       "--steps", "9",         "--global-batch",
          "64",     "--checkpoint-every", "4",        "--ledger", "3",       "--run-dir", folder.string()};
}

inline std::string to_hex16(std::uint64_t number) {
  return fmt::format("{:016x}", number);
}

/// What somebody would do who wants a false ledger to look right: changes `from` to `to`, and all chains after it.
inline void forge(const std::filesystem::path& ledger, const std::string& from, const std::string& to) {
  std::ifstream in{ledger};
  std::string forged, chain, line;
  bool found = false;
  while (std::getline(in, line)) {
    if (const auto at = line.find(from); at != line.npos) {
      line.replace(at, from.size(), to);
      found = true;
    }
    line.resize(line.find(",\"chain\""));
    const std::string all = chain + line;
    chain = to_hex16(XXH64(all.data(), all.size(), 0));
    forged += fmt::format("{},\"chain\":\"{}\"}}\n", line, chain);
  }
  REQUIRE(found);
  std::ofstream{ledger} << forged;
}

/// The text between two others, in the line of the ledger that contains `which`.
inline std::string in_line(const std::filesystem::path& ledger, const std::string& which, const std::string& before) {
  for (const std::string& line : lines_starting_with(read_file(ledger), "{")) {
    if (line.find(which) == line.npos) continue;
    const auto begin = line.find(before) + before.size();
    return line.substr(begin, 16);
  }
  return {};
}

/// Changes the gradient of the last layer's bias in shard 5 of step 6, in both files, so that they agree.
inline void forge_shard(const std::filesystem::path& run) {
  const std::filesystem::path shards = run / "ledger.shards.jsonl";
  Json line = Json::parse(lines_starting_with(read_file(shards), "{\"step\":6,").at(0));
  auto digests = line["shards"][5].get<std::string>();
  const std::string before = digests;
  digests.replace(16, 16, "fedcba9876543210");  // after that of the samples
  std::string text = read_file(shards);
  text.replace(text.find(before), before.size(), digests);
  std::ofstream{shards} << text;
  line["shards"][5] = digests;
  std::vector<std::uint64_t> all;
  for (const Json& each : line["shards"])
    for (std::size_t at = 0; at < each.get<std::string>().size(); at += 16)
      all.push_back(std::stoull(each.get<std::string>().substr(at, 16), nullptr, 16));
  const std::filesystem::path ledger = run / "ledger.jsonl";
  forge(ledger, in_line(ledger, "{\"step\":6,\"samples\"", "\"shards\":\""),
        to_hex16(XXH64(all.data(), 8 * all.size(), 0)));
}

}  // namespace lockstep::test
