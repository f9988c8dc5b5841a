// A control channel on which one rank is real, and the others say what a test wrote down for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/control/channel.hpp"
#include "core/control/tag.hpp"

namespace lockstep::test {

/// One agreement as the other ranks come to it. A rank without a tag comes with the same as the real one.
struct Meeting {
  std::map<int, Tag> others = {};
  std::string broadcast = {};  ///< what the root sends, where that is another rank
};

/// The script of a channel and, afterwards, its record. A test holds it; the channel only refers to it.
struct Script {
  int rank = 0;
  int size = 3;
  std::deque<Meeting> meetings = {};         ///< to come; where there is none, every rank agrees
  std::array<bool, 2> others_say = {};       ///< their answers to the questions of an agreement
  std::function<void()> during_max = [] {};  ///< runs while the real rank waits for the others
  std::vector<std::string> calls = {};       ///< "max", "all_gather", "broadcast from 2"
  std::vector<Tag> gathered = {};            ///< the real rank's tags, where it had to show them
  std::string sent = {};                     ///< the bytes the real rank broadcast last
};

class ScriptedChannel final : public ControlChannel {
 public:
  explicit ScriptedChannel(Script& script) : script_{script} {}

  int rank() const override { return script_.rank; }
  int size() const override { return script_.size; }

  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    script_.calls.push_back("max");
    script_.during_max();
    now_ = {};
    if (!script_.meetings.empty()) {
      now_ = script_.meetings.front();
      script_.meetings.pop_front();
    }
    const std::array<std::uint64_t, 2> said{script_.others_say[0], script_.others_say[1]};
    words = {words[0] | said[0], words[1] | said[1]};
    for (const auto& [rank, tag] : now_.others) {
      words[0] = std::max(words[0], tag.digest() | said[0]);
      words[1] = std::max(words[1], (~tag.digest() & ~std::uint64_t{1}) | said[1]);
    }
    return words;
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    script_.calls.push_back("all_gather");
    if (mine.size() != sizeof(Tag) || all.size() != sizeof(Tag) * static_cast<std::size_t>(script_.size))
      throw std::logic_error{"a meeting gathers one tag a rank"};
    Tag own;
    std::memcpy(&own, mine.data(), sizeof own);
    script_.gathered.push_back(own);
    for (int rank = 0; rank < script_.size; ++rank) {
      const auto other = now_.others.find(rank);
      const Tag& tag = other == now_.others.end() ? own : other->second;
      std::memcpy(all.data() + sizeof(Tag) * static_cast<std::size_t>(rank), &tag, sizeof tag);
    }
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    script_.calls.push_back("broadcast from " + std::to_string(root));
    if (root == script_.rank) {
      script_.sent.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      std::memcpy(bytes.data(), now_.broadcast.data(), std::min(bytes.size(), now_.broadcast.size()));
    }
  }

  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>& words) override {
    words = max(words);
    return make_done_exchange();
  }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    all_gather(mine, all);
    return make_done_exchange();
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) override {
    broadcast(bytes, root);
    return make_done_exchange();
  }

  std::unique_ptr<ControlChannel> subset(std::span<const int>, std::uint64_t) override {
    throw std::logic_error{"no script for some of the ranks"};
  }

 private:
  Script& script_;
  Meeting now_;
};

}  // namespace lockstep::test
