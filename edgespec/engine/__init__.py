"""The edge engine's program: its file format, the packing of weights, a numpy reference, and the compiler from ONNX.

Pure: no file, network, clock or environment. The kernels that run it are in worker_runtime/engine.
"""
