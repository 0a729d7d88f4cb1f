"""The alternatives to softmax that the comparison needs, one method a file.

Each file has the transform (logits -> probabilities) and the loss with the calling convention of
`torch.nn.functional.cross_entropy`. They are exported by `as_lightning.functional`, not from here: the files
carry the names of their functions.
"""
