"""Administration of clusters, and the values that it gives."""
