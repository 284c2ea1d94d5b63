// Where a record lies in a device's memory, and a warp's words in it: as specpilot_kernels/w12/device_order.py says.
#pragma once
#include "w12_decode.cuh"

namespace w12 {

constexpr int kBandBits = 5, kMostTilesInBands = 600;
constexpr int kRecordWarps = kRecordRows / 16;
constexpr int kWarpWords = kPlaneWords / kRecordWarps;  // of one plane, that the 16 rows of a warp have together

// Row tiles form bands of 1 << bits; a band's records lie column tile by column tile.
struct RecordOrder {
  int row_tiles, column_tiles, bits;

  // Records from a column tile of this row tile to the next.
  W12_HD int step(int row) const {
    const int left = row_tiles - (row >> bits << bits);
    return left < 1 << bits ? left : 1 << bits;
  }
  W12_HD int64_t record(int row, int column) const {
    const int first = row >> bits << bits;
    return int64_t(first) * column_tiles + int64_t(column) * step(row) + (row - first);
  }
};

W12_HD RecordOrder record_order(int row_tiles, int column_tiles) {
  return {row_tiles, column_tiles, row_tiles <= kMostTilesInBands ? kBandBits : 0};
}

}  // namespace w12
