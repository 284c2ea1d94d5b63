"""The reference engine: every mechanism in its plain form, on PyTorch; the judge of everything else."""
