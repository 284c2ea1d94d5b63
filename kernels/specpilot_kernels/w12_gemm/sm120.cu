// y = x W^T with W12 weights, 1 to 64 rows of x, on Blackwell workstation GPUs: no wgmma there, 99 KB of shared memory a
// block, 100 KB a multiprocessor, so one block on each. The same source runs on sm_90, where its arithmetic is tested.
#include "../include/record_gemm.cuh"

namespace {
constexpr int kSharedLimit = 99 * 1024;
// 256 rows of W a block. A stage has 24 KB of records and 1 to 8 KB of x.
constexpr int kFragments = 2, kStages = 3;

template <int N>
cudaError_t run(const record_gemm::Arguments& args, const record_gemm::Plain& output, const void* x, int k, cudaStream_t stream) {
  using Stage = record_gemm::Stage<formats::W12, N, kFragments>;
  static_assert(kStages * (Stage::kBytes + Stage::kSlots + 16) + 1024 <= kSharedLimit, "shared memory of a block");
  return record_gemm::launch<formats::W12, N, kFragments, kStages, 1>(args, output, x, k, stream);
}
}  // namespace

// bias: n numbers, or null. splits: parts of K, 1 to 8, at most its 64-column tiles. Returns a cudaError_t.
extern "C" int specpilot_w12_gemm_sm120(const void* records, const void* bases, const void* slots, const void* escapes,
                                        const void* x, const void* bias, void* y, int n, int k, int m, int splits, void* stream) {
  if (m < 1 || m > 64 || n < 1 || k < 8 || k % 8) return cudaErrorInvalidValue;
  const record_gemm::Arguments args = record_gemm::w12_arguments(records, bases, slots, escapes, n, k, m, splits);
  record_gemm::Plain output;
  output.bias = static_cast<const __nv_bfloat16*>(bias);
  output.y = static_cast<__nv_bfloat16*>(y);
  auto* s = static_cast<cudaStream_t>(stream);
  if (m <= 8) return run<8>(args, output, x, k, s);
  if (m <= 16) return run<16>(args, output, x, k, s);
  if (m <= 32) return run<32>(args, output, x, k, s);
  return run<64>(args, output, x, k, s);
}
