#include "runtime/job_texts.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

std::vector<std::string> gather_texts(ControlChannel& channel, const std::string& text) {
  const auto [longest, unused] = channel.max({text.size(), 0});
  std::string mine = text;
  mine.resize(longest + 1);
  std::string all(mine.size() * static_cast<std::size_t>(channel.size()), '\0');
  channel.all_gather(std::as_bytes(std::span{mine}), std::as_writable_bytes(std::span{all}));
  std::vector<std::string> texts;
  for (std::size_t first = 0; first < all.size(); first += mine.size()) texts.emplace_back(all.data() + first);
  return texts;
}

std::string broadcast_text(ControlChannel& channel, std::string text) {
  const auto [size, unused] = channel.max({channel.rank() == 0 ? text.size() : 0, 0});
  text.resize(size);
  channel.broadcast(std::as_writable_bytes(std::span{text}), 0);
  return text;
}

}  // namespace lockstep
