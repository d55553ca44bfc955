"""Published logs and benchmarks against predictions: how accurate roofplan is, misses included."""
