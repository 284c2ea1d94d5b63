// What the kernels read of a weight's records, as they find and decode it, compiled for the host: BF16 bits, record by
// record (row tile by row tile), in the order of slots.
#include <cstdint>
#include <cstring>

#include "record_formats.cuh"

namespace {
struct HostWords {
  const unsigned char* at;
  template <class T>
  T read(int bytes) const {
    T words;
    std::memcpy(&words, at + bytes, sizeof words);
    return words;
  }
  uint4 read16(int bytes) const { return read<uint4>(bytes); }
  uint2 read8(int bytes) const { return read<uint2>(bytes); }
};

void load_row(formats::BasePairs& row, const uint8_t* bases, int n) { row.load(bases + n); }
void load_row(formats::Scales&, const uint8_t*, int) {}

// shared: a copy of what is read of a record, as the ring has it; else where the records lie.
template <class Format>
void decode(const unsigned char* records, const uint8_t* bases, int row_tiles, int column_tiles, bool shared, uint16_t* out) {
  const w12::RecordOrder order = w12::record_order(row_tiles, column_tiles);
  for (int row = 0; row < row_tiles; ++row)
    for (int column = 0; column < column_tiles; ++column, out += w12::kRecordRows * w12::kRecordColumns) {
      const unsigned char* const record = records + order.record(row, column) * Format::kStride;
      unsigned char stage[Format::kBytes];
      constexpr int kPiece = Format::kBytes / Format::kPieces;
      for (int i = 0; i < Format::kPieces; ++i) std::memcpy(stage + i * kPiece, record + i * (Format::kStride / Format::kPieces), kPiece);
      for (int thread = 0; thread < 256; ++thread) {
        const int warp = thread / 32, lane = thread % 32;
        const unsigned char* const first = shared ? stage + warp * Format::kWarpBytes : record + warp * Format::kWarpStride;
        typename Format::Words words;
        Format::load(words, HostWords{first + 16 * lane}, lane);
        typename Format::Row of_rows;
        load_row(of_rows, bases, w12::kRecordRows * row + 16 * warp + lane / 4);
        of_rows.look();
        uint32_t steps[4][4];
        for (int step = 0; step < 4; ++step) Format::fragment(words, step, of_rows, steps[step]);
        of_rows.correct(steps);
        for (int i = 0; i < 32; ++i) out[32 * thread + i] = uint16_t(steps[i >> 3][i >> 1 & 3] >> (16 * (i & 1)));
      }
    }
}
}  // namespace

#define DECODE(NAME, FORMAT)                                                                                                   \
  extern "C" void NAME(const unsigned char* records, const uint8_t* bases, int row_tiles, int column_tiles, int shared, uint16_t* out) { \
    decode<formats::FORMAT>(records, bases, row_tiles, column_tiles, shared, out);                                             \
  }
DECODE(decode_w12, W12)
DECODE(decode_view, View)
DECODE(decode_int8, Int8)
DECODE(decode_int6, Int6)

// Of rows n and n + 8 of so many: their scales times 1.
extern "C" void scales_of(const float* scales, int n, int num_rows, float out[2]) {
  formats::Scales row;
  row.load(scales, n, num_rows);
  out[0] = row.result(0, 1), out[1] = row.result(1, 1);
}
