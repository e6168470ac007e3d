"""`edgespec bench`: CPU and memory of a spec's model in workerd, engine by engine, beside native onnxruntime."""
