// SPDX-License-Identifier: MIT
// A cache of library objects by (spec, rows) with linear search. Objects are made at their first
// use. For each spec, only the few most recently used numbers of rows are kept, so that odd last
// batches do not accumulate. Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::engine::cpu {

template <class Spec, class Entry>
class ShapeCache {
 public:
  static constexpr std::size_t kMostRowsOfASpec = 4;

  // Returns the entry. If there is none, `make()` creates it as a std::unique_ptr<Entry>. The
  // reference is valid until the next call.
  template <class Make>
  Entry& find(const Spec& spec, std::size_t rows, Make make) {
    ++clock_;
    std::size_t same_spec = 0;
    Item* oldest = nullptr;
    for (Item& item : items_) {
      if (!(item.spec == spec)) continue;
      if (item.rows == rows) {
        item.used = clock_;
        return *item.entry;
      }
      ++same_spec;
      if (oldest == nullptr || item.used < oldest->used) oldest = &item;
    }
    std::unique_ptr<Entry> made = make();
    if (same_spec < kMostRowsOfASpec) {
      items_.push_back({});
      oldest = &items_.back();
    }
    *oldest = {spec, rows, clock_, std::move(made)};
    return *oldest->entry;
  }
  std::size_t size() const { return items_.size(); }

 private:
  struct Item {
    Spec spec;
    std::size_t rows = 0;
    std::uint64_t used = 0;
    std::unique_ptr<Entry> entry;
  };
  std::vector<Item> items_;
  std::uint64_t clock_ = 0;
};

}  // namespace lockstep::engine::cpu
