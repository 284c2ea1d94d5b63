// W12 records to BF16 rows, for products with many rows of x. One warp decodes 16 rows x 64 columns.
#include <cuda_runtime.h>

#include "../include/record_order.cuh"
#include "../include/record_slots.cuh"

namespace {
constexpr int kWarps = w12::kRecordWarps;

// Rows first to first + n of the weight, k columns; first is a multiple of 128. Blocks follow each other along the rows
// that they write.
__global__ void __launch_bounds__(32 * kWarps)
    decode(const uint4* records, const uint8_t* bases, const uint2* slots, const uint32_t* escapes, uint16_t* out, int n, int k,
           int first, int k_tiles, w12::RecordOrder order) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane / 4, c = lane % 4;
  const int row_tile = blockIdx.x / k_tiles, column_tile = blockIdx.x % k_tiles;
  const int row = row_tile * w12::kRecordRows + 16 * warp + g, column = column_tile * w12::kRecordColumns;
  const int64_t record = order.record(first / w12::kRecordRows + row_tile, column_tile);
  const uint2 slot = slots[record * kWarps + warp];
  constexpr int kPlane = w12::kWarpWords / 4;
  const uint4* const words = records + record * (w12::kRecordWords / 4) + 3 * kPlane * warp + lane;
  const uint4 a = words[0], e = words[kPlane], b = words[2 * kPlane];
  const uint32_t low = w12::base_pair(bases[first + row]), high = w12::base_pair(bases[first + row + 8]);
  uint32_t four[4][4];
  w12::decode_fragment(a.x, e.x, b.x, low, high, four[0]);
  w12::decode_fragment(a.y, e.y, b.y, low, high, four[1]);
  w12::decode_fragment(a.z, e.z, b.z, low, high, four[2]);
  w12::decode_fragment(a.w, e.w, b.w, low, high, four[3]);
  // By way of shared memory: escapes have indices there, and rows leave whole. Rows are 16 bytes longer than their numbers,
  // so that no banks collide.
  constexpr int kPitch = w12::kRecordColumns / 2 + 4;
  __shared__ __align__(16) uint32_t rows[kWarps][16][kPitch];
  uint32_t(*mine)[kPitch] = rows[warp];
#pragma unroll
  for (int i = 0; i < 16; ++i) mine[g + 8 * (i & 1)][8 * (i / 4) + 4 * (i >> 1 & 1) + c] = four[i / 4][i % 4];
  __syncwarp();
  w12::each_escape<32>(slot.x, slot.y, escapes, lane, [&](uint32_t entry) {
    const uint32_t owner = entry >> 21 & 31, r = entry >> 17 & 3;
    reinterpret_cast<uint16_t*>(mine[owner / 4 + 8 * (r & 1)])[16 * (entry >> 19 & 3) + 8 * (r >> 1) + 2 * (owner % 4) + (entry >> 16 & 1)] = uint16_t(entry);
  });
  __syncwarp();
  const int first_row = row - g;
  if (k % 8 == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 4 * i + lane / 8, piece = lane % 8;
      if (first_row + r < n && column + 8 * piece < k)
        *reinterpret_cast<uint4*>(out + int64_t(first_row + r) * k + column + 8 * piece) = *reinterpret_cast<const uint4*>(&mine[r][4 * piece]);
    }
  } else {
    for (int r = 0; r < 16; ++r)
      for (int j = lane; j < w12::kRecordColumns; j += 32)
        if (first_row + r < n && column + j < k) out[int64_t(first_row + r) * k + column + j] = reinterpret_cast<const uint16_t*>(mine[r])[j];
  }
}
}  // namespace

// n, k: of the weight. first: a multiple of 128; out gets count rows. Returns a cudaError_t.
extern "C" int specpilot_w12_decode(const void* records, const void* bases, const void* slots, const void* escapes, void* out, int n,
                                    int k, int first, int count, void* stream) {
  if (k < 1 || first < 0 || first % w12::kRecordRows || count < 1 || count > n - first) return cudaErrorInvalidValue;
  const auto tiles = [](int size, int tile) { return (size + tile - 1) / tile; };
  const int k_tiles = tiles(k, w12::kRecordColumns);
  decode<<<tiles(count, w12::kRecordRows) * k_tiles, 32 * kWarps, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint4*>(records), static_cast<const uint8_t*>(bases), static_cast<const uint2*>(slots),
      static_cast<const uint32_t*>(escapes), static_cast<uint16_t*>(out), count, k, first, k_tiles,
      w12::record_order(tiles(n, w12::kRecordRows), k_tiles));
  return cudaGetLastError();
}
