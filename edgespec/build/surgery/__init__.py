"""A model's files cut to size with numpy: vocabulary, layers, heads, feed-forward columns, single weights."""
