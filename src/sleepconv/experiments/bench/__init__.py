"""Speed and memory, as ratios in one run on the same machine."""
