"""The alternatives to softmax, one method a file: the transform and its loss, called as
``F.cross_entropy`` is.
"""
