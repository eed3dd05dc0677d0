// The arithmetic of tacit/core/device_noise.py for float32 values on a CPU: the same words of ChaCha20, the same normals
// up to rounding, in the same places. Sixteen blocks at a time, one to a lane of a vector; see compiled_noise.py.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "chacha_blocks.h"

namespace {

using chacha::kLanes, chacha::Words;

constexpr int kBlocks = 128;  // in a tile: normal k of block j goes to value 128 k + j of the tile
constexpr int kPairs = 5;     // of normals in a block, of three words each; the sixteenth word is left over
constexpr int kTile = 2 * kPairs * kBlocks;
constexpr int64_t kWorthSharing = 16;  // tiles; fewer are done before another thread has woken up

typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));

inline Floats to_floats(Ints values) { return __builtin_convertvector(values, Floats); }

// sin of (turn + 1/2) 2^-30 quarter turns, at most one: the series, whose next term is below 1e-9 of the sum.
inline Floats sine(Ints turn) {
    constexpr float unit = 0.5 * 3.14159265358979323846 / (1 << 30);
    const Floats x = to_floats(turn) * unit + 0.5f * unit, y = x * x;
    Floats rest = y * float(1 / 6227020800.0) - float(1 / 39916800.0);
    rest = rest * y + float(1 / 362880.0);
    rest = rest * y - float(1 / 5040.0);
    rest = rest * y + float(1 / 120.0);
    rest = rest * y - float(1 / 6.0);
    return x + x * (y * rest);
}

// ln w for w in (0, 1], with full relative precision at 1: w = m 2^e with m from 0.71 to 1.41, and ln m = 2 artanh(s) by
// its series, whose next term is below 3e-9 of the sum.
inline Floats logarithm(Floats w) {
    constexpr int32_t half = 0x3f3504f3;  // the bits of sqrt(1/2)
    const Ints exponent = ((Ints)w - half) >> 23;
    const Floats m = (Floats)((Ints)w - exponent * (1 << 23));
    const Floats s = (m - 1.0f) / (m + 1.0f), y = s * s;
    Floats rest = y * float(2 / 9.0) + float(2 / 7.0);
    rest = rest * y + float(2 / 5.0);
    rest = rest * y + float(2 / 3.0);
    const Floats power = to_floats(exponent);
    // ln 2 in two parts: products with the first are exact.
    return power * 0.693359375f + (power * -2.12194440e-4f + (2.0f * s + s * (y * rest)));
}

// sqrt(-ln u), as `_compute_radii` in device_noise.py explains.
inline Floats radius(Ints high, Ints low) {
    const Floats v = to_floats(high - (low >> 31)) * 0x1p-32f + (to_floats(low) * 0x1p-64f + 0x1p-65f);
    const Floats floor = to_floats(v < 0.0f), rounded = v - floor;
    const Floats squared = (floor + rounded - v) - logarithm(rounded);
    Floats root;
    for (int lane = 0; lane < kLanes; ++lane) root[lane] = std::sqrt(squared[lane]);
    return root;
}

inline void add(float* place, Floats noise) {
    Floats held;
    std::memcpy(&held, place, sizeof held);
    held += noise;
    std::memcpy(place, &held, sizeof held);
}

void add_tile(float* values, float length, const uint32_t start[16], uint32_t counter) {
    constexpr int32_t top = (1 << 30) - 1;
    for (int at = 0; at < kBlocks; at += kLanes) {
        Words words[16];
        chacha::compute_blocks(words, start, counter + at);
        for (int pair = 0; pair < kPairs; ++pair) {
            const Ints angle = (Ints)words[3 * pair + 2], part = angle & top;
            const Floats r = radius((Ints)words[3 * pair], (Ints)words[3 * pair + 1]) * length;
            float* place = values + 2 * pair * kBlocks + at;
            add(place, sine(part ^ (angle >> 31)) * r);
            add(place + kBlocks, sine((part ^ top) ^ ((Ints)((Words)angle << 1) >> 31)) * r);
        }
    }
}

}  // namespace

// Adds noise to `count` values: `length` is its standard deviation times sqrt(2), `key` eight words, `nonce` three.
extern "C" void tacit_add_normal(
    float* values, int64_t count, float length, const uint32_t* key, const uint32_t* nonce
) {
    uint32_t start[16];
    chacha::write_start(start, key, nonce);
    const int64_t whole = count / kTile;
#pragma omp parallel for schedule(static) if (whole >= kWorthSharing)
    for (int64_t tile = 0; tile < whole; ++tile)
        add_tile(values + tile * kTile, length, start, uint32_t(tile * kBlocks));
    if (const int64_t rest = count % kTile) {
        float last[kTile] = {};
        std::memcpy(last, values + whole * kTile, rest * sizeof(float));
        add_tile(last, length, start, uint32_t(whole * kBlocks));
        std::memcpy(values + whole * kTile, last, rest * sizeof(float));
    }
}
