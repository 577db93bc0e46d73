// SPDX-License-Identifier: MIT
#include "test/fuzz/damage.h"

#include <random>

namespace lockstep::test {

// Cuts one text in three, flips a bit in another one, and changes several bytes of the third,
// perhaps with a cut. Changes favor the front, which holds headers.
std::string damaged(const std::string& whole, std::uint64_t number) {
  std::mt19937_64 random(number + 1);
  std::string text = whole;
  const auto below = [&](std::size_t bound) { return std::size_t(random() % bound); };
  const auto cut = [&] { text.resize(below(text.size())); };
  const auto place = [&] { return below(1 + below(text.size())); };
  const auto flip = [&] {
    char& byte = text[place()];
    byte = char(byte ^ 1 << below(8));
  };
  if (number % 3 == 0) {
    cut();
  } else if (number % 3 == 1) {
    flip();
  } else {
    for (std::size_t changes = 1 + below(16); changes > 0; --changes) {
      constexpr char kExtremes[] = {'\0', '\x7f', '\x80', '\xff', '"', '{', '[', ',', '9', '-'};
      if (below(2) == 0) {
        flip();
      } else {
        text[place()] = kExtremes[below(sizeof kExtremes)];
      }
    }
    if (below(4) == 0) cut();
  }
  return text;
}

}  // namespace lockstep::test
