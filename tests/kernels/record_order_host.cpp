// Where records lie and what slots say, from the GPU kernels' headers, compiled for the host.
#include "record_order.cuh"
#include "record_slots.cuh"

extern "C" int most_tiles_in_bands() { return w12::kMostTilesInBands; }
extern "C" int band() { return 1 << w12::kBandBits; }
extern "C" void slot_words(uint32_t out[2]) { out[0] = w12::kNoEscape, out[1] = w12::kEscapeList; }
extern "C" int64_t record(int row_tiles, int column_tiles, int row, int column) {
  return w12::record_order(row_tiles, column_tiles).record(row, column);
}

// Escapes of a slot as `lanes` lanes, 1 or 32, find them, each lane's together; their number.
extern "C" int slot_escapes(uint32_t first, uint32_t second, const uint32_t* escapes, int lanes, uint32_t* out) {
  int count = 0;
  const auto put = [&](uint32_t entry) { out[count++] = entry; };
  for (int lane = 0; lane < lanes; ++lane) {
    if (lanes == 1) w12::each_escape<1>(first, second, escapes, lane, put);
    else w12::each_escape<32>(first, second, escapes, lane, put);
  }
  return count;
}
