// The block function of ChaCha20 (RFC 8439, section 2.3), sixteen blocks at a time, one to a lane of a vector.

#pragma once

#include <cstdint>
#include <cstring>

namespace chacha {

constexpr int kLanes = 16;
constexpr int kWords = 16;  // of 32 bits in a block

typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));

template <int distance>
inline Words rotated(Words values) {
    return (values << distance) | (values >> (32 - distance));
}

inline void quarter_round(Words& a, Words& b, Words& c, Words& d) {
    a += b, d = rotated<16>(d ^ a);
    c += d, b = rotated<12>(b ^ c);
    a += b, d = rotated<8>(d ^ a);
    c += d, b = rotated<7>(b ^ c);
}

// The state before the first round: constants, eight words of a key, room for a counter, three words of a nonce.
inline void write_start(uint32_t start[kWords], const uint32_t* key, const uint32_t* nonce) {
    constexpr uint32_t constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    std::memcpy(start, constants, sizeof constants);
    std::memcpy(start + 4, key, 8 * sizeof(uint32_t));
    start[12] = 0;
    std::memcpy(start + 13, nonce, 3 * sizeof(uint32_t));
}

// `words` becomes the blocks of the counters from `counter` on: word i of the block of a lane is words[i][lane].
inline void compute_blocks(Words words[kWords], const uint32_t start[kWords], uint32_t counter) {
    Words first[kWords] = {};
    for (int i = 0; i < kWords; ++i) first[i] += start[i];
    for (int lane = 0; lane < kLanes; ++lane) first[12][lane] = counter + lane;
    for (int i = 0; i < kWords; ++i) words[i] = first[i];
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 4; ++i) quarter_round(words[i], words[4 + i], words[8 + i], words[12 + i]);
        for (int i = 0; i < 4; ++i)
            quarter_round(words[i], words[4 + (i + 1) % 4], words[8 + (i + 2) % 4], words[12 + (i + 3) % 4]);
    }
    for (int i = 0; i < kWords; ++i) words[i] += first[i];
}

}  // namespace chacha
