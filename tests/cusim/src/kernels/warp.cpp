#include "kernels/warp.hpp"

#include <string_view>

#include <fmt/format.h>

namespace cusim {

const char* name_of(LaneCall::Kind kind) {
  switch (kind) {
    case LaneCall::Kind::barrier: return "__syncwarp";
    case LaneCall::Kind::shuffle: return "a shuffle";
    case LaneCall::Kind::ballot: return "a vote";
    case LaneCall::Kind::none: break;
  }
  return "nothing";
}

std::string text_of(device::Place place) {
  const std::string_view path{place.file};
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), place.line);
}

void Warp::begin(unsigned lanes) {
  present_ = lanes == 32 ? 0xffffffff : (1u << lanes) - 1;
  waiting_ = 0;
  order.restart();
}

std::string Warp::call(unsigned lane, const LaneCall& call) {
  if (!(call.mask >> lane & 1))
    return fmt::format("calls {} ({}) with mask {:#010x}, which lacks its own lane {}", name_of(call.kind),
                       text_of(call.place), call.mask, lane);
  if (call.width == 0 || call.width > 32 || (call.width & (call.width - 1)) != 0)
    return fmt::format("shuffles with width {} ({}): not a power of two up to 32", call.width, text_of(call.place));
  for (unsigned other = 0; other < 32; ++other) {
    const LaneCall& theirs = calls_[other];
    // Two that wait for each other must be in the same call. Others may come to this one later.
    if (!(waiting_ & call.mask & 1u << other) || !(theirs.mask >> lane & 1)) continue;
    if (theirs.mask != call.mask)
      return fmt::format("calls {} with mask {:#010x} ({}), where lane {} is in {} with mask {:#010x} ({})",
                         name_of(call.kind), call.mask, text_of(call.place), other, name_of(theirs.kind), theirs.mask,
                         text_of(theirs.place));
    if (theirs.kind != call.kind || theirs.shuffle != call.shuffle)
      return fmt::format("calls {} ({}), where lane {} of its mask is in {} ({})", name_of(call.kind),
                         text_of(call.place), other, name_of(theirs.kind), text_of(theirs.place));
  }
  calls_[lane] = call;
  waiting_ |= 1u << lane;
  return {};
}

bool Warp::is_complete(unsigned lane) const {
  const LaneCall& mine = calls_[lane];
  if ((mine.mask & present_ & ~waiting_) != 0) return false;
  for (unsigned other = 0; other < 32; ++other)
    if (mine.mask & present_ & 1u << other && (calls_[other].mask != mine.mask || calls_[other].kind != mine.kind))
      return false;
  return true;
}

std::uint32_t Warp::complete(unsigned lane, std::string& wrong) {
  const LaneCall call = calls_[lane];
  const std::uint32_t lanes = call.mask & present_;
  if (call.kind == LaneCall::Kind::barrier) {
    order.join(lanes);
  } else if (call.kind == LaneCall::Kind::ballot) {
    std::uint32_t votes = 0;
    for (unsigned other = 0; other < 32; ++other)
      if (lanes >> other & 1 && calls_[other].value) votes |= 1u << other;
    for (unsigned other = 0; other < 32; ++other)
      if (lanes >> other & 1) calls_[other].value = votes;
  } else {
    std::array<std::uint64_t, 32> results{};
    for (unsigned other = 0; other < 32; ++other)
      if (lanes >> other & 1) results[other] = read_by(other, wrong);
    for (unsigned other = 0; other < 32; ++other)
      if (lanes >> other & 1) calls_[other].value = results[other];
  }
  waiting_ &= ~lanes;
  return lanes;
}

std::uint64_t Warp::read_by(unsigned lane, std::string& wrong) const {
  const LaneCall& call = calls_[lane];
  const unsigned first = lane & ~(call.width - 1);
  const unsigned end = first + call.width;
  unsigned source = lane;
  switch (call.shuffle) {
    case device::Shuffle::index: source = first + call.operand % call.width; break;
    case device::Shuffle::up: source = lane - first >= call.operand ? lane - call.operand : lane; break;
    case device::Shuffle::down: source = end - lane > call.operand ? lane + call.operand : lane; break;
    case device::Shuffle::exclusive_or:
      source = lane ^ call.operand;
      if (source >= end) source = lane;
      break;
  }
  if (!(call.mask >> source & 1))
    wrong = fmt::format("lane {} shuffles from lane {} ({}), which is not in the mask {:#010x}", lane, source,
                        text_of(call.place), call.mask);
  else if (!(present_ >> source & 1))
    wrong = fmt::format("lane {} shuffles from lane {} ({}), which has ended or does not exist", lane, source,
                        text_of(call.place));
  else
    return calls_[source].value;
  return 0;
}

}  // namespace cusim
