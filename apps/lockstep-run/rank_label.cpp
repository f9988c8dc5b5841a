#include "apps/lockstep-run/rank_label.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace lockstep::run {
namespace {

constexpr std::string_view digits_of_label = "0123456789";
constexpr std::size_t longest_label = 300;  // Open MPI 5 names its host, and a pattern of MPICH's may

enum class Fit : std::uint8_t {
  no,
  yes,
  so_far,  ///< the line ends where it may go on
};

bool is_of_word(char letter) {
  const auto is_in = [=](char first, char last) { return letter >= first && letter <= last; };
  return is_in('0', '9') || is_in('a', 'z') || is_in('A', 'Z') ||
         std::string_view{"-_.@"}.find(letter) != std::string_view::npos;
}

/// Takes the longest run of some characters off `rest`.
template <class Is>
Fit take_run(std::string_view& rest, const Is& is) {
  const auto end = std::ranges::find_if_not(rest, is);
  const auto length = static_cast<std::size_t>(end - rest.begin());
  if (length == rest.size()) return Fit::so_far;
  rest.remove_prefix(length);
  return length > 0 ? Fit::yes : Fit::no;
}

Fit take_text(std::string_view& rest, std::string_view text) {
  const std::string_view there = rest.substr(0, text.size());
  if (!text.starts_with(there)) return Fit::no;
  rest.remove_prefix(there.size());
  return there.size() < text.size() ? Fit::so_far : Fit::yes;
}

Fit take_one_of(std::string_view& rest, std::initializer_list<std::string_view> texts) {
  for (const std::string_view text : texts)
    if (const Fit fit = take_text(rest, text); fit != Fit::no) return fit;
  return Fit::no;
}

Fit take_pattern(std::string_view& rest, std::string_view pattern);

/// What follows a percent sign.
Fit take_class(std::string_view& rest, char letter) {
  switch (letter) {
    case 'r':
    case 'p':
    case 'g': return take_run(rest, [](char each) { return digits_of_label.find(each) != std::string_view::npos; });
    case 'h': return take_run(rest, is_of_word);
    case 's': return take_run(rest, [](char each) { return each == ' '; }) == Fit::so_far ? Fit::so_far : Fit::yes;
    case 'd': return take_one_of(rest, {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"});
    case 'm':
      return take_one_of(rest, {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"});
    case 't': return take_pattern(rest, "%d %m%s%r %r:%r:%r %r");
    default: return take_text(rest, {&letter, 1});
  }
}

Fit take_pattern(std::string_view& rest, std::string_view pattern) {
  while (!pattern.empty()) {
    const bool is_class = pattern.size() > 1 && pattern.front() == '%';
    const Fit fit = is_class ? take_class(rest, pattern[1]) : take_text(rest, pattern.substr(0, 1));
    if (fit != Fit::yes) return fit;
    pattern.remove_prefix(is_class ? 2 : 1);
  }
  return Fit::yes;
}

}  // namespace

RankLabels::RankLabels()
    : patterns_{"[%r] ",                                   // MPICH
                "%s%r: ",                                  // srun, which aligns the numbers
                "[%r,%r]<stderr>:",                        // Open MPI 4, and below 5, which adds a blank
                "%t<stderr>:",                             //
                "%t[%r,%r]<stderr>:",                      //
                "[%r]<stderr>: ",                          //
                "[%t]<stderr>: ",                          //
                "[%t][%r]<stderr>: ",                      //
                "[%r,%r]<stderr>: ",                       //
                "[%t][%r,%r]<stderr>: ",                   //
                "[%r,%r][%h:%r]<stderr>: ",                //
                "[%t]<stderr>: [%r,%r][%h:%r]<stderr>: ",  //
                "[%h,%r]<stderr>: ",                       //
                "[%t]<stderr>: [%h,%r]<stderr>: "} {}

void RankLabels::add(std::string pattern) {
  if (!pattern.empty()) patterns_.push_back(std::move(pattern));
}

void RankLabels::learn(std::string_view label) {
  if (label.size() > longest_label) return;
  std::string pattern;
  while (!label.empty()) {
    const auto word = static_cast<std::size_t>(std::ranges::find_if_not(label, is_of_word) - label.begin());
    if (word > 0) {
      const bool is_number = label.substr(0, word).find_first_not_of(digits_of_label) == label.npos;
      pattern += is_number ? "%r" : "%h";
      label.remove_prefix(word);
    } else {
      pattern += label.front() == ' ' ? "%s" : std::string{'%', label.front()};
      label.remove_prefix(label.front() == ' ' ? std::min(label.find_first_not_of(' '), label.size()) : 1);
    }
  }
  add(std::move(pattern));
}

std::optional<std::size_t> RankLabels::length(std::string_view line) const {
  std::size_t longest = 0;
  for (const std::string& pattern : patterns_) {
    std::string_view rest = line;
    switch (take_pattern(rest, pattern)) {
      case Fit::no: break;
      case Fit::yes: longest = std::max(longest, line.size() - rest.size()); break;
      case Fit::so_far:
        if (line.size() < longest_label) return std::nullopt;
        break;
    }
  }
  return longest;
}

}  // namespace lockstep::run
