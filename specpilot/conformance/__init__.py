"""Every mechanism against its oracle, and a faulty variant of every mechanism that the oracle must find."""
