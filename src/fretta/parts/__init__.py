"""What the papers share: pure torch, one number per sample, no knowledge of any method."""
