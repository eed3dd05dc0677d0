// Uniform subsets as tacit/sampling/subset.py defines them, bit for bit; see compiled_subset.py.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

#include "chacha_blocks.h"

namespace {

// The words of a key's stream in order: block by block, under the nonce 0.
class Stream {
   public:
    explicit Stream(const uint32_t* key) {
        const uint32_t nonce[3] = {};
        chacha::write_start(start_, key, nonce);
    }

    // At least one and at most `limit` further words; `count` becomes how many.
    const uint32_t* take(int64_t limit, int64_t& count) {
        if (at_ == kHeld) refill();
        count = std::min<int64_t>(limit, kHeld - at_);
        at_ += count;
        return held_ + at_ - count;
    }

   private:
    static constexpr int64_t kHeld = chacha::kLanes * chacha::kWords;

    void refill() {
        chacha::Words words[chacha::kWords];
        chacha::compute_blocks(words, start_, counter_);
        for (int lane = 0; lane < chacha::kLanes; ++lane)
            for (int i = 0; i < chacha::kWords; ++i) held_[lane * chacha::kWords + i] = words[i][lane];
        counter_ += chacha::kLanes;
        at_ = 0;
    }

    uint32_t start_[chacha::kWords], held_[kHeld];
    uint32_t counter_ = 0;
    int64_t at_ = kHeld;
};

// Calls visit(position, accepted) for each of `count` words; what is not accepted must leave no trace.
template <class Visit>
inline void for_positions(Stream& stream, uint64_t examples, int64_t count, Visit visit) {
    const uint32_t threshold = (uint64_t(1) << 32) % examples;
    while (count > 0) {
        int64_t taken;
        const uint32_t* words = stream.take(count, taken);
        for (int64_t i = 0; i < taken; ++i) {
            const uint64_t product = words[i] * examples;
            visit(product >> 32, uint32_t(product) >= threshold);
        }
        count -= taken;
    }
}

// Distinct positions one after another in `out`, then sorted: a round ends with all that it found in order.
void sort_subset(Stream& stream, uint64_t examples, int64_t size, int64_t* out) {
    for (int64_t found = 0; found < size;) {
        int64_t* end = out + found;
        for_positions(stream, examples, size - found, [&](uint64_t position, bool accepted) {
            *end = position;
            end += accepted;
        });
        std::sort(out, end);
        found = std::unique(out, end) - out;
    }
}

// One bit for each example in `marks`; those of the subset, or of its complement where that is smaller, are set.
void mark_subset(Stream& stream, uint64_t examples, int64_t size, uint64_t* marks, int64_t* out) {
    const int64_t words = (examples + 63) / 64, rest = int64_t(examples) - size, marked = std::min(size, rest);
    std::memset(marks, 0, words * sizeof *marks);
    for (int64_t found = 0; found < marked;)
        for_positions(stream, examples, marked - found, [&](uint64_t position, bool accepted) {
            uint64_t& mark = marks[position / 64];
            const uint64_t before = mark;
            mark |= uint64_t(accepted) << position % 64;
            found += mark != before;
        });
    const uint64_t flip = marked < size ? ~uint64_t(0) : 0;
    for (int64_t word = 0; word < words; ++word) {
        uint64_t left = marks[word] ^ flip;
        if (word == words - 1 && examples % 64) left &= (uint64_t(1) << examples % 64) - 1;
        for (; left; left &= left - 1) *out++ = 64 * word + __builtin_ctzll(left);
    }
}

void draw_subsets(
    int64_t lots, int64_t examples, int64_t sparse, const int64_t* sizes, const uint32_t* keys, uint64_t* marks,
    int64_t* out
) {
    for (int64_t lot = 0; lot < lots; out += sizes[lot++]) {
        Stream stream(keys + 8 * lot);
        if (sizes[lot] < sparse)
            sort_subset(stream, examples, sizes[lot], out);
        else
            mark_subset(stream, examples, sizes[lot], marks, out);
    }
}

}  // namespace

// Begins to draw the subsets of `lots` steps, one after another in `out`, in a thread of its own; what it returns is for
// `tacit_end_subsets`. `examples` is at most 2^32, each size at most `examples`; a step has eight words of `keys`. Sizes
// below `sparse`, at most half of the examples, are sorted; for all others `marks` has room for a bit for each example.
extern "C" void* tacit_begin_subsets(
    int64_t lots, int64_t examples, int64_t sparse, const int64_t* sizes, const uint32_t* keys, uint64_t* marks,
    int64_t* out
) {
    try {
        return new std::thread(draw_subsets, lots, examples, sparse, sizes, keys, marks, out);
    } catch (...) {  // no thread is to be had
        draw_subsets(lots, examples, sparse, sizes, keys, marks, out);
        return nullptr;
    }
}

// Waits for the subsets.
extern "C" void tacit_end_subsets(void* drawing) {
    auto* thread = static_cast<std::thread*>(drawing);
    if (thread) thread->join();
    delete thread;
}
