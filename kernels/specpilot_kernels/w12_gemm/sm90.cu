// y = x W^T with W12 weights, 1 to 64 rows of x, on Hopper.
#include "launch.cuh"
#include "read.cuh"

namespace {
using namespace w12;
}

// bias: n numbers, or null. The others as product_arguments and run say. Returns a cudaError_t.
extern "C" int specpilot_w12_gemm_sm90(const void* records, const void* bases, const void* slots, const void* escapes, const void* x,
                                       const void* bias, void* y, void* partials, void* flags, uint64_t mark, int n, int k, int m, int plan, void* stream) {
  Arguments args = product_arguments(records, x, y, partials, flags, mark, n, k, m);
  args.bases = static_cast<const uint8_t*>(bases);
  args.slots = static_cast<const uint2*>(slots);
  args.escapes = static_cast<const uint32_t*>(escapes);
  args.bias = static_cast<const __nv_bfloat16*>(bias);
  return run<formats::W12, 64>(plan, args, static_cast<cudaStream_t>(stream));
}

// The bare read of the same records, for benches: `blocks` blocks by plain loads, 1, 2 or 4 records ahead, or by a ring of
// bulk copies (ahead 0).
extern "C" int specpilot_w12_read_sm90(const void* records, int64_t num_records, void* sink, int blocks, int ahead,
                                       void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  auto* r = static_cast<const uint4*>(records);
  auto* o = static_cast<uint32_t*>(sink);
  constexpr int kStages = 6, kBytes = kStages * kRecordBytes;
  if (ahead == 1) {
    w12_read<1><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else if (ahead == 2) {
    w12_read<2><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else if (ahead == 4) {
    w12_read<4><<<blocks, 256, 0, s>>>(r, num_records, o);
  } else {
    Device device;
    if (cudaError_t error = current_device(&device); error != cudaSuccess) return error;
    if (cudaError_t error = prepare<w12_read_ring<kStages>, 288, 1>(device, kBytes); error != cudaSuccess) return error;
    w12_read_ring<kStages><<<blocks, 288, kBytes, s>>>(r, num_records, o);
  }
  return cudaGetLastError();
}
