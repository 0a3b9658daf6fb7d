"""Models out of the library: smaller networks, ONNX files, sparse layouts."""

from compositefl.export.compression import Compressed, compress
from compositefl.export.layouts import TwoFourPacked, pack_two_four, to_csr
from compositefl.export.onnx_file import to_onnx

__all__ = ["Compressed", "TwoFourPacked", "compress", "pack_two_four", "to_csr", "to_onnx"]
