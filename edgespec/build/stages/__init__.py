"""The stages of a build, one module each, in the order in which they can run.

    fetch -> export -> quantize -> pack
                 \\-> head ------/

A head is fitted on the float32 embeddings of the exported encoder and joined to the quantised one when it is packed:
so encoders are exported and quantised once for all specs that share them, however many heads they have.
"""
